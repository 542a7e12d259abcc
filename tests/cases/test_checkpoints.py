"""Faults that people reported of other training loops: what a checkpoint forgets, and what it keeps."""

import json
import os
import pathlib
import subprocess
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.train.pairs import HYBRID, bits
from train import config, devices, resume, run, windows
from train.__main__ import main
from train.checkpoints import Checkpoints

pytestmark = pytest.mark.usefixtures("standard_promotion")

ROOT = pathlib.Path(__file__).parents[2]
SMALL = ["model.d_model=8", "model.num_heads=2", "model.num_kv_heads=1", "data.length=8", "data.batch=4",
         "optim.steps=6", "optim.warmup=1", "run.sample=4", "run.devices=1"]


def planned(folder, out, *changes):
    text = folder / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 60)
    return run.plan(config.read(HYBRID, [*SMALL, f"data.path={text}", *changes]), "x", folder / out)


def last_state(plan, step):
    with Checkpoints(plan.out / "checkpoints") as checkpoints:
        return checkpoints.restore(step, resume.shapes(plan.learner()[1], plan.mesh), None)


def metrics(out):
    return [{key: value for key, value in json.loads(line).items() if key != "tokens_per_second"}
            for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_T03_a_resumed_run_drops_what_an_unbroken_one_drops(tmp_path, monkeypatch):
    """Dropout 0.1, 2 layers, 6 steps against 3 + resume 3 in a new process; step 3 is no log or eval step."""
    changes = ["model.dropout_rate=0.1", "model.num_layers=2", "run.log_every=2", "run.eval_every=4", "run.save_every=3"]
    whole, broken = planned(tmp_path, "whole", *changes), planned(tmp_path, "broken", *changes)
    assert run.run(whole) == 0
    save = Checkpoints.save

    def once(self, step, *rest):
        save(self, step, *rest)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", once)
        with pytest.raises(KeyboardInterrupt):
            run.run(broken)
    assert [path.name for path in (broken.out / "checkpoints").iterdir()] == ["3"]
    resumed = subprocess.run([sys.executable, "-W", "error", "-m", "train", "resume", broken.out], cwd=ROOT, text=True,
                             env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, timeout=900)
    assert resumed.returncode == 0 and "warning" not in resumed.stderr, resumed.stderr
    one, two = last_state(whole, 6), last_state(broken, 6)
    assert int(two.step) == 6 and bits(one) == bits(two)
    assert metrics(whole.out) == metrics(broken.out) and [line["step"] for line in metrics(whole.out)] == [2, 4, 6]
    assert (whole.out / "sample.txt").read_bytes() == (broken.out / "sample.txt").read_bytes()
    # The key matters: other masks, other parameters.
    state = last_state(whole, 3)
    step = run.compiled(whole, whole.learner()[0])[0]
    rows = next(whole.batches())
    other = step(state._replace(key=jax.device_put(jax.random.key(1), state.key.sharding)), rows)
    assert float(step(state, rows)[1]) != float(other[1])


@pytest.mark.slow
def test_T04_a_restored_state_is_like_a_fresh_one(tmp_path):
    """Same treedef, shapes, dtypes and weak types; lax.cond takes both; the compiled step does not trace again."""
    plan = planned(tmp_path, "run")
    learner, fresh, batches, _ = run.begin(plan)
    with Checkpoints(plan.out / "checkpoints", keep=1) as checkpoints:
        checkpoints.save(1, fresh, batches, {})
    restored = last_state(plan, 1)
    assert jax.tree.structure(restored) == jax.tree.structure(fresh)
    for a, b in zip(jax.tree.leaves(fresh), jax.tree.leaves(restored), strict=True):
        assert a.aval == b.aval and a.sharding == b.sharding
        assert getattr(a.aval, "weak_type", False) == getattr(b.aval, "weak_type", False)
    kept = jax.jit(lambda flag: jax.lax.cond(flag, lambda: fresh, lambda: restored))(True)
    assert bits(kept) == bits(fresh)

    chex.clear_trace_counter()
    counted = jax.jit(chex.assert_max_traces(lambda state, rows: run.loop.update(
        learner, state, windows.batch_of(rows, jnp.ones(8)))[0], n=1))  # fmt: skip
    rows = jax.device_put(next(batches), devices.shared(plan.mesh))
    assert bits(counted(fresh, rows)) == bits(counted(restored, rows))


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_T05_keys_come_back_as_keys(tmp_path, impl):
    """jax.random.key(7) and a legacy PRNGKey(7): equal bits and equal impl after save and restore."""
    state = {"key": jax.random.key(7, impl=impl), "legacy": jax.random.PRNGKey(7)}
    rows = windows.drawn(np.arange(99, dtype=np.uint8), 4, 2, seed=0)
    with Checkpoints(tmp_path / "checkpoints", keep=1) as checkpoints:
        checkpoints.save(1, state, rows, {})
        like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state)
        found = checkpoints.restore(1, like, None)
    assert jax.random.key_impl(found["key"]) == jax.random.key_impl(state["key"])
    assert found["key"].dtype == state["key"].dtype and found["legacy"].dtype == jnp.uint32
    for name in state:
        assert (jax.random.bits(found[name], (5,)) == jax.random.bits(state[name], (5,))).all()


@pytest.mark.slow
@pytest.mark.parametrize("log_every", [1, 6])
def test_T09_nan_stops_the_run_and_is_never_saved(tmp_path, monkeypatch, capsys, log_every):
    """NaN in one embedding row first used at step 3, save every step, keep 2: the exit names step 3, step 2 is finite."""
    compiled, seen = run.compiled, set()

    def poisoned(plan, learner):
        step, evaluate = compiled(plan, learner)

        def inject(state, rows):
            unseen = sorted(set(rows[:, :-1].flatten().tolist()) - seen)
            seen.update(unseen)
            if int(state.step) == 2:
                params = jax.tree_util.tree_map_with_path(
                    lambda path, x: x.at[unseen[0]].set(jnp.nan) if "'table'" in jax.tree_util.keystr(path) else x,
                    state.params)  # fmt: skip
                state = state._replace(params=params)
            return step(state, rows)

        return inject, evaluate

    monkeypatch.setattr(run, "compiled", poisoned)
    plan = planned(tmp_path, "run")
    text = tmp_path / "text.txt"
    changes = [*SMALL, f"data.path={text}", "run.save_every=1", "run.keep=2", f"run.log_every={log_every}"]
    assert main(["run", str(HYBRID), "--set", *changes, "--out", str(plan.out)]) == 1
    assert "the loss is nan at step 3; try a lower optim.learning_rate" in capsys.readouterr().err
    assert sorted(path.name for path in (plan.out / "checkpoints").iterdir()) == ["1", "2"]
    state = last_state(plan, 2)
    assert int(state.step) == 2
    for leaf in jax.tree.leaves((state.params, state.opt_state)):
        assert np.isfinite(leaf).all()
    assert [line["step"] for line in metrics(plan.out)] == ([1, 2] if log_every == 1 else [])
