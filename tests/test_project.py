"""The house rules that a machine can hold: budgets, reasons for exceptions, unfinished words, what ships."""

import ast
import os
import pathlib
import re
import subprocess
import sys
import tomllib
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[1]
FOLDERS = "attnjax", "train", "tests", "benchmarks", "docs", "examples", "tools"
CODE = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
SHIPPED = [path for path in CODE if path.relative_to(ROOT).parts[0] in ("attnjax", "train")]
TEXTS = [*CODE, ROOT / ".ci/run", ROOT / "Makefile", ROOT / "pyproject.toml"]
TEXTS += [path for glob in ("*.md", "docs/*.md", "docs/api/*.md", "benchmarks/*.md", "configs/*") for path in ROOT.glob(glob)]
KERNELS = ROOT / "attnjax/backends/tpu", ROOT / "attnjax/backends/gpu"

# How often the rules are set aside. A number here may only fall: to add one, take one away.
HELD = {"skip": 0, "xfail": 0, "type-ignore": 3, "noqa": 0, "warning-filter": 0}
KINDS = {
    "skip": r"pytest\.(mark\.skip|skip\(|importorskip)",
    "xfail": r"pytest\.(mark\.)?xfail",
    "type-ignore": r"#\s*(type|pyright):\s*ignore",
    "noqa": r"#\s*noqa",
    "warning-filter": r"filterwarnings\(|simplefilter\(|catch_warnings\(",
}


def name(path):
    return str(path.relative_to(ROOT))


def exceptions(kind):
    """(place, line) of every line that sets a rule aside; this file, which spells the rules, is left out."""
    for path in CODE:
        if path != pathlib.Path(__file__):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if re.search(KINDS[kind], line):
                    yield f"{name(path)}:{number}", line


@pytest.mark.parametrize("kind", KINDS)
def test_exceptions_do_not_grow_and_carry_a_reason(kind):
    found = list(exceptions(kind))
    assert len(found) == HELD[kind], f"{kind}: {HELD[kind]} held, found {found}; if fewer, lower the number"
    for place, line in found:
        rest = line[re.search(KINDS[kind], line).end() :]
        assert re.search(r"[A-Za-z]{2,} [a-z]{2,}", rest), f"{place} gives no reason on its line"


@pytest.mark.parametrize("path", SHIPPED, ids=name)
def test_files_and_functions_stay_within_their_budgets(path):
    kernel = any(path.is_relative_to(folder) for folder in KERNELS)
    text = path.read_text()
    assert text.count("\n") <= (600 if kernel else 300), "split by stage, never into utils.py"
    assert path.stem not in ("utils", "helpers", "misc", "common"), "a file's name says what it does"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not kernel:
            lines = node.end_lineno - node.lineno + 1
            assert lines <= 60, f"{node.name} has {lines} lines"


@pytest.mark.parametrize("path", SHIPPED, ids=name)
def test_shipped_code_is_finished_and_quiet(path):
    text = path.read_text()
    for number, line in enumerate(text.splitlines(), 1):
        unfinished = re.search(r"\b(TODO|FIXME|XXX|HACK)\b|\bfor now\b|not implemented yet", line, re.I)
        assert not unfinished, f"line {number}: {line}"
        # Annotations kept as strings would switch the jaxtyping checks off in silence.
        assert "from __future__ import annotations" not in line, f"line {number}"
    if path.is_relative_to(ROOT / "attnjax"):
        calls = [node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
        assert "print" not in [getattr(call, "id", None) for call in calls], "the library logs"


@pytest.mark.parametrize("path", TEXTS, ids=name)
def test_nothing_points_outside_the_repository(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        assert not re.search(r"(?<![\w.\-])/(home|root|tmp|work|mnt|Users)/", line), f"line {number}: {line}"


def test_every_file_that_a_markdown_link_names_exists():
    for path in (path for path in TEXTS if path.suffix == ".md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text()):
            assert (path.parent / target).exists(), f"{name(path)} links to {target}"


@pytest.mark.slow
def test_the_core_works_without_flax():
    run = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "tests/support/without_flax.py"],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "attends without flax" in run.stdout


@pytest.mark.slow
def test_the_wheel_holds_attnjax_only(tmp_path):
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ROOT]
    subprocess.run(build, check=True, timeout=900, capture_output=True)
    (wheel,) = tmp_path.glob("attnjax-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(n for n in names if n.endswith(".dist-info/METADATA"))).decode()
    assert {n.split("/")[0] for n in names if ".dist-info/" not in n} == {"attnjax"}
    assert "attnjax/py.typed" in names
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "attnjax").rglob("*.py")}
    assert modules == {n for n in names if n.endswith(".py")}
    page = {str(path.relative_to(ROOT)) for path in (ROOT / "attnjax/show/page").iterdir() if path.is_file()}
    assert page <= set(names) and any(n.endswith(".js") for n in page)
    import attnjax

    assert f"\nVersion: {attnjax.__version__}\n" in metadata
    assert "\nRequires-Python: >=3.11\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata


def test_the_project_file_names_what_people_install():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    core = {re.split(r"[><=\[]", line)[0] for line in project["dependencies"]}
    assert core == {"jax", "flax", "numpy", "jaxtyping"}
    extras = project["optional-dependencies"]
    assert set(extras) == {"train", "models", "show", "test", "page", "lint", "tpu", "cuda13", "bench"}
    changes = (ROOT / "CHANGELOG.md").read_text()
    import attnjax

    assert f"## [{attnjax.__version__}]" in changes, "CHANGELOG.md has no section for this version"
