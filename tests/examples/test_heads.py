"""The heads example, on a file and on the decoder that it trains."""

import os
import pathlib
import subprocess
import sys

import pytest
from flax import nnx

from attnjax import models

ROOT = pathlib.Path(__file__).parents[2]


def run(folder, *arguments):
    done = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "examples/heads.py", *arguments], cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_an_induction_head_appears_while_the_decoder_learns_to_repeat(tmp_path):
    """In half of the steps: when it happens differs by a hundred steps or so from one rounding to another."""
    lines = run(tmp_path, "--steps", "500")
    steps = [line.split() for line in lines[1:12]]
    assert [int(step[0]) for step in steps] == [1, *range(50, 501, 50)]
    nats, induction = ([float(step[at]) for step in steps] for at in (1, 4))
    assert induction[0] < 0.1 and nats[0] > 3.5 and nats[-1] < 1 and induction[-1] > 0.5
    assert [line.split()[1] for line in lines[14:] if line[:2] == "1."].count("induction") >= 1


@pytest.mark.slow
def test_a_model_from_a_folder(tmp_path):
    config = models.Config(vocab_size=40, d_model=16, num_layers=3, num_heads=2)
    models.save(models.Decoder(config, rngs=nnx.Rngs(0)), tmp_path / "model")
    assert run(tmp_path, "model", "--bos", "3")[0].startswith("3 layers of 2 heads; induction and duplicate on 10 probes")
