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
import pathlib, random, sys
from tests.train import pairs
from train import resume, run

run.learner_of = pairs.learner_of
plan = run.plan(pairs.settings("optim.steps=4", "run.save_every=2"), "x", pathlib.Path("whole"))
pairs.train(plan)
def taken():
    since = resume.plan(plan.out).since
    return since.step, pairs.bits(since.state), since.batches.get_state(), since.losses, since.seconds
intact, noticed, draw = taken(), 0, random.Random(int(sys.argv[1]))

def flipped(content, bit):
    content = bytearray(content)
    content[bit // 8] ^= 1 << bit % 8
    return bytes(content)

for path in sorted(path for path in (plan.out / "checkpoints" / "4").rglob("*") if path.is_file()):
    kept = path.read_bytes()
    bits = range(8 * len(kept)) if 8 * len(kept) <= FLIPS else draw.sample(range(8 * len(kept)), FLIPS)
    for damaged in (None, kept[: len(kept) // 2], *(flipped(kept, bit) for bit in bits)):
        path.unlink()
        if damaged is not None:
            path.write_bytes(damaged)
        try:
            found = taken()
        except ValueError as error:
            assert "checkpoints/4 " in str(error), (path, error)
            assert "remove that folder to resume from step 2" in str(error) or "this version" in str(error), (path, error)
            noticed += 1
        else:  # what says nothing about the run
            assert found == intact, path
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(kept)
assert taken() == intact
print("noticed", noticed)
'''.replace("FLIPS", "12")


def alone(script, folder, *arguments):
    ran = subprocess.run([sys.executable, "-W", "error", "-c", script, *arguments], cwd=folder, capture_output=True, text=True,
                         env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=1200)  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran


@pytest.mark.slow
def test_a_full_disk_stops_the_run_and_loses_nothing(tmp_path):
    ran = alone(FULL, tmp_path)
    assert "nothing was lost" in ran.stdout
    (said,) = ran.stderr.splitlines()
    assert said == "python -m train run: the checkpoint of step 6 could not be written into full/checkpoints: File too large"


@pytest.mark.slow
def test_no_damage_to_a_file_of_a_checkpoint_goes_unnoticed(tmp_path):
    """Files that are missing, shortened or have a flipped bit are noticed, or change nothing."""
    seed = os.environ.get("ATTNJAX_FLIP_SEED", "0")
    print(f"ATTNJAX_FLIP_SEED={seed}")  # shown when the test fails
    said = alone(DAMAGED, tmp_path, seed).stdout.splitlines()[-1].split()
    assert said[0] == "noticed" and int(said[1]) >= 100
