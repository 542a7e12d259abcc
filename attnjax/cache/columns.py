"""Which slots one query looks into, where a pattern shows it few of the many that are kept.

Strided decode looks at ceil(S / stride) slots, from the query's own residue class on: a static number of
slots from a start that is known at run time only, so one program serves every step.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from attnjax.patterns import Pattern, PerHead
from attnjax.patterns.parts import Part
from attnjax.patterns.regions import FAR
from attnjax.visible import positions


class Reads(NamedTuple):
    """`count` keys that one part of the pattern may show a query: key i stands at first(query) + i * step."""

    part: Part
    count: int
    step: int
    first: Callable[[Any], Any]


@functools.lru_cache(maxsize=256)
def few(pattern: Pattern | PerHead, size: int) -> tuple[Reads, ...] | None:
    """What to read of `size` slots that hold all tokens in order; None where that saves less than half."""
    try:
        whole = pattern.union() if isinstance(pattern, PerHead) else pattern
    except ValueError:  # the heads' patterns are too many for one
        return None
    reads = []
    for part in whole.parts():
        found = _reads(part, size)
        if found is None:
            return None
        reads += [found] if found.count else []
    return tuple(reads) if reads and 2 * sum(one.count for one in reads) <= size else None


def _reads(part: Part, size: int) -> Reads | None:
    """The fewest keys that hold all that this part shows one query; None if that is no better than all."""
    cell, found = part.cell, []
    if part.step > 1:
        step = part.step
        found.append(Reads(part, -(-size // step), step, lambda q: q % step))
    if cell.d1 < FAR:
        last = cell.d1 - 1
        found.append(Reads(part, max(cell.d1 - max(cell.d0, 0), 0), 1, lambda q: q - last))
    if cell.k1 < FAR:
        first = max(cell.k0, 0)
        found.append(Reads(part, max(cell.k1 - first, 0), 1, lambda q: 0 * q + first))
    return min(found, key=lambda one: one.count, default=None)


def slots_of(reads: tuple[Reads, ...], query: Any, size: int) -> tuple[Any, Any]:
    """(slots [B, n], whether each is to be looked at) for queries at positions `query` [B]. Parts are disjoint, so
    no slot is looked at twice."""
    slots, counts = [], []
    q = query[:, None]
    for one in reads:
        at = one.first(q) + one.step * positions(one.count)[None]
        inside = one.part.bounds(q, at)
        fits = (at >= 0) & (at < size) & ((q - at) % one.part.step == 0)
        slots.append(at)
        counts.append(fits if inside is None else fits & inside)
    at, counts = jnp.concatenate(slots, axis=1), jnp.concatenate(counts, axis=1)
    return jnp.clip(at, 0, size - 1), counts


def take(x: Any, slots: Any) -> Any:
    """x [B, S, ...] at slots [B, n]."""
    return jnp.take_along_axis(x, slots.reshape(slots.shape + (1,) * (x.ndim - 2)), axis=1)
