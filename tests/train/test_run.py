"""A run from settings to its folder, on a small model and a small text."""

import json
import pathlib

import jax
import numpy as np
import pytest

from attnjax import models
from train import baselines, config, devices, loop, optim, run
from train.__main__ import main
from train.sample import sample

HYBRID = pathlib.Path(__file__).parents[2] / "configs" / "hybrid.toml"
SMALL = ["model.d_model=16", "model.num_heads=2", "data.length=16", "data.batch=8", "optim.steps=30",
         "optim.warmup=5", "run.log_every=10", "run.eval_every=20", "run.sample=20", "run.save_every=7"]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the quick brown fox jumps over the lazy dog. " * 60)
    return f"data.path={path}"


def test_folders_are_numbered_and_never_overwritten(tmp_path):
    assert run.folder("hybrid", tmp_path) == tmp_path / "hybrid-1"
    (tmp_path / "hybrid-1").mkdir()
    assert run.folder("hybrid", tmp_path) == tmp_path / "hybrid-2"
    assert run.free(tmp_path / "hybrid-1") == tmp_path / "hybrid-1"
    (tmp_path / "hybrid-1" / "run.json").touch()
    with pytest.raises(ValueError, match="hybrid-1 already holds something; remove it, name another folder"):
        run.free(tmp_path / "hybrid-1")


@pytest.mark.slow
def test_a_run_leaves_everything_behind(tmp_path, text, capsys):
    out = tmp_path / "run"
    assert main(["run", str(HYBRID), "--set", *SMALL, text, "--out", str(out)]) == 0
    assert sorted(p.name for p in out.iterdir()) == [
        "checkpoints", "loss.png", "metrics.jsonl", "model", "run.json", "sample.txt"]
    assert models.load(out / "model").config == config.read(HYBRID, [*SMALL, text]).model.build(256)
    record = json.loads((out / "run.json").read_text())
    settings = config.read(HYBRID, [*SMALL, text])
    assert record["finished"] and record["settings"]["optim"]["steps"] == 30 and record["seed"] == 0
    assert record["versions"]["jax"] == jax.__version__ and record["threads"] and "cpu" in record["device"]
    parts = run.plan(settings, "x", tmp_path / "other").text
    assert record["baselines"] == {f"order {n}": baselines.byte_counts(parts, n) for n in (1, 2, 3)}
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert [line["step"] for line in lines] == [10, 20, 30] and len(losses) == 3
    assert [line["step"] for line in lines if "validation" in line] == [20, 30]
    assert sorted(p.name for p in (out / "checkpoints").iterdir()) == ["28", "30"]
    assert losses[0] > losses[-1] > record["baselines"]["order 3"] and lines[0]["learning_rate"] > 0
    assert len((out / "sample.txt").read_bytes()) == 8 + 20
    said = capsys.readouterr().out
    assert "tokens/s" in said and "left" in said and "byte counts, nats per byte" in said
    assert main(["run", str(HYBRID), "--set", *SMALL, text, "--out", str(out)]) == 2
    assert "already holds something" in capsys.readouterr().err


def test_j05_step_and_evaluation_trace_once_and_judge_every_byte(tmp_path, text, monkeypatch):
    changes = [*SMALL, text, "model.num_layers=1", "model.layout=L", "model.theta=10000.0"]
    plan = run.plan(config.read(HYBRID, changes), "x", tmp_path / "run")
    calls = []
    monkeypatch.setattr(loop.Learner, "model", lambda self, params: calls.append(1) or uniform)
    learner = loop.Learner(None, optim.adamw(plan.rate))
    params = {"w": jax.numpy.ones(2)}
    state = loop.State(params, learner.tx.init(params), jax.numpy.zeros((), int), jax.random.key(0))
    state = jax.device_put(state, devices.everywhere(plan.mesh))
    step, evaluate = run.compiled(plan, learner)
    batches = plan.batches()
    for _ in range(3):
        state, loss, finite = step(state, next(batches))
        assert float(loss) == pytest.approx(np.log(256), rel=4e-6) and finite
        assert float(evaluate(state.params)) == pytest.approx(np.log(256), rel=4e-6)
    assert len(calls) == 2 and int(state.step) == 3


def uniform(tokens, **_):
    return jax.numpy.zeros((*tokens.shape, 256))


class Counting:
    """A model whose next byte is the last one plus one, and which notes what it cannot know: nothing else."""

    def model(self, params):
        return lambda tokens: 1e3 * jax.nn.one_hot((tokens + 1) % 256, 256)


@pytest.mark.parametrize("prompt", [b"a", b"wxyza", b"0123456789a"])
def test_samples_follow_the_last_byte_before_and_after_the_window_is_full(prompt):
    assert sample(Counting(), None, prompt, 12, 5, jax.random.key(0)) == b"bcdefghijklm"


def test_an_empty_prompt_is_an_error():
    with pytest.raises(ValueError, match="the prompt is empty"):
        sample(Counting(), None, b"", 3, 5, jax.random.key(0))


class Torn(Counting):
    """A model that finds the next byte a little likelier than the one after it."""

    def model(self, params):
        return lambda tokens: jax.nn.one_hot((tokens + 1) % 256, 256) * 9.1 + jax.nn.one_hot((tokens + 2) % 256, 256) * 9


@pytest.mark.slow
def test_temperature_0_takes_the_likeliest_byte():
    assert sample(Torn(), None, b"a", 12, 5, jax.random.key(0), temperature=0) == b"bcdefghijklm"
    warm = sample(Torn(), None, b"a", 12, 5, jax.random.key(0), temperature=1.0)
    assert warm != b"bcdefghijklm" and warm == sample(Torn(), None, b"a", 12, 5, jax.random.key(0), temperature=1.0)


@pytest.mark.parametrize("temperature", [-0.5, float("nan"), float("inf")])
def test_temperatures_that_are_none(temperature):
    with pytest.raises(ValueError, match=f"temperature={temperature} must be a number from 0 up"):
        sample(Counting(), None, b"a", 3, 5, jax.random.key(0), temperature)


@pytest.mark.slow
def test_the_hybrid_run_beats_its_baselines(tmp_path):
    out = tmp_path / "run"
    assert main(["run", str(HYBRID), "--out", str(out)]) == 0
    record = json.loads((out / "run.json").read_text())
    assert record["validation"] < 1.5 and record["validation"] < min(record["baselines"].values())
