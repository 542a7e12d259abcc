"""The text: which bytes there are, which train and which judge."""

import functools
import hashlib
import os
import pathlib
import stat
from typing import NamedTuple

import numpy as np

from train.limits import PATH, shown


class Corpus(NamedTuple):
    """Bytes to train on and, behind them, the contiguous last tenth to judge by."""

    train: np.ndarray
    validation: np.ndarray

    @property
    def digest(self) -> str:
        """SHA-256 of all of it: a run goes on only with the text that it began with."""
        return hashlib.sha256(self.train.tobytes() + self.validation.tobytes()).hexdigest()


def split(text: bytes) -> Corpus:
    """Cuts a text: the last tenth is for validation, in one piece so that no neighbour of it is trained on.

    Raises:
        ValueError: if the text is too short to give both parts anything.

    Example:
        >>> [len(part) for part in split(bytes(1000))]
        [900, 100]
    """
    if len(text) < 100:
        raise ValueError(f"the text has {len(text)} bytes; at least 100 are needed to train and to judge")
    data = np.frombuffer(text, np.uint8)
    cut = len(data) - len(data) // 10
    return Corpus(data[:cut], data[cut:])


@functools.cache
def default() -> Corpus:
    """The topics of Python's own help, in every CPython: prose of half a megabyte, no download.

    It differs between versions of Python, so losses on it compare within one version only.
    """
    from pydoc_data.topics import topics

    return split("\n\n".join(topics[name] for name in sorted(topics)).encode())


def read(path: str | None) -> Corpus:
    """The default text, or any UTF-8 file.

    Raises:
        ValueError: if the file is missing or not UTF-8, with what to do.
    """
    if path is None:
        return default()
    name = f"data.path={shown(path, PATH)}"
    if "\0" in path:
        raise ValueError(f"{name} cannot be the path of a file: it holds the byte 0")
    try:
        if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):
            raise ValueError(f"{name} is not a file: a run goes on only with a text that it can read again")
        text = pathlib.Path(path).read_bytes()
        text.decode()
    except OSError as error:
        raise ValueError(f"{name} cannot be read ({error.strerror}); leave it out for the default text") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not UTF-8 (byte {error.start}); convert it, for example with iconv") from error
    return split(text)
