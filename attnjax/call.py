"""The one record of arrays and options that backends read."""

import dataclasses
from typing import Any

from attnjax.patterns import Pattern, PerHead
from attnjax.scores import Precision
from attnjax.shapes import Dims


@dataclasses.dataclass(frozen=True)
class Options:
    """The static half of a call: hashable, so equal options share one trace."""

    pattern: Pattern | PerHead
    scale: float
    q_offset: int = 0
    soft_cap: float | None = None
    precision: Precision = None
    tile: tuple[int, int] | None = None  # rows and columns of a tile; None lets the backend choose


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of attention. Arrays may be `jax.ShapeDtypeStruct` where only shapes are asked.

    q [B, T, N, H], k [B, S, K, H], v [B, S, K, h]; mask (bool) and bias (floating) are None or
    [B|1, N|1, T|1, S|1].
    """

    options: Options
    q: Any
    k: Any
    v: Any
    bias: Any = None
    mask: Any = None

    @property
    def dims(self) -> Dims:
        B, T, N, H = self.q.shape
        return Dims(B, T, self.k.shape[1], N, self.k.shape[2], H, self.v.shape[3], True)

    @property
    def scores_needed(self) -> int:
        """Exact number of scores over batch and heads (a mask or bias may hide more at run time)."""
        d, o = self.dims, self.options
        heads = 1 if isinstance(o.pattern, PerHead) else d.N
        return d.B * heads * o.pattern.count(d.T, d.S, o.q_offset)
