"""Ten kills at random moments leave no trace: the run ends as one that was never stopped."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest

from tests.train.pairs import HYBRID, bits
from train import config, resume, run
from train.checkpoints import Checkpoints

ROOT = pathlib.Path(__file__).parents[2]
STEPS, KILLS, IN_A_SAVE, BEFORE_THE_FIRST = 400, 10, 3, 1
SETTINGS = [
    "model.layout=L", "model.num_layers=1", "model.theta=1e4", "model.d_model=8", "model.num_heads=1",
    "model.num_kv_heads=1", "model.dropout_rate=0.1", "data.length=8", "data.batch=4", f"optim.steps={STEPS}",
    "optim.warmup=5", "run.log_every=3", "run.eval_every=50", "run.save_every=2", "run.sample=4",
]  # fmt: skip


def start(*arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    return subprocess.Popen([sys.executable, "-m", "train", *map(str, arguments)], cwd=ROOT, env=environment,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip


def ended(process):
    said = process.communicate(timeout=300)[1]
    assert process.returncode == 0, said
    assert "warning" not in said


def names(out):
    folder = out / "checkpoints"
    return [path.name for path in folder.iterdir()] if folder.exists() else []


def saving(out):
    return [name for name in names(out) if not name.isdigit()]


def newest(out):
    return max((int(name) for name in names(out) if name.isdigit()), default=0)


def wait(process, ready):
    deadline = time.monotonic() + 120
    while not ready():
        assert process.poll() is None and time.monotonic() < deadline, "it ended before it could be killed"
        time.sleep(0.0005)


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def kill_in_a_save(process, out, draw):
    """True if the kill left half a checkpoint behind; the save may also have been faster."""
    target = newest(out) + 2 * draw.randint(1, 5)
    wait(process, lambda: newest(out) >= target and saving(out))
    time.sleep(draw.uniform(0, 0.02))
    kill(process)
    return bool(saving(out))


def kill_anywhere(process, out, draw):
    target = newest(out) + 2 * draw.randint(1, 8)
    wait(process, lambda: newest(out) >= target)
    time.sleep(draw.uniform(0, 0.2))
    kill(process)


def end(out):
    """All that is left of a run, but for the speed and the time."""
    record = json.loads((out / "run.json").read_text())
    plan = run.checked(config.from_table(record["settings"]), lambda: out)
    batches = plan.batches()
    with Checkpoints(out / "checkpoints") as checkpoints:
        state = checkpoints.restore(STEPS, resume.shapes(plan.learner()[1], plan.mesh), batches)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    lines = [{key: value for key, value in line.items() if key != "tokens_per_second"} for line in lines]
    files = [(out / name).read_bytes() for name in ("sample.txt", "model/model.safetensors")]
    return bits(state), batches.get_state(), lines, record["validation"], files


@pytest.mark.slow
def test_ten_kills_leave_no_trace(tmp_path):
    seed = int.from_bytes(os.urandom(4))
    print(f"seed {seed}")  # shown when the test fails
    draw = random.Random(seed)
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 60)
    first = ["run", HYBRID, "--set", *SETTINGS, f"data.path={text}", "--out"]
    whole, out = tmp_path / "whole", tmp_path / "killed"
    ended(start(*first, whole))

    process = start(*first, out)
    wait(process, (out / "run.json").exists)
    time.sleep(draw.uniform(0, 0.5))
    kill(process)
    assert not newest(out), "compiling was faster than half a second"
    kills, in_a_save = BEFORE_THE_FIRST, 0
    while kills < KILLS:
        process = start("resume", out)
        if in_a_save < IN_A_SAVE:
            in_a_save += kill_in_a_save(process, out, draw)
        else:
            kill_anywhere(process, out, draw)
        kills += 1
    assert in_a_save >= IN_A_SAVE and 0 < newest(out) < STEPS
    ended(start("resume", out))

    assert end(out) == end(whole)
    steps = [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(set(steps)) == [n for n in range(1, STEPS + 1) if n % 3 == 0 or n % 50 == 0]
    assert len(json.loads((out / "run.json").read_text())["resumed"]) == KILLS
    assert not saving(out)
