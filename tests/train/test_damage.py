"""Disks that fill up and files that get lost. In processes of their own: where reading or writing fails midway, the
storage below orbax complains on its way out as well, which is not the run's doing."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]

FULL = '''
import pathlib, resource
from tests.train import pairs
from train import resume, run
from train.__main__ import main
from train.checkpoints import Checkpoints

run.learner_of = pairs.learner_of
plan = run.plan(pairs.settings(), "x", pathlib.Path("whole"))
whole = pairs.bits(pairs.train(plan))

save, room = Checkpoints.save, resource.getrlimit(resource.RLIMIT_FSIZE)
def limited(self, step, *rest):
    if step == 6:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, room[1]))
    return save(self, step, *rest)
Checkpoints.save = limited
run.run = lambda plan: pairs.train(plan) and 0
out = pathlib.Path("full")
assert main(["run", str(pairs.HYBRID), "--set", *pairs.SETTINGS, "data.path=text.txt", "--out", "full"]) == 1
assert {path.name for path in (out / "checkpoints").iterdir() if path.name.isdigit()} == {"3"}
assert main(["sample", "full", "--prompt", "a", "--length", "3"]) == 0

resource.setrlimit(resource.RLIMIT_FSIZE, room)
Checkpoints.save = save
resumed = resume.plan(out)
assert resumed.since.step == 3 and pairs.bits(pairs.train(resumed)) == whole
assert sorted(path.name for path in (out / "checkpoints").iterdir()) == ["6", "8"]
print("nothing was lost")
'''

DAMAGED = '''
import pathlib
from tests.train import pairs
from train import resume, run

run.learner_of = pairs.learner_of
plan = run.plan(pairs.settings("optim.steps=4", "run.save_every=2"), "x", pathlib.Path("whole"))
pairs.train(plan)
intact = pairs.bits(resume.plan(plan.out).since.state)
noticed = 0
for path in sorted(path for path in (plan.out / "checkpoints" / "4").rglob("*") if path.is_file()):
    kept = path.read_bytes()
    for damage in (path.unlink, lambda: path.write_bytes(kept[: len(kept) // 2])):
        damage()
        try:
            found = resume.plan(plan.out).since
        except ValueError as error:
            assert "checkpoints/4 cannot be read" in str(error), error
            assert "remove that folder to resume from step 2" in str(error), error
            noticed += 1
        else:  # a file that says nothing about the state
            assert found.step == 4 and pairs.bits(found.state) == intact, path
            print("not needed", path)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(kept)
assert pairs.bits(resume.plan(plan.out).since.state) == intact
print("noticed", noticed)
'''


def alone(script, folder):
    ran = subprocess.run([sys.executable, "-W", "error", "-c", script], cwd=folder, capture_output=True, text=True,
                         env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=300)  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran


@pytest.mark.slow
def test_a_full_disk_stops_the_run_and_loses_nothing(tmp_path):
    ran = alone(FULL, tmp_path)
    assert "nothing was lost" in ran.stdout
    said = [line for line in ran.stderr.splitlines() if line.startswith("python -m train run: ")]
    assert len(said) == 1 and "the checkpoint of step 6 could not be written into full/checkpoints" in said[0]
    assert "File too large" in said[0]


@pytest.mark.slow
def test_no_missing_or_shortened_file_of_a_checkpoint_goes_unnoticed(tmp_path):
    said = alone(DAMAGED, tmp_path).stdout.splitlines()[-1].split()
    assert said[0] == "noticed" and int(said[1]) >= 10
