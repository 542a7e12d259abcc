"""Checkpoints of a run, written by orbax: a step's folder appears complete or not at all."""

import contextlib
import functools
import hashlib
import inspect
import json
import logging
import os
import pathlib
import re
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from grain.checkpoint import CheckpointRestore, CheckpointSave

from train.host import differences, listed
from train.limits import shown

FORMAT = 1


class Checkpoints:
    """What a run needs to go on, by step: its state, the position in the data and a few notes.

    Args:
        folder: of all checkpoints; made by the first save.
        keep: how many stay, the newest ones; None opens them for reading only.

    Raises:
        ValueError: if they cannot be read.
        OSError: if the folder cannot be made.
    """

    def __init__(self, folder: pathlib.Path, keep: int | None = None):
        self._folder = folder
        # A save is over when it returns (a tenth of a second for a small model), so that an error is of this step.
        # What a killed save has left behind is removed when the next process opens the folder to write.
        try:
            with quiet():
                self._manager = ocp.CheckpointManager(folder.absolute(), options=ocp.CheckpointManagerOptions(
                    max_to_keep=keep, create=keep is not None, cleanup_tmp_directories=keep is not None,
                    enable_async_checkpointing=False))
        except Exception as error:  # a file in place of the folder, say, is an error of almost any type
            kind = ValueError if keep is None else OSError
            raise kind(f"{folder} cannot be read as checkpoints ({reason(error)})") from error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._manager.close()

    @property
    def latest(self) -> int | None:
        """The step of the newest one, None before the first."""
        return self._manager.latest_step()

    def save(self, step: int, state: Any, batches: Any, notes: dict) -> None:
        """Writes one with a digest of all that it holds, then removes those beyond `keep`.

        Args:
            step: what it is called.
            state: any tree of arrays, typed keys among them.
            batches: a grain iterator.
            notes: whatever JSON can hold.

        Raises:
            OSError: if it cannot be written. The checkpoints before it are as they were.
        """
        notes = {"format": FORMAT, "step": step, "state": described(state), "data": batches.get_state()} | notes
        notes["sha256"] = {"notes": digests(step, notes), "state": digests(step, leaves(state))}
        parts = ocp.args.Composite(
            state=ocp.args.StandardSave(state), data=CheckpointSave(batches), notes=ocp.args.JsonSave(notes))
        try:
            with quiet():
                self._manager.save(step, args=parts, force=True)
        except Exception as error:  # the storage below reports a full disk as an error of almost any type
            raise OSError(f"the checkpoint of step {step} could not be written into {self._folder}: "
                          f"{reason(error)}") from error

    def notes(self, step: int) -> dict:
        """The notes of one.

        Raises:
            ValueError: if it cannot be read, has another format, belongs to another step, or is not what was written.
        """
        notes = self._read(step, notes=ocp.args.JsonRestore())["notes"]
        found = notes.get("format") if isinstance(notes, dict) else None
        if type(found) is not int or found != FORMAT:
            raise ValueError(f"checkpoint {self._folder / str(step)} has format {shown(found)}, this version of train "
                             f"reads format {FORMAT}; go on with the version that wrote it")
        if (held := notes.get("step", step)) != step:
            raise self._refused(step, f"holds step {shown(held)}: it was copied or renamed")
        if not isinstance(notes.get("state"), dict):
            raise self._refused(step, "is damaged: its notes do not say what it holds")
        if "sha256" in notes:
            self._compare(step, notes, "notes", {name: notes[name] for name in notes if name != "sha256"})
        return notes

    def restore(self, step: int, like: Any, batches: Any) -> Any:
        """The state of one; moves the iterator to its position.

        A checkpoint without a digest, as versions before wrote them, is restored with a warning.

        Args:
            step: which one.
            like: a tree of `jax.ShapeDtypeStruct` as the state, with the sharding that the arrays get.
            batches: a fresh iterator over the same data; None leaves the data alone.

        Raises:
            ValueError: if it cannot be read, has other arrays, or is not what was written.
        """
        notes = self.notes(step)
        # Before anything is read: orbax would convert a dtype, and stops in the middle at a shape.
        if changed := differences(notes["state"], described(like)):
            raise ValueError(f"checkpoint {self._folder / str(step)} holds another state: {listed(changed)}")
        parts: dict[str, Any] = {"state": ocp.args.StandardRestore(like)}
        if batches is not None:
            parts["data"] = CheckpointRestore(batches)
        state = self._read(step, **parts)["state"]
        if "sha256" not in notes:
            print(f"warning: checkpoint {self._folder / str(step)} has no digest, as an earlier version wrote it: "
                  "whether it is still what was written cannot be known", file=sys.stderr, flush=True)
            return state
        self._compare(step, notes, "state", leaves(state))
        if batches is not None and batches.get_state() != notes["data"]:
            raise self._refused(step, "is not what was written: data changed")
        return state

    def _compare(self, step: int, notes: dict, kind: str, parts: dict) -> None:
        """Raises ValueError for a part whose digest is not the one in the notes."""
        written = notes["sha256"].get(kind) if isinstance(notes["sha256"], dict) else None
        if not isinstance(written, dict):
            raise self._refused(step, "is damaged: its digests are none")
        found = digests(step, parts)
        if wrong := [place for place in written | found if written.get(place) != found.get(place)]:
            raise self._refused(step, f"is not what was written: {listed(wrong, ', ')} changed")

    def _read(self, step: int, **parts: Any) -> Any:
        try:
            for path in (self._folder / str(step)).rglob("*"):
                if not path.is_file() and not path.is_dir():  # opening a pipe would wait forever
                    raise OSError(f"{path.name} is no file")
            with quiet():
                return self._manager.restore(step, args=ocp.args.Composite(**parts))
        except Exception as error:  # a missing or damaged file is an error of almost any type
            raise self._refused(step, f"cannot be read ({reason(error)})") from error

    def _refused(self, step: int, why: str) -> ValueError:
        earlier = [n for n in self._manager.all_steps() if n < step]
        way_out = f"step {max(earlier)}" if earlier else "the start"
        return ValueError(f"checkpoint {self._folder / str(step)} {why}; remove that folder to resume from {way_out}")


def digests(step: int, parts: dict[str, Any]) -> dict[str, str]:
    """SHA-256 of each part, with its name and the step of the checkpoint: bytes, or what JSON can hold."""
    found = {}
    for name, part in parts.items():
        content = part if isinstance(part, bytes) else json.dumps(part, sort_keys=True).encode()
        found[name] = hashlib.sha256(f"{step} {name} ".encode() + content).hexdigest()
    return found


def leaves(tree: Any) -> dict[str, bytes]:
    """Dtype, shape and bytes of every array by its place; a typed key's are those of its data."""
    found = {}
    for path, x in jax.tree_util.tree_leaves_with_path(tree):
        values = jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        found[jax.tree_util.keystr(path)] = f"{x.dtype}{list(x.shape)} ".encode() + np.asarray(values).tobytes()
    return found


def described(tree: Any) -> dict[str, str]:
    """Shape and dtype of every array by its place."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): f"{x.dtype}{list(x.shape)}" for path, x in leaves}


def reason(error: Exception) -> str:
    """What went wrong in a few words: the system's own, where the storage passes its number on."""
    if number := re.search(r"os_error_code='(\d+)'", str(error)):
        return os.strerror(int(number[1]))
    text = (str(error).splitlines() or [""])[0] or type(error).__name__
    return text if len(text) <= 200 else text[:200] + " ..."


@contextlib.contextmanager
def quiet():
    """Without what orbax's threads log and leave behind: the same error is raised, and says more in one line.

    After an error it stays quiet: writes that were still under way answer late, to a loop that is closed by then.
    """
    loggers = [logging.getLogger(name) for name in ("absl", "asyncio")]
    levels, hook = [logger.level for logger in loggers], sys.unraisablehook
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    sys.unraisablehook = functools.partial(_unless_late, hook)
    yield
    sys.unraisablehook = hook
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def _unless_late(hook, unraisable) -> None:
    if str(unraisable.exc_value) != "Event loop is closed" and not inspect.iscoroutine(unraisable.object):
        hook(unraisable)
