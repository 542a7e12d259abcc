"""pattern x lengths -> which keys each row of tiles computes, part by part. Integers only; cached by value.

Bands, columns, blocks and the rest are walked in place; combs in the residue classes of their step. The parts
that walks cover are disjoint, so their results merge exactly.
"""

import functools
from typing import NamedTuple

import numpy as np

from attnjax import notebook, tile_sizes
from attnjax.patterns import Pattern, PerHead, Tile
from attnjax.patterns.parts import Part
from attnjax.patterns.regions import FAR, Region
from attnjax.patterns.tiles import Rects
from attnjax.tile_sizes import Heads, Sizes
from attnjax.walks import Local, Problem, States, Walk, cheapest, loop

ONE = Heads(1, 1, 1)
LONGEST = 1 << 24  # a plan keeps a number or two for every sixteen queries


class Plan(NamedTuple):
    """Everything that one call visits, for one head."""

    T: int
    S: int
    q_offset: int
    walks: tuple[Walk, ...]
    pattern: Pattern | PerHead  # that it was made of

    _repr_html_ = notebook.html

    def classes(self, walk: Walk) -> int:
        """In how many residue classes there is a query."""
        return min(walk.step, self.T)

    @property
    def full(self) -> int:
        return sum(self.classes(walk) * walk.full for walk in self.walks)

    @property
    def partial(self) -> int:
        return sum(self.classes(walk) * walk.partial for walk in self.walks)

    @property
    def scores(self) -> int:
        """Scores computed for one head."""
        return sum(self.classes(walk) * walk.scores for walk in self.walks)


@functools.lru_cache(maxsize=256)
def plan(
    pattern: Pattern | PerHead, T: int, S: int, q_offset: int, heads: Heads = ONE, masked: bool = False,
    tile: tuple[int, int] | None = None, sizes: Sizes | None = None,
) -> Plan:  # fmt: skip
    """Splits a pattern into walks and picks tiles for each.

    Args:
        pattern: which keys a query position may look at.
        T, S: number of queries and keys, at least 1.
        q_offset: position of query row 0.
        heads: what multiplies a tile.
        masked: whether a mask array may hide more at run time: then no tile counts as FULL.
        tile: rows and columns of a tile: everything in place, in one loop over tiles of this size.
        sizes: what to try, as `tile_sizes.sizes_for` has it for a device; None: what suits a CPU.

    Returns:
        The plan. A tile that reaches over the keys is never FULL, so padding is always masked.
    """
    if max(T, S) > LONGEST:
        raise ValueError(f"T={T} queries, S={S} keys: a plan is for at most {LONGEST:,} of each; give fewer at a time")
    parts: tuple[Part, ...] = ()
    if tile is None and not isinstance(pattern, PerHead):
        parts = tuple(x for part in pattern.parts() for x in _within_reach(part, T, S, q_offset))
    steps = sorted({1} | {part.step for part in parts})
    walks: list[Walk | None] = []
    for step in steps:
        chosen = tuple(part for part in parts if part.step == step)
        if step > 1:
            problem = _in_classes(chosen, T, S, q_offset, step, masked)
        else:
            problem = _in_place(pattern, chosen, T, S, q_offset, masked, whole=len(steps) == 1)
        if tile is not None:
            walks.append(loop(problem, *tile, (), problem.parts))
        else:
            walks.append(cheapest(problem, heads._replace(batch=heads.batch * min(step, T)), sizes or tile_sizes.CPU))
    return Plan(T, S, q_offset, tuple(walk for walk in walks if walk is not None), pattern)


def _within_reach(part: Part, T: int, S: int, q_offset: int) -> list[Part]:
    """A comb that is wider than the arrays as the one or two diagonals of it inside them: its classes are padding."""
    if part.step <= max(T, S):
        return [part]
    cell, step = part.cell, part.step
    first, end = max(cell.d0, q_offset - S + 1), min(cell.d1, q_offset + T)
    diagonals = range(-(-first // step) * step, end, step)
    return [part._replace(kind="band", cell=cell._replace(d0=d, d1=d + 1), step=1) for d in diagonals]


def _in_place(
    pattern: Pattern | PerHead, chosen: tuple[Part, ...], T: int, S: int, q_offset: int, masked: bool, whole: bool
) -> Problem:
    """Parts in the rows of the call."""
    local = tuple(Local(part, _rows(part.cell, q_offset)) for part in chosen)
    if isinstance(pattern, PerHead):  # what any head may see, in one loop
        everything = Region(-FAR, FAR, -FAR, FAR, -FAR, FAR)
        local = (Local(Part("rest", everything, plain=False), everything),)

    def states_of(some: tuple[Local, ...]) -> States:
        def states(q0: np.ndarray, q1: np.ndarray, k0: np.ndarray, k1: np.ndarray) -> np.ndarray:
            rects = q0 + q_offset, np.minimum(q1, T) + q_offset, k0, np.minimum(k1, S)
            if isinstance(pattern, PerHead) or (whole and some == local):
                found = pattern.tile(*rects)
            else:
                found = pattern.tile_in(tuple(x.part for x in some), *rects)
            return np.where((found == Tile.FULL) & ((q1 > T) | (k1 > S) | masked), Tile.PARTIAL, found)

        return states

    return Problem(1, 0, T, S, local, whole, states_of)


def _rows(cell: Region, q_offset: int) -> Region:
    """A cell of positions in rows of the call."""
    q0, q1, d0, d1 = (_moved(bound, -q_offset) for bound in (cell.q0, cell.q1, cell.d0, cell.d1))
    return cell._replace(q0=q0, q1=q1, d0=d0, d1=d1)


def _in_classes(chosen: tuple[Part, ...], T: int, S: int, q_offset: int, step: int, masked: bool) -> Problem:
    """Combs of one step in the rows of its residue classes: row m of class z is query z + m * step."""
    shift = -q_offset % step
    local = tuple(Local(part, *_class_rows(part, S, q_offset, step, shift, masked)) for part in chosen)

    def states_of(some: tuple[Local, ...]) -> States:
        def states(q0: np.ndarray, q1: np.ndarray, k0: np.ndarray, k1: np.ndarray) -> np.ndarray:
            rects = Rects(*np.broadcast_arrays(q0, q1, k0, k1))
            seen, full = np.zeros(rects.q0.shape, bool), np.zeros(rects.q0.shape, bool)
            for x in some:
                seen |= rects.within(x.outer)[3]
                if x.inner is not None:
                    full |= rects.inside(x.inner)
            return np.where(full, Tile.FULL, np.where(seen, Tile.PARTIAL, Tile.EMPTY))

        return states

    return Problem(step, shift, -(-T // step), -(-(S + shift) // step), local, False, states_of)


def _class_rows(
    part: Part, S: int, q_offset: int, step: int, shift: int, masked: bool
) -> tuple[Region, Region | None]:
    """(outer, inner) of a comb: a row stands for the positions of all classes, `step` in a row."""
    c, last, base = part.cell, step - 1, (q_offset + shift) // step  # rows m and n are base + m - n steps apart
    d0, d1 = (_moved(_up(bound, step), -base) for bound in (c.d0, c.d1))
    q0, q1 = _moved(c.q0, -q_offset), _moved(c.q1, -q_offset)
    k0, k1 = _moved(c.k0, shift), _moved(c.k1, shift)
    outer = Region(_up(_moved(q0, -last), step), _up(q1, step), _up(_moved(k0, -last), step), _up(k1, step), d0, d1)
    if masked or part.earlier or not part.plain:
        return outer, None
    keys = max(_up(k0, step), _up(shift, step)), min(_down(k1, step), (S + shift) // step)  # no padding among them
    return outer, Region(_up(q0, step), _down(q1, step), *keys, d0, d1)


def _moved(bound: int, by: int) -> int:
    return bound if abs(bound) >= FAR else bound + by


def _up(bound: int, step: int) -> int:
    return bound if abs(bound) >= FAR else -(-bound // step)


def _down(bound: int, step: int) -> int:
    return bound if abs(bound) >= FAR else bound // step
