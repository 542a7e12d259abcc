"""Calls, layers and training on a mesh of eight devices, each kind of axes in a process of its own."""

import os
import pathlib
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).parent / "support" / "eight_devices.py"


def agreeing(kind, *names):
    """The rows that agree with one device."""
    env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "PYTHONPATH": str(PROGRAM.parents[2])}
    run = subprocess.run(
        [sys.executable, "-W", "error", PROGRAM, kind, *names], env=env, capture_output=True, text=True, timeout=1800,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return [line.removesuffix(" agrees") for line in run.stdout.splitlines()]


@pytest.mark.cross
@pytest.mark.parametrize(("kind", "names"), [
    ("Explicit", ("comb", "kernel", "refused")), ("Explicit", ("mqa", "closed")), ("Auto", ("comb", "kernel")),
], ids=lambda x: x if isinstance(x, str) else " ".join(x))  # fmt: skip
def test_a_mesh(kind, names):
    assert agreeing(kind, *names) == list(names)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Explicit", "Auto"])
def test_every_row_on_a_mesh(kind):
    assert len(agreeing(kind)) >= 19
