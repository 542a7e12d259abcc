"""Reading the header of a GGUF file as what it is: bytes that anyone may have written.

A GGUF file (llama.cpp's format, https://github.com/ggml-org/ggml/blob/master/docs/gguf.md) is a magic number, a
version, two counts, named values, descriptions of the weights, and their bytes. The header is walked here and not by
`gguf.GGUFReader`, which trusts its counts (an array that claims 2**60 elements keeps it busy for ever) and takes
twenty times as long. What it says is compared with the size of the file before memory is taken.
"""

import math
import os
import struct
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from attnjax.models.files import MOST_AXES, memory_for, open_file
from attnjax.models.messages import cut, shown

MAGIC = b"GGUF"
VERSIONS = (2, 3)
# Vocabularies of a quarter of a million words with their merges take a tenth of this.
HEADER_LIMIT = 256 * 2**20
# The largest have some dozens, some thousands and half a million; each takes a microsecond or some to read.
MOST = {"values": 2**12, "weights": 2**16, "texts": 2**21}
# GGUF's number of a type -> its code in struct and in NumPy.
SCALARS = dict(enumerate("B b H h I i f ? str list Q q d".split()))
STRING, ARRAY, BOOL = "str", "list", "?"


class Weight(NamedTuple):
    """What a header says about one weight; start counts from the beginning of the file."""

    shape: tuple[int, ...]  # in NumPy's order, the reverse of GGUF's
    kind: int  # GGUF's number of the quantisation
    start: int
    size: int


class Header(NamedTuple):
    """A checked header."""

    values: dict[str, Any]  # int, float, bool, str, a list of str or a NumPy array
    weights: dict[str, Weight]


def read_header(path: Path, blocks: dict[int, tuple[int, int]]) -> Header:
    """The header of a GGUF file.

    Args:
        path: the file.
        blocks: for each kind of quantisation how many numbers a block holds, and in how many bytes.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is no well-formed GGUF file, naming what is wrong.
    """
    with open_file(path) as file, memory_for(f"the values in the header of {path}"):
        reader = _Reader(file, str(path))
        reader.magic()
        num_weights, num_values = reader.count("weights"), reader.count("values")
        values: dict[str, Any] = {}
        for _ in range(num_values):
            name = reader.text("the name of a value")
            if name in values:
                reader.fail(f"the value {shown(name)} stands twice")
            values[name] = reader.value(reader.number("I", f"the type of {shown(name)}"), shown(name))
        found = [_describe(reader, blocks) for _ in range(num_weights)]
        return Header(values, _placed(reader, found, values.get("general.alignment", 32)))


def _describe(reader: "_Reader", blocks: dict[int, tuple[int, int]]) -> tuple[str, Weight]:
    """One weight's name and description; its start counts from where weights begin."""
    name = reader.text("the name of a weight")
    what = shown(name)
    axes = reader.number("I", f"the axes of {what}")
    if not 1 <= axes <= MOST_AXES:
        reader.fail(f"weight {what} has {axes} axes; 1 to {MOST_AXES} are possible")
    shape = tuple(reader.number("Q", f"the shape of {what}") for _ in range(axes))[::-1]
    kind = reader.number("I", f"the kind of {what}")
    if kind not in blocks:
        reader.fail(f"weight {what} is of the unknown kind {kind}")
    numbers, size = blocks[kind]
    if min(shape) < 1 or shape[-1] % numbers:
        reader.fail(
            f"weight {what} has the shape {shown(shape)}; sizes are above 0, the last one a multiple of {numbers}"
        )
    start = reader.number("Q", f"the place of {what}")
    return name, Weight(shape, kind, start, math.prod(shape) // numbers * size)


def _placed(reader: "_Reader", found: list[tuple[str, Weight]], alignment: Any) -> dict[str, Weight]:
    """The weights by name; they must follow each other without gaps, up to the end of the file."""
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        reader.fail(f"general.alignment is {shown(alignment)}; it must be a power of two")
    base, end, weights = _up(reader.position, alignment), 0, {}
    for name, weight in found:
        if name in weights:
            reader.fail(f"weight {shown(name)} stands twice")
        if weight.start != end:
            where = f"starts at byte {weight.start} of the weights, the one before ends at {end}"
            reader.fail(f"weight {shown(name)} {where}")
        if base + end + weight.size > reader.size:
            last = cut(base + end + weight.size, 40)
            reader.fail(f"it is truncated: weight {shown(name)} {shown(weight.shape)} ends at byte {last}")
        weights[name] = weight._replace(start=base + end)
        end = _up(end + weight.size, alignment)
    if base + end < reader.size:
        reader.fail(f"it has {reader.size - base - end} bytes that belong to no weight")
    return weights


def _up(number: int, alignment: int) -> int:
    return -(-number // alignment) * alignment


class _Reader:
    """Takes values from the front of a file, never more than it holds."""

    def __init__(self, file: BinaryIO, where: str):
        self.file, self.where, self.position = file, where, 0
        self.counted: dict[str, int] = {}
        self.size = os.fstat(file.fileno()).st_size

    def fail(self, what: str) -> None:
        raise ValueError(f"{self.where} ({self.size} bytes) is damaged or manipulated: {what}")

    def magic(self) -> None:
        if self.take(4, "the magic number") != MAGIC:
            raise ValueError(f"{self.where} is no GGUF file: it does not begin with {MAGIC.decode()}")
        version = self.number("I", "the version")
        if version not in VERSIONS:
            swapped = version & 0xFFFF == 0
            why = "it is big-endian" if swapped else f"it has version {version}"
            raise ValueError(f"{self.where}: {why}; little-endian files of versions {VERSIONS} can be read")

    def take(self, size: int, what: str) -> bytes:
        left = min(self.size, HEADER_LIMIT) - self.position
        if size > left:
            self.fail(f"{what} takes {size} bytes at byte {self.position}, but {left} are left for the header")
        data = self.file.read(size)
        if len(data) != size:
            self.fail("it became shorter while it was read")
        self.position += size
        return data

    def numbers(self, kind: str, count: int, what: str) -> np.ndarray:
        dtype = np.dtype(f"<{kind}")
        data = self.take(count * dtype.itemsize, what)
        if kind == BOOL and np.frombuffer(data, np.uint8).max(initial=0) > 1:
            self.fail(f"{what} must be 0 or 1")
        return np.frombuffer(data, dtype)

    def number(self, kind: str, what: str) -> Any:
        if kind == BOOL:
            return bool(self.numbers(kind, 1, what)[0])
        return struct.unpack(f"<{kind}", self.take(struct.calcsize(f"<{kind}"), what))[0]

    def count(self, what: str) -> int:
        count = self.number("Q", f"the number of {what}")
        self.check_count(count, what)
        return count

    def check_count(self, count: int, what: str, of: str = "") -> None:
        """That so many can follow at all, of which none takes less than 8 bytes, and that a model may have them."""
        left, named = self.size - self.position, f"the {count} {what} of {of}" if of else f"{count} {what}"
        if count * 8 > left:
            self.fail(f"{named} cannot fit in the {left} bytes that follow")
        self.counted[what] = self.counted.get(what, 0) + count
        if self.counted[what] > MOST[what]:
            self.fail(f"it has {self.counted[what]} {what}; no model has more than {MOST[what]}")

    def text(self, what: str) -> str:
        return self.texts(1, what)[0]

    def texts(self, count: int, what: str) -> list[str]:
        """So many texts, each after its length: the one place where a header has work for each of half a million."""
        found, read, end = [], self.file.read, min(self.size, HEADER_LIMIT)
        for _ in range(count):
            if self.position + 8 > end:
                self.take(8, f"the length of {what}")
            size = int.from_bytes(read(8), "little")
            self.position += 8
            if self.position + size > end:
                self.take(size, what)
            data = read(size)
            self.position += size
            if len(data) != size:
                self.fail("it became shorter while it was read")
            try:
                found.append(data.decode())
            except UnicodeDecodeError:
                self.fail(f"{what} is not UTF-8")
        return found

    def value(self, kind: int, what: str) -> Any:
        name = SCALARS.get(kind)
        if name is None:
            self.fail(f"{what} has the unknown type {kind}")
        if name == STRING:
            return self.text(what)
        return self.array(what) if name == ARRAY else self.number(str(name), what)

    def array(self, what: str) -> Any:
        kind, count = self.number("I", f"the type in {what}"), self.number("Q", f"the length of {what}")
        name = SCALARS.get(kind)
        if name is None or name == ARRAY:
            self.fail(f"{what} is an array of the unknown type {kind}")
        if name != STRING:
            return self.numbers(str(name), count, what)
        self.check_count(count, "texts", what)
        return self.texts(count, what)
