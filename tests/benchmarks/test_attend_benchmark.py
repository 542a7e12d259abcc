"""The benchmark checks before it times, and its last line is for programs."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.slow
def test_the_last_line_is_one_document_with_all_rows():
    settings = ["--T", "96", "--window", "16", "--rounds", "3", "--heads", "2"]
    run = subprocess.run(
        [sys.executable, ROOT / "benchmarks/attend.py", *settings],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    document = json.loads(run.stdout.splitlines()[-1])
    rows = document["rows"]
    wanted = [(p, d) for p in ("causal()", "window(16)") for d in ("forward", "backward")]
    assert [(row["pattern"], row["direction"]) for row in rows] == wanted
    assert all(row["ratio"] > 0 and row["error"] < 1e-4 for row in rows)


@pytest.mark.slow
def test_a_wrong_result_is_not_timed():
    code = """
import sys, jax
sys.argv = ["attend.py", "--T", "32", "--window", "8", "--rounds", "1", "--heads", "1"]
from benchmarks import attend
real = jax.nn.dot_product_attention
jax.nn.dot_product_attention = lambda *args, **options: 1.01 * real(*args, **options)
attend.main()
"""
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert run.returncode == 1 and "nothing was timed" in run.stderr
