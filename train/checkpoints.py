"""Checkpoints of a run, written by orbax: a step's folder appears complete or not at all."""

import contextlib
import logging
import os
import pathlib
import re
from typing import Any

import jax
import orbax.checkpoint as ocp
from grain.checkpoint import CheckpointRestore, CheckpointSave

from train.host import differences

FORMAT = 1


class Checkpoints:
    """What a run needs to go on, by step: its state, the position in the data and a few notes.

    Args:
        folder: of all checkpoints; made by the first save.
        keep: how many stay, the newest ones; None opens them for reading only.
    """

    def __init__(self, folder: pathlib.Path, keep: int | None = None):
        self._folder = folder
        # A save is over when it returns (a tenth of a second for a small model), so that an error is of this step.
        # What a killed save has left behind is removed when the next process opens the folder to write.
        self._manager = ocp.CheckpointManager(folder.absolute(), options=ocp.CheckpointManagerOptions(
            max_to_keep=keep, create=keep is not None, cleanup_tmp_directories=keep is not None,
            enable_async_checkpointing=False))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._manager.close()

    @property
    def latest(self) -> int | None:
        """The step of the newest one, None before the first."""
        return self._manager.latest_step()

    def save(self, step: int, state: Any, batches: Any, notes: dict) -> None:
        """Writes one, then removes those beyond `keep`.

        Args:
            step: what it is called.
            state: any tree of arrays, typed keys among them.
            batches: a grain iterator.
            notes: whatever JSON can hold.

        Raises:
            OSError: if it cannot be written. The checkpoints before it are as they were.
        """
        parts = ocp.args.Composite(
            state=ocp.args.StandardSave(state), data=CheckpointSave(batches),
            notes=ocp.args.JsonSave({"format": FORMAT, "state": described(state)} | notes))
        try:
            with quiet():
                self._manager.save(step, args=parts, force=True)
        except Exception as error:  # the storage below reports a full disk as an error of almost any type
            raise OSError(f"the checkpoint of step {step} could not be written into {self._folder}: "
                          f"{reason(error)}") from error

    def notes(self, step: int) -> dict:
        """The notes of one.

        Raises:
            ValueError: if it cannot be read or has another format.
        """
        notes = self._read(step, notes=ocp.args.JsonRestore())["notes"]
        found = notes.get("format") if isinstance(notes, dict) else None
        if found != FORMAT:
            raise ValueError(f"checkpoint {self._folder / str(step)} has format {found}, this version of train reads "
                             f"format {FORMAT}; go on with the version that wrote it")
        return notes

    def restore(self, step: int, like: Any, batches: Any) -> Any:
        """The state of one; moves the iterator to its position.

        Args:
            step: which one.
            like: a tree of `jax.ShapeDtypeStruct` as the state, with the sharding that the arrays get.
            batches: a fresh iterator over the same data; None leaves the data alone.

        Raises:
            ValueError: if it cannot be read, or has other arrays.
        """
        # Before anything is read: orbax would convert a dtype, and stops in the middle at a shape.
        if changed := differences(self.notes(step)["state"], described(like)):
            raise ValueError(f"checkpoint {self._folder / str(step)} holds another state: {'; '.join(changed)}")
        parts: dict[str, Any] = {"state": ocp.args.StandardRestore(like)}
        if batches is not None:
            parts["data"] = CheckpointRestore(batches)
        return self._read(step, **parts)["state"]

    def _read(self, step: int, **parts: Any) -> Any:
        try:
            return self._manager.restore(step, args=ocp.args.Composite(**parts))
        except Exception as error:  # a missing or damaged file is an error of almost any type
            earlier = [n for n in self._manager.all_steps() if n < step]
            way_out = f"step {max(earlier)}" if earlier else "the start"
            raise ValueError(f"checkpoint {self._folder / str(step)} cannot be read ({reason(error)}); remove that "
                             f"folder to resume from {way_out}") from error


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
    """Without the tracebacks that orbax's threads log: the same error is raised, and says more in one line."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
