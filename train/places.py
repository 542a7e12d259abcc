"""Folders that results go into: free, and fit for what will be written, before anything is computed."""

import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterable

from train.limits import PATH, shown

# As long as the longest path that the storage of checkpoints makes below the folder of a run.
DEEPEST = pathlib.Path("checkpoints", "x" * 160)


def folder(name: str, root: pathlib.Path = pathlib.Path("runs")) -> pathlib.Path:
    """The first of runs/NAME-1, runs/NAME-2, ... that does not exist."""
    n = 1
    while os.path.lexists(root / f"{name}-{n}"):
        n += 1
    return root / f"{name}-{n}"


def free(out: pathlib.Path) -> pathlib.Path:
    """The folder, if nothing would be overwritten in it."""
    if os.path.lexists(out) and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"--out {out} already holds something; remove it, name another folder, or leave --out out "
                         "for a numbered one")
    return out


@contextlib.contextmanager
def alone(out: pathlib.Path):
    """Keeps other processes from training into a folder at the same time; ends with the process, however it ends."""
    out.mkdir(parents=True, exist_ok=True)
    number = os.open(out, os.O_RDONLY)
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OSError(f"another process is training in {out}; wait for it or stop it") from error
        yield
    finally:
        os.close(number)


def ready(out: pathlib.Path, needed: int, files: Iterable[str] = (), folders: Iterable[str] = ()) -> None:
    """Nothing, if results can be written into a folder, which need not exist; leaves no trace.

    Args:
        out: the folder.
        needed: bytes that will be written at the least.
        files: names in it that will be written or replaced.
        folders: names in it that will be made or written into.

    Raises:
        ValueError: if the path is too long, a file stands in the way, or the disk is full or not writable.
    """
    there = existing(out)
    if not there.is_dir():
        raise ValueError(f"{shown(str(out), PATH)} cannot be a folder: {there} is a file")
    for name in files:
        if (out / name).is_dir():
            raise ValueError(f"{out / name} is a folder, but a file of that name will be written; remove it")
    for name in folders:
        if os.path.lexists(out / name) and not (out / name).is_dir():
            raise ValueError(f"{out / name} is no folder, but one of that name will be written into; remove it")
    try:
        with tempfile.TemporaryDirectory(prefix=".", dir=there):
            pass
    except OSError as error:
        raise ValueError(f"nothing can be written into {there} ({error.strerror}); name another folder, or make "
                         "room") from None
    if (free := shutil.disk_usage(there).free) < needed:
        raise ValueError(f"{out} needs {size(needed)} and the disk has {size(free)} left; make room, or name a folder "
                         "on another one")


def existing(out: pathlib.Path) -> pathlib.Path:
    """The folder itself or the nearest one above it that exists.

    Raises:
        ValueError: if there can be no such path.
    """
    if "\0" in str(out):
        raise ValueError(f"{shown(str(out), PATH)} cannot be a folder: it holds the byte 0")
    try:
        os.lstat(out / DEEPEST)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise ValueError(f"{shown(str(out), PATH)} cannot be a folder ({error.strerror})") from None
    return next(path for path in (out, *out.absolute().parents) if os.path.lexists(path))


def size(count: int) -> str:
    """Bytes in words.

    Example:
        >>> size(3 * 2**20), size(5 * 2**30)
        ('3.0 MiB', '5.0 GiB')
    """
    return f"{count / 2**30:,.1f} GiB" if count >= 2**30 else f"{count / 2**20:,.1f} MiB"
