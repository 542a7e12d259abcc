"""Every example runs as a new user runs it: alone, from an empty folder, with warnings as errors."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run(example, folder, *arguments):
    done = subprocess.run(
        [sys.executable, "-W", "error", example, *arguments], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_are_examples_and_each_says_what_it_is_and_stays_short():
    assert {path.stem for path in EXAMPLES} >= {"patterns", "one_layer_by_hand", "window_in_your_model", "training"}
    for path in EXAMPLES:
        text = path.read_text()
        assert text.startswith('"""') and text.count("\n") < 100, path.name


@pytest.mark.slow
@pytest.mark.parametrize("path", [x for x in EXAMPLES if x.stem not in ("training", "streaming")], ids=lambda path: path.stem)
def test_an_example_runs_and_says_something(path, tmp_path):
    assert run(path, tmp_path).strip()
    assert not os.listdir(tmp_path), "an example writes no file that nobody asked for"


@pytest.mark.slow
def test_patterns_draws_what_it_is_given(tmp_path):
    said = run(ROOT / "examples/patterns.py", tmp_path, "window(2) & ~sink(1)", "--svg", "pictures")
    assert said.startswith("window(2) & ~sink(1): 16 queries") and "528,611,328 scores a head" in said
    assert os.listdir(tmp_path / "pictures") == ["window(2)-and-not-sink(1).svg"]


@pytest.mark.slow
def test_training_learns_what_the_pattern_shows_and_nothing_beyond(tmp_path):
    said = run(ROOT / "examples/training.py", tmp_path)
    assert not os.listdir(tmp_path)
    accuracy = {int(line.split()[0]): float(line.split()[1]) for line in said.splitlines() if line.split()[0].isdigit()}
    assert all(accuracy[d] > 0.95 for d in range(1, 7)) and all(accuracy[d] < 0.3 for d in range(7, 16))
    run(ROOT / "examples/training.py", tmp_path, "--steps", "20", "--svg", "loss.svg")
    assert (tmp_path / "loss.svg").read_text().startswith("<svg")


@pytest.mark.slow
def test_streaming_needs_the_model_and_shows_what_a_sink_is_worth(tmp_path):
    """The published perplexities, then 600 tokens through caches of 64 slots: the ring goes round nine times."""
    said = run(ROOT / "examples/streaming.py", tmp_path, "--tokens", "600", "--out", "stream.png")
    assert os.listdir(tmp_path) == ["stream.png"]
    whole = dict(re.findall(r"^(\w.*?\))  +(\d+\.\d+)$", said, re.MULTILINE))
    assert whole == {"causal()": "14.27", "window(64)": "40.00", "window(63) | sink(1)": "17.48", "window(60) | sink(4)": "17.68"}
    window, sinks = map(float, re.findall(r"a stream of \d+ tokens: perplexity (\d+\.\d+)", said))
    assert window > 1.5 * sinks
    (size,) = set(re.findall(r"(\d+\.\d) MiB of cache", said))
    assert float(size) < 5


@pytest.mark.slow
def test_streaming_says_how_to_fetch_the_model(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "examples/streaming.py", "--model", "absent.gguf"], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 2 and "absent.gguf is not there; fetch it with: make smollm2" in done.stderr
