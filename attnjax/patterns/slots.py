"""What a cache keeps of the keys that went by: the first few, the newest few, or all.

A key is kept while the newest query, or one after it, may look at it. That follows from a rule's cells: keys
that stay visible at any distance are either all keys or the first few (sinks); the others are out of sight
for good once they are further back than the longest distance at which anything is visible.
"""

import dataclasses
import typing
from typing import Any

import numpy as np

from attnjax.patterns.algebra import Expr, Not, combine
from attnjax.patterns.leaves import Band, Chunked
from attnjax.patterns.regions import FAR, regions
from attnjax.patterns.tiles import everywhere, may_hold

LOOK = 4096  # distances looked at one by one for the longest visible one; keeping a few keys too many is safe


@dataclasses.dataclass(frozen=True)
class Slots:
    """The slots of a cache: `sinks` for the first tokens, `ring` for the newest of the others.

    Args:
        kind: "all" (every token has a slot), "ring", "sinks + ring", "sinks" or "chunk" (a ring of which only
            the current chunk is ever visible).
        sinks: the first tokens, kept for good.
        ring: the newest tokens, the latest query's own key among them.

    Example:
        >>> import attnjax as aj
        >>> slots = (aj.Window(3) | aj.Sink(2)).slots(1024)
        >>> slots, slots.size, slots.kept(7)
        (Slots(kind='sinks + ring', sinks=2, ring=3), 5, [0, 1, 4, 5, 6])
    """

    kind: str
    sinks: int
    ring: int

    @property
    def size(self) -> int:
        """How many tokens are held at most."""
        return self.sinks + self.ring

    @property
    def endless(self) -> bool:
        """Whether a stream may go on for ever: no token needs a slot that a needed one holds."""
        return self.kind != "all"

    def kept(self, length: int) -> list[int]:
        """Positions of the tokens that are held after `length` of them."""
        first = max(self.sinks, length - self.ring)
        if self.kind == "chunk" and length:
            first = max(first, (length - 1) // self.ring * self.ring)
        return [*range(min(self.sinks, length)), *range(first, length)]

    @typing.no_type_check
    def at(self, positions: Any) -> Any:
        """The slot of the token at each position >= 0, elementwise; `size` where a token gets none."""
        positions = positions if hasattr(positions, "dtype") else np.asarray(positions)
        first = (positions < self.sinks).astype(positions.dtype)
        ring = self.sinks + (positions - self.sinks) % self.ring if self.ring else 0 * positions + self.size
        return first * positions + (1 - first) * ring


def slots(exprs: tuple[Expr, ...], max_length: int) -> Slots:
    """The fewest slots of this form that hold every key that a query at the end, or a later one, sees by any rule."""
    edges = {cell.k1 for expr in exprs for cell in regions(expr).shown if 0 < cell.k1 < FAR}
    reaches: list[tuple[int, list[Any]]] = [
        (n, [_reach(expr, n) for expr in exprs]) for n in sorted({0, *edges})
    ]
    found = [(n + max(reach), n) for n, reach in reaches if None not in reach]
    size, sinks = min(found, default=(FAR, 0))
    if size > max_length:
        return Slots("all", 0, max_length)
    ring = size - sinks
    kind = "sinks" if sinks and not ring else "sinks + ring" if sinks else "ring"
    if kind == "ring" and ring > 1 and not any(_crosses(expr, ring) for expr in exprs):
        kind = "chunk"
    return Slots(kind, sinks, ring)


def _reach(expr: Expr, first: int) -> int | None:
    """One more than the longest distance at which a key from position `first` on is visible; None: no end."""
    reach = 0
    for cell in sorted(regions(expr).shown, key=lambda cell: -cell.d1):
        low = max(cell.d0, reach)  # shorter distances change nothing any more
        if low >= cell.d1 or not may_hold(cell, True, everywhere(first, low))[0]:
            continue
        high = min(cell.d1, cell.q1 - max(cell.k0, first))
        if high >= FAR // 2:
            return None
        last = max(low, high - LOOK)
        d = np.arange(last, high)
        seen = np.flatnonzero(may_hold(cell, True, everywhere(first, d, d + 1)))
        if len(seen) or last > low:
            reach = last + int(np.max(seen, initial=-1)) + 1
    return reach


def _crosses(expr: Expr, size: int) -> bool:
    """Whether a query may look at an earlier key outside its own chunk of this size."""
    beyond = combine("&", (expr, Band(None, 0), Not(Chunked(size))))
    return any(may_hold(cell, True, everywhere(0))[0] for cell in regions(beyond).shown)
