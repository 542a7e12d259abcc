"""Next-byte training on text, from settings to a folder of results."""

import dataclasses
import os
import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attnjax import models
from train import baselines, corpus, export, loop, optim, report, windows
from train.config import Settings
from train.journal import Journal
from train.loss import nats
from train.sample import sample

BYTES = 256


class Plan(NamedTuple):
    """A run that has passed every check and not started."""

    settings: Settings
    model: models.Config
    text: corpus.Corpus
    rate: Any
    out: pathlib.Path


def plan(settings: Settings, name: str, out: pathlib.Path | None = None) -> Plan:
    """Checks settings, text and folder before anything is compiled.

    Raises:
        ValueError: for values that do not fit together, and for a folder that already holds something.
    """
    s = settings
    text = corpus.read(s.data.path)
    if (shortest := min(len(part) for part in text)) <= s.data.length:
        raise ValueError(f"data.length={s.data.length} does not fit into the shorter part of the text, "
                         f"{shortest} bytes; use a smaller length or more text")
    rate = optim.schedule(s.optim.learning_rate, s.optim.warmup, s.optim.steps - 1, s.optim.lowest_rate)
    return Plan(s, s.model.build(BYTES), text, rate, folder(name) if out is None else free(out))


def folder(name: str, root: pathlib.Path = pathlib.Path("runs")) -> pathlib.Path:
    """The first of runs/NAME-1, runs/NAME-2, ... that does not exist."""
    n = 1
    while (root / f"{name}-{n}").exists():
        n += 1
    return root / f"{name}-{n}"


def free(out: pathlib.Path) -> pathlib.Path:
    """The folder, if nothing would be overwritten in it."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"--out {out} already holds something; remove it, name another folder, or leave --out out "
                         "for a numbered one")
    return out


def run(plan: Plan) -> int:
    """Trains, judges, samples and writes everything. Returns 0."""
    s = plan.settings
    counts = {f"order {n}": baselines.byte_counts(plan.text, n) for n in (1, 2, 3)}
    record = {
        "seed": s.run.seed, "device": report.device(), "threads": os.cpu_count(), "versions": report.versions(),
        "settings": dataclasses.asdict(s), "baselines": counts, "finished": False,
    }
    journal = Journal(plan.out, record, steps=s.optim.steps, tokens=s.data.batch * s.data.length)
    journal.say(f"{plan.out}: layers {plan.model.letters}, " + ", ".join(
        f"{letter} = {pattern}" for letter, pattern in plan.model.legend.items()))
    journal.say("byte counts, nats per byte: " + ", ".join(f"{k} {v:.3f}" for k, v in counts.items()))
    learner, state, validation = train(plan, journal)
    key = jax.random.fold_in(jax.random.key(s.run.seed), 3)
    prompt = plan.text.validation[: s.data.length // 2].tobytes()
    written = sample(learner, state.params, prompt, s.run.sample, s.data.length, key, s.run.temperature)
    journal.finish(validation, prompt + written)
    journal.say(export.keep(learner.model(state.params), plan.out / "model"))
    return 0


def train(plan: Plan, journal: Journal) -> tuple[loop.Learner, loop.State, float]:
    """All steps. Returns the learner, its last state and the last validation loss."""
    s = plan.settings
    tx = optim.adamw(plan.rate, s.optim.weight_decay, s.optim.b2, s.optim.clip)
    learner, state = loop.start(plan.model, tx, s.run.seed)
    step, evaluate = compiled(plan, learner)
    text, losses, validation = jnp.asarray(plan.text.train), [], float("nan")
    for n in range(1, s.optim.steps + 1):
        state, loss = step(state, text)
        losses.append(loss)
        if n % s.run.log_every == 0 or n == s.optim.steps:
            mean = float(np.mean(jax.device_get(losses)))
            if not np.isfinite(mean):
                raise FloatingPointError(f"the loss is {mean} at step {n}; try a lower optim.learning_rate")
            journal.train(n, mean, float(plan.rate(n - 1)))
            losses = []
        if n % s.run.eval_every == 0 or n == s.optim.steps:
            validation = float(evaluate(state.params))
            journal.validation(n, validation)
    return learner, state, validation


def compiled(plan: Plan, learner: loop.Learner):
    """The two programs of a run, each traced once: one training step, and the loss on the whole validation part."""
    s = plan.settings
    weights_T = windows.honest(plan.model, s.data.length)
    blocks = windows.every(plan.text.validation, s.data.batch, weights_T)

    @jax.jit
    def step(state, text):
        key = loop.batch_key(s.run.seed, state.step)
        state, loss, _ = loop.update(learner, state, windows.draw(text, key, s.data.batch, jnp.asarray(weights_T)))
        return state, loss

    @jax.jit
    def evaluate(params):
        model = learner.model(params)

        def block(batch):
            return (nats(model(batch.tokens), batch.targets) * batch.weights).sum(), batch.weights.sum()

        total, count = jax.lax.map(block, blocks)
        return total.sum() / count.sum()

    return step, evaluate
