"""Ten kills leave no trace: the run ends as one that was never stopped.

What a kill leaves is what is on disk, and that changes at file operations and within writes. So each process kills
itself, at an operation or within a write that the seed picks: no clock decides, on a machine of any speed.
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys

import pytest

from tests.train.pairs import HYBRID, bits
from train import config, resume, run
from train.checkpoints import Checkpoints

ROOT = pathlib.Path(__file__).parents[2]
SEED = int(os.environ.get("ATTNJAX_KILL_SEED", "0"))
STEPS, KILLS, IN_A_WRITE = 120, 10, 3
SAVES, OPERATIONS, BYTES = 4, 50, 1500  # at most, before a kill; a save takes about 40 operations, its longest file 2 KB
SETTINGS = [
    "model.layout=L", "model.num_layers=1", "model.theta=1e4", "model.d_model=8", "model.num_heads=1",
    "model.num_kv_heads=1", "model.dropout_rate=0.1", "data.length=8", "data.batch=4", f"optim.steps={STEPS}",
    "optim.warmup=5", "run.log_every=3", "run.eval_every=50", "run.save_every=2", "run.sample=4",
]  # fmt: skip

# `train`, killed in its n-th save or after it: at the k-th file operation from there, or within a write that makes a
# file longer than so many bytes.
KILLED = '''
import os, resource, signal, sys
from train.__main__ import main
from train.checkpoints import Checkpoints

saves, operations, longest = map(int, sys.argv[1:4])
done, left = 0, None
save = Checkpoints.save

def counted(self, *arguments):
    global done, left
    done += 1
    if done == saves:
        if longest:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, (longest, longest))
        left = operations
    save(self, *arguments)

def operation(event, arguments):
    global left
    if left and event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.truncate"):
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

Checkpoints.save = counted
sys.addaudithook(operation)
main(sys.argv[4:])
'''


def trained(cache, *arguments, kill=None):
    """Runs the command in a process of its own; `kill` says where it ends itself."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    if cache:
        environment |= {"JAX_COMPILATION_CACHE_DIR": str(cache), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    start = ["-m", "train"] if kill is None else ["-c", KILLED, *map(str, kill)]
    ran = subprocess.run([sys.executable, *start, *map(str, arguments)], cwd=ROOT, env=environment, timeout=1200,
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip
    if kill is None:
        assert ran.returncode == 0 and "warning" not in ran.stderr, ran.stderr
    else:
        assert ran.returncode == -(signal.SIGXFSZ if kill[2] else signal.SIGKILL), (kill, ran.returncode, ran.stderr)


def half(out):
    """Checkpoints that are not whole."""
    folder = out / "checkpoints"
    return [path.name for path in folder.iterdir() if not path.name.isdigit()] if folder.exists() else []


def newest(out):
    folder = out / "checkpoints"
    return max((int(path.name) for path in folder.iterdir() if path.name.isdigit()), default=0) if folder.exists() else 0


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
    print(f"ATTNJAX_KILL_SEED={SEED}")  # shown when the test fails
    draw = random.Random(SEED)
    text, cache = tmp_path / "text.txt", tmp_path / "compiled"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 60)
    first = ["run", HYBRID, "--set", *SETTINGS, f"data.path={text}", "--out"]
    whole, out = tmp_path / "whole", tmp_path / "killed"
    trained(cache, *first, whole)

    trained(cache, *first, out, kill=(1, draw.randint(2, 25), 0))
    assert newest(out) == 0 and half(out), "killed in the first save"
    for kill in range(1, KILLS):
        saves = draw.randint(1, SAVES)
        if kill <= IN_A_WRITE:
            trained(cache, "resume", out, kill=(saves, 0, draw.randint(1, BYTES)))
            assert half(out), "killed in a write of a checkpoint"
        else:
            trained(cache, "resume", out, kill=(saves, draw.randint(1, OPERATIONS), 0))
    assert 0 < newest(out) < STEPS
    trained(None, "resume", out)  # compiled anew: the same program, not only the same bits of one

    assert end(out) == end(whole)
    steps = [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(set(steps)) == [n for n in range(1, STEPS + 1) if n % 3 == 0 or n % 50 == 0 or n == STEPS]
    assert len(json.loads((out / "run.json").read_text())["resumed"]) == KILLS
    assert not half(out)
