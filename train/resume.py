"""Going on with a run that was stopped, and sampling from one: everything is read from its folder and checked."""

import json
import pathlib
import sys
from collections.abc import Callable

import jax
from jax.sharding import Mesh

from train import config, devices, host, loop, run
from train.checkpoints import FORMAT, Checkpoints
from train.journal import METRICS, RECORD, lines_until
from train.sample import sample


def plan(out: pathlib.Path) -> run.Plan:
    """Reads a run that was stopped; nothing in its folder changes.

    Another set-up than the run began with is allowed: a warning names each difference.

    Raises:
        ValueError: if there is no run or it is finished, if a file is missing, damaged or of another format, and if
            settings or text are no longer those that the run began with.
    """
    record, settings = read(out)
    if record["finished"]:
        raise ValueError(f"{out} is finished ({settings.optim.steps} steps): its model is in {out / 'model'}; to train "
                         "longer, start a new run with a larger optim.steps")
    planned = run.checked(settings, lambda: out)
    if (digest := planned.text.digest) != record["text"]["sha256"]:
        where = settings.data.path or f"Python's own help ({record['versions'].get('python')} then)"
        raise ValueError(f"the text has changed since {out} began: {where} had SHA-256 {record['text']['sha256'][:12]} "
                         f"and has {digest[:12]}; bring the old text back or start a new run")
    found = since(planned, record)
    now = host.setup(planned.mesh.size)
    changed = host.differences({name: record.get(name) for name in now}, now)
    for line in changed:
        print(f"warning: {line}: the run goes on, but its numbers will differ from those of a run never stopped",
              file=sys.stderr, flush=True)
    resumed = [*record.get("resumed", []), {"step": found.step, "differences": changed}]
    return planned._replace(since=found._replace(record=record | {"resumed": resumed}))


def read(out: pathlib.Path) -> tuple[dict, config.Settings]:
    """The record of a run and its settings.

    Raises:
        ValueError: if it is missing, damaged or of another format.
    """
    if not out.is_dir():
        there = sorted(path.parent.name for path in out.parent.glob(f"*/{RECORD}"))
        raise ValueError(f"there is no run {out}; in {out.parent} there are {', '.join(there) or 'none'}")
    path = out / RECORD
    try:
        record = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise ValueError(f"{path} is missing: {out} is no run, or was stopped before it began; start it "
                         "again") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged ({error})") from error
    found = record.get("format") if isinstance(record, dict) else None
    if found != FORMAT:
        raise ValueError(f"{path} has format {found}, this version of train reads format {FORMAT}; go on with the "
                         "version that wrote it")
    if missing := [key for key in ("finished", "text", "settings", "versions", "baselines") if key not in record]:
        raise ValueError(f"{path} is damaged: it lacks {', '.join(missing)}")
    try:
        return record, config.from_table(record["settings"])
    except ValueError as error:
        raise ValueError(f"{path} holds settings that this version of train does not read: {error}") from error


def since(planned: run.Plan, record: dict) -> run.Since:
    """The newest checkpoint of a run, or its start."""
    with Checkpoints(planned.out / "checkpoints") as checkpoints:
        step = checkpoints.latest
        if step is None:
            return run.Since(record)
        lines_until(planned.out / METRICS, step)
        notes = checkpoints.notes(step)
        check_settings(planned.out, record["settings"], notes["settings"], step)
        _, first = planned.learner()
        batches = planned.batches()
        state = checkpoints.restore(step, shapes(first, planned.mesh), batches)
        return run.Since(record, step, state, batches, tuple(notes["losses"]), notes["seconds"])


def shapes(first: Callable, mesh: Mesh) -> loop.State:
    """The first state without values, a copy on every device."""
    where = devices.everywhere(mesh)
    tree = jax.eval_shape(first, jax.random.key(0))
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where), tree)


def check_settings(out: pathlib.Path, now: dict, then: dict, step: int) -> None:
    """Raises ValueError if run.json no longer says what it said when a checkpoint was written."""
    if changed := host.differences(then, now):
        raise ValueError(f"{out / RECORD} has changed since the checkpoint of step {step}: {'; '.join(changed)}; "
                         "change it back, or start a new run with other settings")


def speak(out: pathlib.Path, prompt: str, length: int | None, temperature: float | None, seed: int | None) -> bytes:
    """Continues a prompt with the newest checkpoint of a run; None means what the run's settings say.

    Raises:
        ValueError: as `plan`, if there is no checkpoint yet, and for values that `sample` refuses.
    """
    record, settings = read(out)
    length = settings.run.sample if length is None else length
    temperature = settings.run.temperature if temperature is None else temperature
    if length < 1:
        raise ValueError(f"--length {length} must be at least 1")
    learner, first = run.learner_of(settings, settings.model.build(run.BYTES), run.rate_of(settings))
    with Checkpoints(out / "checkpoints") as checkpoints:
        if (step := checkpoints.latest) is None:
            raise ValueError(f"{out} has no checkpoint yet: it was stopped before step {settings.run.save_every}; "
                             f"python -m train resume {out} goes on with it")
        check_settings(out, record["settings"], checkpoints.notes(step)["settings"], step)
        state = checkpoints.restore(step, shapes(first, devices.mesh(1, 1)), None)
    key = jax.random.key(settings.run.seed if seed is None else seed)
    return sample(learner, state.params, prompt.encode(), length, settings.data.length, key, temperature)
