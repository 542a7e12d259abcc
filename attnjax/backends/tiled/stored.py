"""Arrays as the loops read them: 16-bit floats behind integers of the same bits.

A loop takes a small piece of a large array and widens it. XLA for CPUs turns that round for 16-bit floats: it widens
the whole array before the loop, and with one that the loop writes it does so on every pass. Integers it leaves alone.
Other compilers do nothing of the kind, and see through floats better.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax


class Stored(NamedTuple):
    """An array, maybe as integers, and the dtype of its numbers."""

    x: Any
    dtype: Any

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.x.shape

    def floats(self, piece: Any) -> Any:
        """A piece of the array as the numbers that it stands for."""
        return lax.bitcast_convert_type(piece, self.dtype) if piece.dtype != self.dtype else piece


def stored(x: Any, platform: str) -> Stored:
    """The array as loops that are compiled for a platform should read and write it."""
    behind = platform == "cpu" and x.dtype.itemsize == 2
    return Stored(lax.bitcast_convert_type(x, jnp.uint16) if behind else x, x.dtype)
