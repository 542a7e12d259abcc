"""The console command: what it writes, that it pipes, and one line with exit 2 for everything that is wrong."""

import io
import logging
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tomllib

import jax
import jax.numpy as jnp
import pytest

import attnjax as aj
from attnjax import cli, models, show
from attnjax.cli import command, cost, figures

ROOT = pathlib.Path(__file__).parents[1]
CHAPTER = "window(4) | sink(1)"


def run(capsys, *argv):
    """(exit status, stdout, stderr)."""
    status = cli.main([str(a) for a in argv])
    out, err = capsys.readouterr()
    return status, out, err


def process(*argv, **env):
    """The command in a process of its own."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    command = [sys.executable, "-m", "attnjax.cli", *argv]
    return subprocess.run(command, env=env, capture_output=True, timeout=900, cwd=ROOT)


def test_show_writes_the_text_of_the_library(capsys):
    assert run(capsys, "show", CHAPTER, "--length", 16) == (0, show.text(aj.parse(CHAPTER), 16) + "\n", "")
    assert run(capsys, "show", CHAPTER)[1] == show.text(aj.parse(CHAPTER), 16) + "\n"
    said = run(capsys, "show", "causal()", "--length", 4, "--keys", 10, "--q-offset", 6)[1]
    assert said == show.text(aj.Causal(), 4, 10, 6) + "\n"
    assert "70 scores; causal() has 136, full() 256" in run(capsys, "show", CHAPTER)[1]


def test_show_writes_files_whole_and_says_which(capsys, tmp_path):
    svg, png = tmp_path / "p.svg", tmp_path / "p.png"
    status, out, err = run(capsys, "show", CHAPTER, "--svg", svg, "--png", png)
    assert (status, err) == (0, "") and f"written: {svg}, {png}" in out and "70 scores" in out
    assert svg.read_text() == show.picture(aj.parse(CHAPTER), 16).svg() + "\n"
    assert png.read_bytes()[:4] == b"\x89PNG" and len(os.listdir(tmp_path)) == 2


def test_show_plan_draws_the_tiles_of_explain(capsys):
    x = jax.ShapeDtypeStruct((2, 512, 8, 32), jnp.float32)
    k = jax.ShapeDtypeStruct((2, 512, 2, 32), jnp.float32)
    why = aj.explain(x, k, k, aj.Window(64), backend="tiled")
    options = ["--heads", 8, "--kv-heads", 2, "--head-dim", 32, "--batch", 2, "--backend", "tiled"]
    assert run(capsys, "show", "window(64)", "--length", 512, "--plan", *options)[1] == show.text(why) + "\n"


def test_explain_prints_what_the_library_says(capsys):
    q = jax.ShapeDtypeStruct((1, 32768, 32, 128), jnp.bfloat16)
    k = jax.ShapeDtypeStruct((1, 32768, 8, 128), jnp.bfloat16)
    why = aj.explain(q, k, k, aj.Window(4096) | aj.Sink(4))
    options = ["--length", 32768, "--heads", 32, "--kv-heads", 8, "--head-dim", 128, "--dtype", "bfloat16"]
    assert run(capsys, "explain", "window(4096) | sink(4)", *options) == (0, f"{why}\n", "")
    heads = run(capsys, "explain", "perhead(causal(), window(4))", "--length", 300)[1]
    assert "heads" not in heads.splitlines()[0] and "perhead" in heads


def test_cost_has_the_chapters_numbers(capsys):
    """528.6M of 8.6B at 128k tokens; Llama 2 7B keeps 512 KiB a token, 64 GiB in all."""
    sizes = ["--length", 131072, "--heads", 32, "--kv-heads", 8, "--head-dim", 128]
    status, out, err = run(capsys, "cost", "window(4096) | sink(1)", *sizes)
    assert (status, err) == (0, "")
    row, causal = (line.split() for line in out.splitlines()[3:5])
    assert row[4:6] == ["528,611,328", f"{32 * 528_611_328:,}"] and causal[3] == "8,590,000,128"
    assert row[-2:] == ["16.0", "MiB"] and causal[-2:] == ["512.0", "MiB"]  # 4097 or 131072 slots of 4 KiB
    assert "a token in the cache of all layers: 4.0 KiB" in out


def test_cost_of_a_model_counts_its_layers(capsys):
    out = run(capsys, "cost", "llama2_7b", "--length", 131072)[1]
    assert "32 query heads and 32 key heads of 128" in out
    assert out.splitlines()[3].split()[:3] == ["32", "causal()", "8,590,000,128"]
    assert "64.0 GiB" in out and "a token in the cache of all layers: 512.0 KiB" in out and "if causal()" not in out
    layers = models.config("gemma3_1b").letters
    assert (layers.count("L"), layers.count("G")) == (22, 4)
    hybrid = [line.split() for line in run(capsys, "cost", "gemma3_1b", "--length", 131072)[1].splitlines()]
    assert [row[:2] for row in hybrid[3:5]] == [["22", "window(512)"], ["4", "causal()"]]
    scores = 4 * (22 * aj.Window(512).count(131072) + 4 * aj.Causal().count(131072))
    assert f"{scores:,}" in hybrid[5] and hybrid[5][:4] == ["26", "all", "of", "them"]
    assert hybrid[6][:3] == ["26", "if", "causal()"] and f"{4 * 26 * aj.Causal().count(131072):,}" in hybrid[6]


def test_cost_of_heads_and_batches(capsys):
    options = ["--length", 64, "--head-dim", 8, "--batch", 3, "--layers", 5, "--bytes-per-number", 4]
    out = run(capsys, "cost", "perhead(causal(), window(4))", *options)[1]
    total = 3 * 5 * (aj.Causal().count(64) + aj.Window(4).count(64))
    assert f"{total:,}" in out.splitlines()[3] and f"a token in the cache of all layers: {3 * 5 * 2 * 16 * 4 / 1024:.1f} KiB" in out


@pytest.mark.parametrize(("count", "text"), [(12, "12 B"), (1023, "1,023 B"), (1536, "1.5 KiB"), (2**40, "1.0 TiB")])
def test_bytes_are_read_easily(count, text):
    assert cost.byte_text(count) == text


@pytest.mark.parametrize(("count", "text"), [(999_999, "999,999"), (2_500_000, "2.50 M"), (4.5e15, "4.50 P")])
def test_operations_are_read_easily(count, text):
    assert cost.flop_text(int(count)) == text


WRONG = [
    ([], "attnjax: error: the following arguments are required: COMMAND"),
    (["draw"], r"attnjax: error: argument COMMAND: invalid choice: 'draw' \(choose from '?show'?, '?cost'?, '?explain'?"),
    (["show"], "attnjax show: error: the following arguments are required: pattern"),
    (["show", "windw(4)"], r"there is no pattern 'windw'; did you mean 'window'\? \(at character 1 of 'windw\(4\)'\)"),
    (["show", "window(4) | snk(1)"], r"did you mean 'sink'\? \(at character 13 of 'window\(4\) \| snk\(1\)'\)"),
    (["show", "window(0)"], "window=0 is too small: a window counts the query itself"),
    (["show", "causal()", "--length", "0"], "argument --length: 0 must be from 1 to 2147483647"),
    (["show", "causal()", "--length", "many"], "argument --length: 'many' is not a whole number"),
    (["show", "causal()", "--keys", "32"], r"q_offset=16 \(S - T\) aligns the ends"),
    (["show", "causal()", "--svg", "nowhere/p.svg"], "nowhere/p.svg: No such file or directory"),
    (["show", "causal()", "--svg", "p.png"], "--svg p.png: the file must end in .svg"),
    (["show", "causal()", "--heads", "4", "--dtype", "float16"], "--heads, --dtype changes what is computed"),
    (["cost", "causal()", "--length", "8"], r"give --heads and --head-dim \(--heads 32 --head-dim 128\)"),
    (["cost", "causal()", "--length", "8", "--heads", "6", "--kv-heads", "4", "--head-dim", "8"], "6 .*4"),
    (["cost", "llama2", "--length", "8"], "there is no model 'llama2', only llama2_7b, .*did you mean 'llama2_7b'"),
    (["cost", "llama2_7b", "--length", "8", "--heads", "4"], "--heads: llama2_7b has its own"),
    (["cost", "causal()"], "the following arguments are required: --length"),
    (["explain", "causal()", "--length", "64", "--backend", "tild"], "backend='tild' is unknown; .*Did you mean 'tiled'"),
    (["explain", "causal()", "--length", "64", "--dtype", "int8"], "argument --dtype: invalid choice: 'int8'"),
    (["explain", "perhead(causal(), causal())", "--length", "8", "--heads", "3"], "2 patterns"),
]  # fmt: skip


@pytest.mark.parametrize(("argv", "said"), WRONG, ids=[" ".join(argv) or "nothing" for argv, _ in WRONG])
def test_what_is_wrong_is_one_line_and_exit_2(argv, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys, *argv)
    assert (status, out) == (2, "") and re.search(said, err), err
    assert err.count("\n") == 1 and err.startswith(f"attnjax{' ' + argv[0] if argv and argv[0] != 'draw' else ''}: error: ")
    assert os.listdir(tmp_path) == []


def test_a_missing_extra_is_its_pip_line(capsys, monkeypatch, tmp_path):
    for module in ("matplotlib", "matplotlib.figure", "matplotlib.collections", "matplotlib.patches"):
        monkeypatch.setitem(sys.modules, module, None)
    status, out, err = run(capsys, "show", "causal()", "--png", tmp_path / "p.png")
    assert (status, out) == (2, "") and "pip install 'attnjax[show]'" in err and err.count("\n") == 1
    assert os.listdir(tmp_path) == []
    assert run(capsys, "show", "causal()", "--svg", tmp_path / "p.svg")[0] == 0


@pytest.mark.parametrize("name", [[], *([c.NAME] for c in command.COMMANDS)], ids=lambda c: " ".join(c) or "attnjax")
def test_help_says_what_there_is(name, capsys):
    status, out, err = run(capsys, *name, "--help")
    assert (status, err) == (0, "") and out.startswith(" ".join(["usage: attnjax", *name]))
    assert "examples:" in out or not name


LINES = [line.strip() for c in command.COMMANDS for line in c.EXAMPLES.splitlines() if line.startswith("  attnjax ")]
EXAMPLES = [line for line in LINES if "--model" not in line]  # a model is a file of the reader's own


@pytest.mark.parametrize("line", EXAMPLES)
def test_the_examples_in_the_help_run(line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys, *shlex.split(line)[1:])
    assert (status, err) == (0, "") and out


def test_version(capsys):
    assert run(capsys, "--version")[:2] == (0, f"attnjax {aj.__version__}\n")


def test_the_package_brings_the_command():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"attnjax": "attnjax.cli:main"}


def test_a_terminal_without_utf8_gets_plain_shades(capsys, monkeypatch):
    held = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", held)
    assert cli.main(["show", CHAPTER]) == 0
    assert b"    5 ##..########....................  5" in held.buffer.getvalue()


@pytest.mark.slow
def test_it_pipes():
    """Into a reader that stops early, and into one that knows no UTF-8; never with control codes."""
    whole = process("show", "causal()", "--length", "64")
    assert whole.returncode == 0 and b"\x1b" not in whole.stdout and "█".encode() in whole.stdout
    ascii_only = process("show", CHAPTER, PYTHONIOENCODING="ascii")
    assert ascii_only.returncode == 0 and ascii_only.stdout.isascii() and b"##..##########" not in ascii_only.stderr
    assert b"5 ##..########....................  5" in ascii_only.stdout
    early = subprocess.run(
        f"{shlex.quote(sys.executable)} -m attnjax.cli show 'causal()' --length 4096 | head -n 1",
        shell=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, timeout=900, cwd=ROOT,
    )  # fmt: skip
    assert early.stderr == b"" and early.stdout.startswith(b"causal()")


def documented():
    """Every command that a document shows."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for block in re.findall(r"^```sh\n(.*?)^```", path.read_text(), re.M | re.S):
            yield from (line for line in block.splitlines() if line.startswith("attnjax "))


@pytest.mark.parametrize("line", [line for line in dict.fromkeys(documented()) if "--model" not in line])
def test_the_commands_in_the_documents_run(line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys, *shlex.split(line.partition(" #")[0])[1:])
    assert (status, err) == (0, "") and out


@pytest.mark.slow
def test_a_closed_output_is_one_line():
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m attnjax.cli show 'causal()' >&-"], env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE, text=True, timeout=900, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "attnjax show: error: standard output is closed, so there is nowhere to write\n"


@pytest.mark.parametrize("name", ["out", "model"])
def test_an_empty_path_is_refused(name, capsys):
    assert run(capsys, "figures", f"--{name}", "")[::2] == (2, f"attnjax figures: error: --{name} is empty; leave it out, or name a path\n")


def test_figures_of_a_model_say_what_they_do(capsys, tmp_path, monkeypatch):
    """The page's reader of models logs; the command shows that on stderr, so that the answer still pipes."""
    from attnjax.show.page import hand_set, sources

    def find(path):
        logging.getLogger("attnjax").info("reading %s", path)
        return hand_set.scene()

    monkeypatch.setattr(sources, "find", find)
    status, out, err = run(capsys, "figures", "--out", tmp_path, "--model", "x")
    assert (status, err) == (0, "reading x\n") and out.startswith("written: ")
    assert run(capsys, "figures", "--out", tmp_path, "--model", "x")[2] == err  # and once only


def test_in_a_terminal_progress_is_one_line_that_goes():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    said, log = Terminal(), logging.getLogger("attnjax")
    with figures._progress(said):
        log.info("layer %d", 1)
        log.info("layer %d", 2)
    log.info("layer %d", 3)
    assert said.getvalue() == "".join(f"\r\x1b[K{text}" for text in ("layer 1", "layer 2", ""))
