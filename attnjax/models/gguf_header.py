"""Reading the header of a GGUF file as what it is: bytes that anyone may have written.

A GGUF file (llama.cpp's format, https://github.com/ggml-org/ggml/blob/master/docs/gguf.md) is a magic number, a
version, two counts, named values, descriptions of the weights, and their bytes. The header is walked here and not by
`gguf.GGUFReader`, which trusts its counts (an array that claims 2**60 elements keeps it busy for ever) and takes
twenty times as long. What it says is compared with the size of the file before memory is taken.
"""

import math
import os
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from attnjax.models.files import MOST_AXES, open_file

MAGIC = b"GGUF"
VERSIONS = (2, 3)
# Vocabularies of a quarter of a million words with their merges take a tenth of this.
HEADER_LIMIT = 256 * 2**20
SCALARS = dict(enumerate("u1 i1 u2 i2 u4 i4 f4 ? str list u8 i8 f8".split()))  # GGUF's number of a type -> NumPy's name
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
    with open_file(path) as file:
        reader = _Reader(file, str(path))
        reader.magic()
        num_weights, num_values = reader.count("weights"), reader.count("values")
        values: dict[str, Any] = {}
        for _ in range(num_values):
            name = reader.text("the name of a value")
            if name in values:
                reader.fail(f"the value {name!r} stands twice")
            values[name] = reader.value(reader.number("u4", f"the type of {name!r}"), repr(name))
        found = [_describe(reader, blocks) for _ in range(num_weights)]
        return Header(values, _placed(reader, found, values.get("general.alignment", 32)))


def _describe(reader: "_Reader", blocks: dict[int, tuple[int, int]]) -> tuple[str, Weight]:
    """One weight's name and description; its start counts from where weights begin."""
    name = reader.text("the name of a weight")
    axes = reader.number("u4", f"the axes of {name!r}")
    if not 1 <= axes <= MOST_AXES:
        reader.fail(f"weight {name!r} has {axes} axes; 1 to {MOST_AXES} are possible")
    shape = tuple(reader.number("u8", f"the shape of {name!r}") for _ in range(axes))[::-1]
    kind = reader.number("u4", f"the kind of {name!r}")
    if kind not in blocks:
        reader.fail(f"weight {name!r} is of the unknown kind {kind}")
    numbers, size = blocks[kind]
    if min(shape) < 1 or shape[-1] % numbers:
        reader.fail(f"weight {name!r} has the shape {shape}; sizes are above 0, the last one a multiple of {numbers}")
    start = reader.number("u8", f"the place of {name!r}")
    return name, Weight(shape, kind, start, math.prod(shape) // numbers * size)


def _placed(reader: "_Reader", found: list[tuple[str, Weight]], alignment: Any) -> dict[str, Weight]:
    """The weights by name; they must follow each other without gaps, up to the end of the file."""
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        reader.fail(f"general.alignment is {alignment!r}; it must be a power of two")
    base, end, weights = _up(reader.position, alignment), 0, {}
    for name, weight in found:
        if name in weights:
            reader.fail(f"weight {name!r} stands twice")
        if weight.start != end:
            reader.fail(f"weight {name!r} starts at byte {weight.start} of the weights, the one before ends at {end}")
        if base + end + weight.size > reader.size:
            reader.fail(f"it is truncated: weight {name!r} {weight.shape} ends at byte {base + end + weight.size}")
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
        self.size = os.fstat(file.fileno()).st_size

    def fail(self, what: str) -> None:
        raise ValueError(f"{self.where} ({self.size} bytes) is damaged or manipulated: {what}")

    def magic(self) -> None:
        if self.take(4, "the magic number") != MAGIC:
            raise ValueError(f"{self.where} is no GGUF file: it does not begin with {MAGIC.decode()}")
        version = self.number("u4", "the version")
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
        dtype = np.dtype(kind).newbyteorder("<")
        data = self.take(count * dtype.itemsize, what)
        if kind == BOOL and not set(data) <= {0, 1}:
            self.fail(f"{what} must be 0 or 1")
        return np.frombuffer(data, dtype)

    def number(self, kind: str, what: str) -> Any:
        return self.numbers(kind, 1, what)[0].item()

    def count(self, what: str) -> int:
        count = self.number("u8", f"the number of {what}")
        self.check_count(count, 8, f"{count} {what}")
        return count

    def check_count(self, count: int, smallest: int, what: str) -> None:
        """That so many things of at least this many bytes can follow at all."""
        if count * smallest > self.size - self.position:
            self.fail(f"{what} cannot fit in the {self.size - self.position} bytes that follow")

    def text(self, what: str) -> str:
        data = self.take(self.number("u8", f"the length of {what}"), what)
        try:
            return data.decode()
        except UnicodeDecodeError:
            self.fail(f"{what} is not UTF-8")
            raise

    def value(self, kind: int, what: str) -> Any:
        name = SCALARS.get(kind)
        if name is None:
            self.fail(f"{what} has the unknown type {kind}")
        if name == STRING:
            return self.text(what)
        return self.array(what) if name == ARRAY else self.number(str(name), what)

    def array(self, what: str) -> Any:
        kind, count = self.number("u4", f"the type in {what}"), self.number("u8", f"the length of {what}")
        name = SCALARS.get(kind)
        if name is None or name == ARRAY:
            self.fail(f"{what} is an array of the unknown type {kind}")
        if name != STRING:
            return self.numbers(str(name), count, what)
        self.check_count(count, 8, f"the {count} texts of {what}")
        return [self.text(what) for _ in range(count)]
