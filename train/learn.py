"""Trains one row of the check and judges it."""

import dataclasses
import pathlib
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from attnjax import models
from train import export, loop, optim
from train.rows import Row

STRIDE = 20  # steps per compiled call
NEARLY = 0.03  # a stride whose own accuracies are this close to the band is worth an evaluation
WARMUP = 50


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a row did.

    Attributes:
        name: of the row.
        seed: it ran with.
        inside: whether every band holds.
        steps: trained.
        seconds: in all, and `compile_seconds` of them before the first step.
        values: every measure of the task by label.
        reasons: one sentence per band that does not hold.
    """

    name: str
    seed: int
    inside: bool
    steps: int
    seconds: float
    compile_seconds: float
    values: dict[str, float]
    reasons: tuple[str, ...]


def config_of(row: Row) -> models.Config:
    """The small decoder of a row: width 64, everything else as its letters say."""
    return models.Config(
        vocab_size=row.task.vocab, d_model=64, num_layers=len(row.layers), num_heads=row.heads,
        num_kv_heads=row.kv_heads, d_ff=row.mlp, layout=row.layers, legend=row.legend,
    )


def learn(
    row: Row,
    notify: Callable[[str, int, int, dict[str, float]], None] = lambda *_: None,
    kept: pathlib.Path | None = None,
) -> Outcome:
    """Trains a row until its bands hold or its steps are used up.

    Once `seen` holds, a row with a `hidden` part trains half as long again, so that what should stay hidden had
    its time to be learned; then both are judged, on sequences drawn from a key that training never uses.

    Args:
        row: what to train.
        kept: folder for the models of rows with `keep`; None keeps none.
        notify: called after every stride with (row name, seed, steps done, accuracies of that stride).
    """
    began = time.perf_counter()
    warmup = min(WARMUP, row.steps // 4)
    tx = optim.adamw(optim.schedule(row.rate, warmup, row.steps - 1))
    learner, state = loop.start(config_of(row), tx, row.seed, row.allow_future)
    task = row.task
    draw, advance, evaluate = programs(row, learner)
    key, batches = loop.data_key(row.seed), jax.jit(task.evaluation)(loop.evaluation_key(row.seed))
    advance = advance.lower(state, draw(key, state.step)).compile()
    compiled = time.perf_counter()

    steps, until, values = 0, None, {}
    while steps < row.steps and (until is None or steps < until):
        state, _, sums = advance(state, draw(key, state.step))
        steps += STRIDE
        now, values = rates(sums, task.labels), {}
        notify(row.name, row.seed, steps, now)
        if until is None and row.seen and all(band.holds(now, NEARLY) for band in row.seen):
            values = rates(evaluate(state.params, batches), task.labels)
            if all(band.holds(values) for band in row.seen):
                until = steps + steps // 2 if row.hidden else steps
    values = values or rates(evaluate(state.params, batches), task.labels)
    reasons = tuple(contradictions(row, values))
    if kept is not None and row.keep:
        export.keep(learner.model(state.params), kept / row.name)
    ended = time.perf_counter()
    return Outcome(row.name, row.seed, not reasons, steps, ended - began, compiled - began, values, reasons)


def programs(row: Row, learner: loop.Learner):
    """What a row runs: (key, step) -> the batches of a stride, a stride on them, and the sums of an evaluation.

    Drawing is a program of its own, and the seed an argument: rows with the same task then share what XLA compiled.
    """
    task = row.task

    @jax.jit
    def draw(key, step):
        return jax.lax.map(lambda i: task.batch(jax.random.fold_in(key, step + i), row.batch), jnp.arange(STRIDE))

    def batch_at(step, batches):
        return jax.tree.map(lambda x: x[step % STRIDE], batches)

    @jax.jit
    def evaluate(params, batches):
        model = learner.model(params)
        return jax.lax.map(lambda batch: task.measure(model, batch), batches).sum(axis=0)

    return draw, loop.stride(learner, batch_at, task.tally, STRIDE), evaluate


def rates(sums, labels: tuple[str, ...]) -> dict[str, float]:
    """Means by label, for the labels that were scored at all."""
    total, count = np.asarray(sums, np.float64)
    return {name: float(t / n) for name, t, n in zip(labels, total, count, strict=True) if n > 0}


def contradictions(row: Row, values: dict[str, float]):
    """Says of each band that does not hold which value left it, and where."""
    for bands, fault in ((row.seen, "not learned"), (row.hidden, "not hidden")):
        for band in bands:
            if not band.holds(values):
                label, value = band.worst(values)
                yield (f"{fault}: {value:.3f} at {label}, allowed [{band.low:.3f}, {band.high:.3f}] "
                       f"for {band.labels}")
