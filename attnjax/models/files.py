"""Reading the two files of a saved model as what they are: bytes that anyone may have written.

Whatever they hold, the answer is their content or a ValueError that names the file and the place. Sizes
are compared before anything is allocated, and nothing is unpickled or executed.

A safetensors file is 8 bytes of header length (little endian), a JSON header that gives each weight a
dtype, a shape and a range of bytes, and the bytes. It is read here and not by the safetensors package, which
hands out no bfloat16 as NumPy and would have to read the file a second time for its checksum.
"""

import contextlib
import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attnjax.models.messages import cut, shown

DTYPES = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(jnp.bfloat16),
}
# A published file may also hold these, as quantised parts that nothing here reads: enough is known to check sizes.
OTHER_DTYPES = {
    "F8_E4M3": np.dtype(jnp.float8_e4m3fn),
    "F8_E5M2": np.dtype(jnp.float8_e5m2),
    "F8_E8M0": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
} | {f"{kind}{8 * size}": np.dtype(f"{kind.lower()}{size}") for kind in "IU" for size in (1, 2, 4, 8)}
# A hundred thousand weights fit; parsing what fits takes a few hundred MB at worst.
HEADER_LIMIT = 16 * 2**20
CONFIG_LIMIT = 2**20
LARGE_NUMBER = re.compile(rb"\d{21}|\d[eE]\+?\d{3}")  # or what looks like one inside a text
MOST_AXES = 8  # a product of a million sizes would take hours


class Entry(NamedTuple):
    """What a header says about one weight; start and stop count from the end of the header."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    start: int
    stop: int


def open_file(path: Path) -> BinaryIO:
    """A regular file open for reading: a pipe or a device could block or never end."""
    try:
        # O_NONBLOCK, because opening a pipe waits for its other end.
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except (FileNotFoundError, PermissionError):
        raise
    except OSError as fault:
        raise ValueError(f"{path} cannot be read: {fault.strerror}") from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise ValueError(f"{path} is not a regular file")
    return os.fdopen(number, "rb")


@contextlib.contextmanager
def memory_for(what: str) -> Iterator[None]:
    """Inside the block memory is taken for `what`; a ValueError names it if there is not enough."""
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as fault:
        if not isinstance(fault, MemoryError) and "RESOURCE_EXHAUSTED" not in str(fault):
            raise
        raise ValueError(f"{what} do not fit in memory: {cut(fault) or 'none is left'}") from None


def read_json(path: Path, limit: int = CONFIG_LIMIT) -> dict[str, Any]:
    """The JSON object that a small file holds."""
    with open_file(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"{path} is larger than {limit} bytes; no config is")
    return parse_json(data, str(path))


def parse_json(data: bytes, where: str) -> dict[str, Any]:
    """A JSON object, strictly: UTF-8, no key twice, no NaN or infinity, no endless int or nesting."""
    # A call for each number takes long for millions of them, and is only needed where one can be too large.
    numbers: dict[str, Any] = dict(parse_float=_finite, parse_int=_short) if LARGE_NUMBER.search(data) else {}
    try:
        found = json.loads(data.decode(), parse_constant=_refuse, object_pairs_hook=_each_key_once, **numbers)
    except RecursionError:
        raise ValueError(f"{where} is nested too deeply") from None
    except ValueError as fault:
        raise ValueError(f"{where} is not valid JSON: {cut(fault)}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{where} holds a JSON {type(found).__name__}; it must be an object {{...}}")
    return found


def _refuse(word: str) -> float:
    raise ValueError(f"{cut(word, 40)} is not a number")


def _finite(text: str) -> float:
    return float(text) if math.isfinite(float(text)) else _refuse(text)


def _short(text: str) -> int:
    if len(text) > 20:
        raise ValueError(f"{text[:20]}... is larger than any size")
    return int(text)


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the key {shown(twice)} stands twice")
    return found


class WeightsFile:
    """A safetensors file whose header has been read and checked; `read` gives the weights, `read_one` one of them.

    Args:
        path: the file. Kept open until the `with` block ends.
        dtypes: the dtypes that it may hold.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is no well-formed safetensors file of weights of these dtypes.
    """

    def __init__(self, path: Path, dtypes: Mapping[str, np.dtype] = DTYPES):
        self.path, self.file, self.dtypes = path, open_file(path), dtypes
        try:
            self.prefix = self._read_prefix()
            self.num_bytes = os.fstat(self.file.fileno()).st_size - len(self.prefix)
            self.entries = self._entries(parse_json(self.prefix[8:], f"the header of {path}"))
        except BaseException:
            self.file.close()
            raise

    def __enter__(self) -> "WeightsFile":
        return self

    def __exit__(self, *fault: object) -> None:
        self.file.close()

    def read(self) -> tuple[dict[str, np.ndarray], str]:
        """Every weight by name, and the SHA-256 of the very bytes that they were made from."""
        digest, weights = hashlib.sha256(self.prefix), {}
        self.file.seek(len(self.prefix))
        for entry in self.entries:  # in the order of the file, without gaps
            data = self._bytes(entry)
            digest.update(data)
            weights[entry.name] = _array(entry, data)
        return weights, digest.hexdigest()

    def read_one(self, entry: Entry) -> np.ndarray:
        """One weight.

        Raises:
            ValueError: if it is not floating.
        """
        if entry.dtype not in DTYPES.values():
            raise ValueError(
                f"{self.path}: weight {shown(entry.name)} is {entry.dtype}, so it is quantised or no weight; only "
                f"{', '.join(DTYPES)} are read"
            )
        self.file.seek(len(self.prefix) + entry.start)
        return _array(entry, self._bytes(entry))

    def _bytes(self, entry: Entry) -> bytes:
        size = entry.stop - entry.start
        with memory_for(f"{self.path}: the {size} bytes of {shown(entry.name)}"):
            data = self.file.read(size)
        if len(data) != size:
            raise ValueError(f"{self.path} became shorter while it was read")
        return data

    def _read_prefix(self) -> bytes:
        size = os.fstat(self.file.fileno()).st_size
        length = self.file.read(8)
        header = int.from_bytes(length, "little")
        if len(length) < 8 or header > size - 8:
            raise ValueError(
                f"{self.path} is truncated or no safetensors file: it has {size} bytes, and its first 8 "
                f"announce a header of {header}"
            )
        if header > HEADER_LIMIT:
            raise ValueError(f"{self.path} announces a header of {header} bytes; the limit is {HEADER_LIMIT}")
        return length + self.file.read(header)

    def _entries(self, header: dict[str, Any]) -> list[Entry]:
        metadata = header.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
            raise ValueError(f"{self.path}: __metadata__ must map names to text")
        entries = sorted((self._entry(*item) for item in header.items()), key=lambda entry: entry[3:])
        end = 0
        for entry in entries:
            if entry.start != end:
                how = "overlaps the weight before it" if entry.start < end else "leaves a gap before it"
                where = f"it starts at {entry.start}, not {end}"
                raise ValueError(f"{self.path}: weight {shown(entry.name)} {how}: {where}")
            end = entry.stop
        if end != self.num_bytes:
            what = "is truncated" if end > self.num_bytes else "has bytes that belong to no weight"
            raise ValueError(f"{self.path} {what}: its weights end at byte {end} of {self.num_bytes}")
        return entries

    def _entry(self, name: str, found: Any) -> Entry:
        if not isinstance(found, dict) or found.keys() != {"dtype", "shape", "data_offsets"}:
            raise self._fault(name, "must have exactly dtype, shape and data_offsets")
        dtype, shape, offsets = found["dtype"], found["shape"], found["data_offsets"]
        if not isinstance(dtype, str) or dtype not in self.dtypes:
            raise self._fault(name, f"has dtype {shown(dtype)}; it must be one of {', '.join(self.dtypes)}")
        if not _sizes(shape, MOST_AXES):
            raise self._fault(name, f"has no valid shape: at most {MOST_AXES} ints of at least 0")
        if not _sizes(offsets, 2) or len(offsets) != 2 or offsets[0] > offsets[1]:
            raise self._fault(name, "has no valid data_offsets: two ints, 0 <= start <= stop")
        start, stop = offsets
        needed = math.prod(shape) * self.dtypes[dtype].itemsize
        if needed != stop - start:
            takes = f"{dtype} of shape {shown(tuple(shape))} takes {cut(needed, 40)}"
            raise self._fault(name, f"has {stop - start} bytes, but {takes}")
        return Entry(name, self.dtypes[dtype], tuple(shape), start, stop)

    def _fault(self, name: str, what: str) -> ValueError:
        return ValueError(f"{self.path}: weight {shown(name)} {what}")


def _array(entry: Entry, data: bytes) -> np.ndarray:
    array = np.frombuffer(data, entry.dtype.newbyteorder("<"))  # as in the file, whatever this machine has
    return array.astype(entry.dtype, copy=False).reshape(entry.shape)


def _sizes(found: Any, most: int) -> bool:
    return isinstance(found, list) and len(found) <= most and all(type(size) is int and size >= 0 for size in found)
