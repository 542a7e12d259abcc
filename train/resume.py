"""Going on with a run that was stopped, and sampling from one: everything is read from its folder and checked."""

import itertools
import math
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh

from attnjax.cli.arguments import one_line
from attnjax.show.runs import METRICS, RECORD, is_number, parsed, read_lines, read_text
from train import config, devices, host, loop, run
from train.checkpoints import FORMAT, Checkpoints
from train.limits import BYTES, SEEDS, short, shown, within
from train.sample import check_prompt, sample


def plan(out: pathlib.Path) -> run.Plan:
    """Reads a run that was stopped; nothing in its folder changes.

    Another set-up than the run began with is allowed: a warning names each difference.

    Raises:
        ValueError: if there is no run or it is finished, if a file is missing, damaged or of another format, and if
            settings or text are no longer those that the run began with.
    """
    record, settings = read(out)
    if record["finished"]:
        model = out / "model"
        where = f"is in {model}" if model.is_dir() else f"was in {model}, which is not there any more"
        raise ValueError(f"{out} is finished ({settings.optim.steps} steps): its model {where}; to train longer, "
                         "start a new run with a larger optim.steps")
    planned = run.checked(settings, lambda: out, saves=1)
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
    if not os.path.isdir(out):
        raise ValueError(f"there is no run {short(out, 200)}{beside(out)}")
    path = out / RECORD
    try:
        record = parsed(read_text(path), str(path))
    except FileNotFoundError:
        raise ValueError(f"{path} is missing: {out} is no run, or was stopped before it began; start it anew") from None
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    found = record.get("format") if isinstance(record, dict) else None
    if type(found) is not int or found != FORMAT:
        raise ValueError(f"{path} has format {shown(found)}, this version of train reads format {FORMAT}; go on with "
                         "the version that wrote it")
    check_types(f"{path} is damaged", record, HELD)
    try:
        settings = config.from_table(record["settings"])
        run.model_of(settings)
        run.rate_of(settings)
    except ValueError as error:
        raise ValueError(f"{path} holds settings that this version of train does not read: {one_line(error)}") from None
    return record, settings


def beside(out: pathlib.Path) -> str:
    """Which runs there are in the folder of one that is not there."""
    try:
        there = sorted(path.parent.name for path in out.parent.glob(f"*/{RECORD}"))
    except (OSError, ValueError):  # no such folder can be
        return ""
    return f"; in {short(out.parent, 100)} there are {', '.join(there) or 'none'}"


def is_real(value: Any) -> bool:
    """Whether JSON gave a finite number."""
    return is_number(value) and math.isfinite(value)


# What run.json holds, and the notes of a checkpoint: key -> whether a value can be one of ours.
HELD: dict[str, Callable[[Any], bool]] = {
    "finished": lambda x: type(x) is bool,
    "seed": lambda x: type(x) is int,
    **dict.fromkeys(("device", "processor", "XLA_FLAGS"), lambda x: type(x) is str),
    **dict.fromkeys(("devices", "threads"), lambda x: type(x) is int),
    "versions": lambda x: type(x) is dict and all(type(version) is str for version in x.values()),
    "text": lambda x: type(x) is dict and type(x.get("bytes")) is int and type(x.get("sha256")) is str,
    "settings": lambda x: type(x) is dict,
    "baselines": lambda x: type(x) is dict and all(map(is_real, x.values())),
    "resumed": lambda x: type(x) is list and all(type(one) is dict for one in x),
}
NOTED: dict[str, Callable[[Any], bool]] = {
    "settings": lambda x: type(x) is dict,
    "losses": lambda x: type(x) is list and all(map(is_real, x)),
    "seconds": lambda x: is_real(x) and x >= 0,
}


def check_types(where: str, table: dict, kinds: dict[str, Callable[[Any], bool]]) -> None:
    """Raises ValueError for a key that is missing, or holds what it cannot hold; runs are resumed only later."""
    if missing := [key for key in kinds if key not in table and key != "resumed"]:
        raise ValueError(f"{where}: it lacks {', '.join(missing)}")
    for key, fits in kinds.items():
        if key in table and not fits(table[key]):
            raise ValueError(f"{where}: its {key} cannot be {shown(table[key])}")


def since(planned: run.Plan, record: dict) -> run.Since:
    """The newest checkpoint of a run, or its start."""
    with Checkpoints(planned.out / "checkpoints") as checkpoints:
        step = checkpoints.latest
        if step is None:
            check_lines(planned, 0)
            return run.Since(record)
        batches = planned.batches()
        state, notes = restored(planned.out, record, checkpoints, step, planned.learner()[1], planned.mesh, batches)
        check_lines(planned, step)
        return run.Since(record, step, state, batches, tuple(notes["losses"]), notes["seconds"])


def check_lines(planned: run.Plan, step: int) -> None:
    """Raises ValueError if metrics.jsonl is not what the run has written up to a step."""
    path, s = planned.out / METRICS, planned.settings
    try:
        lines = [line for line in read_lines(path) if line["step"] <= step]
    except FileNotFoundError:
        raise ValueError(f"{path} is missing: bring it back, or start a new run") from None
    for line in lines:
        if wrong := [key for key, value in line.items() if not is_number(value)]:
            raise ValueError(f"{path}: {shown(wrong[0])} of step {line['step']} is no number")
    wanted = [n for n in range(1, step + 1)
              if n == s.optim.steps or n % s.run.log_every == 0 or n % s.run.eval_every == 0]
    there = [line["step"] for line in lines]
    if there != wanted:
        at = next(n for n, pair in enumerate(itertools.zip_longest(there, wanted), 1) if pair[0] != pair[1])
        raise ValueError(f"{path} does not hold the lines up to step {step} (line {at} is not the one that the run "
                         "wrote); bring them back, or start a new run")


def restored(
    out: pathlib.Path, record: dict, checkpoints: Checkpoints, step: int, first: Callable, mesh: Mesh, batches: Any
) -> tuple[loop.State, dict]:
    """The state and the notes of a checkpoint; moves `batches`, unless they are None, to its position.

    Raises:
        ValueError: if it is damaged, or belongs to another step or to other settings.
    """
    where = f"checkpoint {out / 'checkpoints' / str(step)}"
    notes = checkpoints.notes(step)
    check_types(f"{where} is damaged", notes, NOTED)
    check_settings(out, record["settings"], notes["settings"], step)
    state = checkpoints.restore(step, shapes(first, mesh), batches)
    if int(state.step) != step:
        raise ValueError(f"{where} holds step {int(state.step)}: it was copied or renamed; remove that folder")
    return state, notes


def shapes(first: Callable, mesh: Mesh) -> loop.State:
    """The first state without values, a copy on every device."""
    where = devices.everywhere(mesh)
    tree = jax.eval_shape(first, jax.random.key(0))
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where), tree)


def check_settings(out: pathlib.Path, now: dict, then: dict, step: int) -> None:
    """Raises ValueError if run.json no longer says what it said when a checkpoint was written."""
    if changed := host.differences(then, now):
        raise ValueError(f"{out / RECORD} has changed since the checkpoint of step {step}: {host.listed(changed)}; "
                         "change it back, or start a new run with other settings")


def speak(out: pathlib.Path, prompt: bytes, length: int | None, temperature: float | None, seed: int | None) -> bytes:
    """Continues a prompt with the newest checkpoint of a run; None means what the run's settings say.

    Raises:
        ValueError: as `plan`, if there is no checkpoint yet, and for values that `sample` refuses.
    """
    record, settings = read(out)
    length = settings.run.sample if length is None else length
    temperature = settings.run.temperature if temperature is None else temperature
    seed = settings.run.seed if seed is None else seed
    if length < 1:
        raise ValueError(f"--length {length} must be at least 1")
    within("--length", length, 1, BYTES)
    within("--seed", seed, *SEEDS)
    check_prompt(prompt, temperature)
    learner, first = run.learner_of(settings, settings.model.build(run.BYTES), run.rate_of(settings))
    with Checkpoints(out / "checkpoints") as checkpoints:
        if (step := checkpoints.latest) is None:
            raise ValueError(f"{out} has no checkpoint yet: it was stopped before step {settings.run.save_every}; "
                             f"python -m train resume {out} goes on with it")
        state, _ = restored(out, record, checkpoints, step, first, devices.mesh(1, 1), None)
    return sample(learner, state.params, prompt, length, settings.data.length, jax.random.key(seed), temperature)
