"""Several devices share a batch: the same numbers as one, or an error with the numbers that do not fit."""

import os
import pathlib
import subprocess
import sys

import pytest

from train import devices

ROOT = pathlib.Path(__file__).parents[2]


class Eight:
    """A host of eight devices."""

    @staticmethod
    def local_devices():
        return list(range(8))


@pytest.mark.parametrize(("count", "batch", "message"), [
    (None, 30, r"data.batch=30 is not a multiple of the 8 devices that share it; use data.batch=32 or run.devices=6"),
    (4, 7, r"data.batch=7 is not a multiple of the 4 devices that share it; use data.batch=8 or run.devices=1"),
    (8, 3, r"data.batch=3 is not a multiple of the 8 devices that share it; use data.batch=8 or run.devices=3"),
    (9, 9, r"run.devices=9, but this host has 8; use at most that many, or leave it out to use all"),
])
def test_what_cannot_be_shared_says_why(monkeypatch, count, batch, message):
    monkeypatch.setattr(devices.jax, "local_devices", Eight.local_devices)
    with pytest.raises(ValueError, match=message):
        devices.mesh(count, batch)


# Runs by itself, because the number of devices is fixed when jax starts. The loss is a mean over real targets: the
# weights differ between devices, so a mean of means would differ in the second digit.
ON_FOUR = '''
import pathlib, re
import jax, jax.numpy as jnp, numpy as np
from jax import monitoring
from train import config, devices, loop, run, windows

assert len(jax.devices()) == 8
compiled = []
monitoring.register_event_duration_secs_listener(
    lambda name, _, **facts: compiled.append(facts.get("fun_name")) if name.endswith("backend_compile_duration") else None)
SMALL = "model.d_model=16 model.num_heads=2 data.length=16 data.batch=8 optim.warmup=3".split()

def trained(count, dropout):
    settings = config.read(pathlib.Path("configs/hybrid.toml"),
                           [*SMALL, f"run.devices={count}", f"model.dropout_rate={dropout}"])
    plan = run.plan(settings, "x")
    learner, state, batches, _ = run.begin(plan)
    step, evaluate = run.compiled(plan, learner)
    compiled.clear()
    losses, sharding = [], devices.shared(plan.mesh)
    for _ in range(5):
        state, loss, finite = step(state, jax.device_put(next(batches), sharding))
        assert finite and all(x.sharding.is_fully_replicated for x in jax.tree.leaves(state))
        losses.append(float(loss))
        if len(losses) == 1:
            first = len(compiled)
    assert len(compiled) == first >= 1, compiled
    rows = jax.device_put(np.arange(136).reshape(8, 17), sharding)
    weights = jnp.asarray(np.arange(8)[:, None] ** 2.0 * np.ones(16), jnp.float32)
    weighted = jax.jit(lambda s, r, w: loop.update(learner, s, windows.batch_of(r, w))[1])
    losses.append(float(weighted(state, rows, jax.device_put(weights, sharding))))
    losses.append(float(evaluate(state.params)))
    text = step.lower(state, rows.astype(np.uint8)).compile().as_text()
    moved = re.findall(r" (all-[a-z]+|reduce-scatter|collective-permute)(?:-start)?\\(", text)
    return plan.mesh.size, np.array(losses), moved

for dropout in (0.0, 0.2):
    (size, one, none), (four, shared, moved) = trained(1, dropout), trained(4, dropout)
    assert (size, four) == (1, 4)
    # float32 sums of a few hundred terms in another order, over five steps: a budget of 100 units in the last place
    assert np.abs(one - shared).max() < 100 * 2.0**-24 * np.abs(one).max(), one - shared
    assert one[0] > one[4] and not none and set(moved) == {"all-reduce"}, moved
    print(dropout, np.abs(one - shared).max())
print("four devices are one")
'''


@pytest.mark.slow
def test_four_of_eight_devices_train_as_one():
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", ON_FOUR], cwd=ROOT, capture_output=True, text=True, timeout=600,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XLA_FLAGS": "--xla_force_host_platform_device_count=8"},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "four devices are one" in ran.stdout
