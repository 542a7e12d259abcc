"""Next-byte training on text, from settings to a folder of results."""

import dataclasses
import functools
import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from attnjax import models
from train import baselines, corpus, devices, export, host, loop, optim, places, windows
from train.checkpoints import FORMAT, Checkpoints
from train.config import Settings
from train.journal import METRICS, RECORD, Journal
from train.loss import nats
from train.places import alone, folder, free
from train.sample import sample

BYTES = 256
FILES, FOLDERS = (RECORD, METRICS, "sample.txt", "loss.png"), ("checkpoints", "model")  # that a run leaves


class Since(NamedTuple):
    """Where a run goes on from: the start, or a checkpoint."""

    record: dict | None = None  # what run.json said so far
    step: int = 0
    state: loop.State | None = None
    batches: Any = None
    losses: tuple[float, ...] = ()  # of the steps since the last line of metrics.jsonl
    seconds: float = 0.0


class Plan(NamedTuple):
    """A run that has passed every check and not started."""

    settings: Settings
    model: models.Config
    text: corpus.Corpus
    rate: Any
    mesh: Mesh
    out: pathlib.Path
    since: Since = Since()

    def learner(self):
        """The learner, and the function from a typed key to its first state."""
        return learner_of(self.settings, self.model, self.rate)

    def batches(self):
        """The rows of text from the first step on."""
        s = self.settings
        return windows.drawn(self.text.train, s.data.length, s.data.batch, s.run.seed)


def plan(settings: Settings, name: str, out: pathlib.Path | None = None) -> Plan:
    """Checks all that can be known before anything is computed or written.

    Raises:
        ValueError: for values that do not fit together, and for a folder that already holds something or cannot be
            written into.
    """
    return checked(settings, lambda: folder(name) if out is None else free(out))


def checked(settings: Settings, place, saves: int | None = None) -> Plan:
    """A plan whose settings, text, devices and folder fit together.

    Args:
        place: names the folder.
        saves: checkpoints that the disk must have room for; None means as many as will stay.

    Raises:
        ValueError: as `plan`.
    """
    s = settings
    host.have("safetensors", "matplotlib")
    text = corpus.read(s.data.path)
    if (shortest := min(len(part) for part in text)) <= s.data.length:
        raise ValueError(f"data.length={s.data.length} does not fit into the shorter part of the text, "
                         f"{shortest} bytes; use a smaller length or more text")
    mesh = devices.mesh(s.run.devices, s.data.batch)
    model = model_of(s, mesh.size)
    planned = Plan(s, model, text, rate_of(s), mesh, place())
    state = traced(planned)
    if not windows.honest(model, s.data.length).any():
        raise ValueError(f"with data.length={s.data.length} every byte of a sequence sees its own target; use longer "
                         "sequences or a shorter prefix")
    if saves is None:
        saves = min(s.run.keep, -(-s.optim.steps // s.run.save_every))
    weights, whole = (sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree)) for tree in (state.params, state))
    places.ready(planned.out, saves * whole + weights, FILES, FOLDERS)
    return planned


def model_of(settings: Settings, devices: int = 1) -> models.Config:
    """The model, if it and a batch fit into memory.

    Raises:
        ValueError: if they do not, or `models.Config` refuses a value.
    """
    m, d = settings.model, settings.data
    # Weights, gradients and two moments; a batch leaves at least its logits.
    needed = 4 * 4 * m.weights if m.param_dtype == "float32" else 4 * 2 * m.weights
    needed += 4 * BYTES * d.length * (d.batch // devices)
    if needed > (there := host.memory()):
        raise ValueError(f"model and batch need more than {places.size(needed)} of memory, and there are "
                         f"{places.size(there)}; use a smaller model.num_layers, model.d_model, data.batch or "
                         "data.length")
    return m.build(BYTES)


def traced(planned: Plan) -> loop.State:
    """The shapes of the first state. A step is traced, so that what it cannot do is known now.

    Raises:
        ValueError: if the model refuses its patterns or sizes.
    """
    s = planned.settings
    try:
        learner, first = planned.learner()
        state = jax.eval_shape(first, jax.random.key(0))
        rows = jax.ShapeDtypeStruct((s.data.batch, s.data.length + 1), jnp.uint8)
        weights = jnp.ones(s.data.length)
        jax.eval_shape(lambda state, rows: loop.update(learner, state, windows.batch_of(rows, weights)), state, rows)
    except TypeError as error:
        raise ValueError(f"model: {error}") from None
    return state


def rate_of(settings: Settings):
    """The learning rate by step."""
    o = settings.optim
    return optim.schedule(o.learning_rate, o.warmup, o.steps - 1, o.lowest_rate)


def learner_of(settings: Settings, model: models.Config, rate):
    """The learner, and the function from a typed key to its first state."""
    o = settings.optim
    return loop.prepare(model, optim.adamw(rate, o.weight_decay, o.b2, o.clip))


def first_record(plan: Plan) -> dict:
    """What run.json says from the start."""
    s = plan.settings
    counts = {f"order {n}": baselines.byte_counts(plan.text, n) for n in (1, 2, 3)}
    return {
        "format": FORMAT, "finished": False, "seed": s.run.seed, **host.setup(plan.mesh.size),
        "text": {"bytes": sum(map(len, plan.text)), "sha256": plan.text.digest},
        "settings": dataclasses.asdict(s), "baselines": counts,
    }


def run(plan: Plan) -> int:
    """Trains, judges, samples and writes everything. Returns 0.

    Raises:
        FloatingPointError: if a loss, parameter or moment is not finite; the checkpoints are from before.
        OSError: if the disk is full, or another process trains in the folder.
    """
    s, since = plan.settings, plan.since
    record = since.record or first_record(plan)  # before the folder is made: counting takes its time
    with alone(plan.out):
        tokens = s.data.batch * s.data.length
        with Journal(plan.out, record, s.optim.steps, tokens, since.step, since.seconds) as journal:
            journal.say(f"{plan.out}: layers {plan.model.letters}, " + ", ".join(
                f"{letter} = {pattern}" for letter, pattern in plan.model.legend.items()))
            counts = ", ".join(f"{name} {loss:.3f}" for name, loss in record["baselines"].items())
            journal.say(f"byte counts, nats per byte: {counts}")
            if since.record:
                journal.say(f"goes on from step {since.step} of {s.optim.steps} (checkpoint "
                            f"{plan.out / 'checkpoints' / str(since.step)})" if since.step
                            else "from the start: no checkpoint yet")
            with Checkpoints(plan.out / "checkpoints", s.run.keep) as checkpoints:
                if (checkpoints.latest or 0) != since.step:
                    raise OSError(f"another process went on in {plan.out} to step {checkpoints.latest}; resume it "
                                  "again")
                learner, state, validation = train(plan, journal, checkpoints)
            key = jax.random.fold_in(jax.random.key(s.run.seed), 3)
            prompt = plan.text.validation[: max(1, s.data.length // 2)].tobytes()
            written = sample(learner, state.params, prompt, s.run.sample, s.data.length, key, s.run.temperature)
            journal.say(export.keep(learner.model(state.params), plan.out / "model"))
            journal.finish(validation, prompt + written)
    return 0


def train(plan: Plan, journal: Journal, checkpoints: Checkpoints) -> tuple[loop.Learner, loop.State, float]:
    """All steps that are left. Returns the learner, its last state and the last validation loss."""
    s, rows_of_step = plan.settings, devices.shared(plan.mesh)
    learner, state, batches, history = begin(plan)
    step, evaluate = compiled(plan, learner)
    validation = None
    for n in range(plan.since.step + 1, s.optim.steps + 1):
        state, *result = step(state, jax.device_put(next(batches), rows_of_step))
        history.append(tuple(result))
        log, judge, save = (
            n % every == 0 or n == s.optim.steps for every in (s.run.log_every, s.run.eval_every, s.run.save_every))
        if log or save:
            losses = sound(history, n)
            if log:
                journal.train(n, float(np.mean(losses)), float(plan.rate(n - 1)))
                history = []
        if judge:
            validation = float(evaluate(state.params))
            journal.validation(n, validation)
        journal.flush()
        if save:
            left = [float(loss) for loss, _ in history]
            checkpoints.save(n, state, batches, {
                "settings": dataclasses.asdict(s), "losses": left, "seconds": journal.seconds})
        if judge or save:
            journal.rest()
    if validation is None:  # it was stopped between its last step and its end
        validation = float(evaluate(state.params))
    return learner, state, validation


def begin(plan: Plan):
    """The learner, the state to go on from, the batches that follow and the losses that wait for their line."""
    learner, first = plan.learner()
    if plan.since.state is not None:
        history = [(np.float32(loss), True) for loss in plan.since.losses]
        return learner, plan.since.state, plan.since.batches, history
    first = jax.jit(first, out_shardings=devices.everywhere(plan.mesh))
    return learner, first(jax.random.key(plan.settings.run.seed)), plan.batches(), []


def sound(history: list, n: int) -> list:
    """The losses of the steps up to n.

    Raises:
        FloatingPointError: at the first step whose loss, or anything it left in the state, is not finite.
    """
    history = jax.device_get(history)
    for step, (loss, finite) in enumerate(history, n - len(history) + 1):
        if not np.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss} at step {step}; try a lower optim.learning_rate")
        if not finite:
            raise FloatingPointError(f"step {step} made a parameter or moment infinite or NaN, at a loss of "
                                     f"{loss:.3f}; try a lower optim.learning_rate")
    return [loss for loss, _ in history]


def compiled(plan: Plan, learner: loop.Learner):
    """The two programs of a run, each traced once: one training step, and the loss on the whole validation part."""
    s, copies = plan.settings, devices.everywhere(plan.mesh)
    weights_T = windows.honest(plan.model, s.data.length)
    blocks = windows.every(plan.text.validation, s.data.batch, weights_T)
    blocks = jax.device_put(blocks, devices.shared(plan.mesh, axis=1))

    @functools.partial(jax.jit, out_shardings=copies)
    def step(state, rows):
        state, loss, _ = loop.update(learner, state, windows.batch_of(rows, jnp.asarray(weights_T)))
        return state, loss, loop.finite(state)

    @functools.partial(jax.jit, out_shardings=copies)
    def evaluate(params, blocks):
        model = learner.model(params)

        def block(batch):
            return (nats(model(batch.tokens), batch.targets) * batch.weights).sum(), batch.weights.sum()

        total, count = jax.lax.map(block, blocks)
        return total.sum() / count.sum()

    return step, lambda params: evaluate(params, blocks)
