"""Is a rectangle EMPTY, PARTIAL or FULL? Asked of many rectangles at once.

Exact wherever a cell is decided by thresholds, one step atom or one block atom and their negations;
with more atoms in one cell the answer may be PARTIAL where a finer look would promise more.
"""

import math
from typing import Any

import numpy as np

from attnjax.patterns.algebra import Expr, Not, Op
from attnjax.patterns.leaves import Atom
from attnjax.patterns.regions import FAR, Region, regions
from attnjax.patterns.tile import Tile

MAX_ATOMS = 6  # truth tables of more atoms are not walked: PARTIAL is safe
MAX_MULTIPLES = 16  # members of a comb looked at when several combs are taken out of it


class Rects:
    """Half-open rectangles of positions, as int64 arrays of one shape; of them only diagonals in [d0, d1)."""

    def __init__(self, q0, q1, k0, k1, d0: Any = -FAR, d1: Any = FAR):
        self.q0, self.q1, self.k0, self.k1, self.d0, self.d1 = q0, q1, k0, k1, d0, d1

    def within(self, cell: Region) -> tuple["Rects", np.ndarray, np.ndarray, np.ndarray]:
        """The part of each rectangle in the cell's ranges, its range of d, and whether any pair is left."""
        part = Rects(
            np.maximum(self.q0, cell.q0),
            np.minimum(self.q1, cell.q1),
            np.maximum(self.k0, cell.k0),
            np.minimum(self.k1, cell.k1),
        )
        low = np.maximum(np.maximum(cell.d0, self.d0), part.q0 - part.k1 + 1)
        high = np.minimum(np.minimum(cell.d1, self.d1), part.q1 - part.k0)
        return part, low, high, (part.q0 < part.q1) & (part.k0 < part.k1) & (low < high)

    def inside(self, cell: Region) -> np.ndarray:
        """Whether every pair of each rectangle lies in the cell."""
        return (
            (self.q0 >= cell.q0) & (self.q1 <= cell.q1) & (self.k0 >= cell.k0) & (self.k1 <= cell.k1)
            & (self.q0 - self.k1 + 1 >= cell.d0) & (self.q1 - self.k0 <= cell.d1)
        )  # fmt: skip


def everywhere(first: int, d0: Any = -FAR, d1: Any = FAR) -> Rects:
    """The rectangle of all queries and the keys from `first` on, once for each range [d0, d1) of diagonals."""
    d0 = np.atleast_1d(np.asarray(d0, np.int64))
    q0, q1, k0, k1 = (np.full(d0.shape, v, np.int64) for v in (0, FAR, first, FAR))
    return Rects(q0, q1, k0, k1, d0, d1)


def classify(expr: Expr, q0, q1, k0, k1) -> np.ndarray:
    """int8 codes of `Tile`, one for each rectangle (the bounds are int64 arrays of one shape)."""
    rects = Rects(q0, q1, k0, k1)
    some = np.zeros(q0.shape, bool)  # a pair may be visible
    missing = np.zeros(q0.shape, bool)  # a pair may be hidden
    for cell in regions(expr).cells:
        some |= may_hold(cell, True, rects)
        missing |= may_hold(cell, False, rects)
    return np.where(some, np.where(missing, Tile.PARTIAL, Tile.FULL), Tile.EMPTY).astype(np.int8)


def may_hold(cell: Region, shown: bool, rects: Rects) -> np.ndarray:
    """False only where no pair of the rectangle lies in the cell and is shown (or hidden, if not `shown`)."""
    atoms, table, rule = cell.answer
    if not atoms and bool(table) != shown:
        return np.zeros(rects.q0.shape, bool)
    part, low, high, left = rects.within(cell)
    if not atoms or not left.any():
        return left
    if table is None or len(atoms) > MAX_ATOMS:
        single = left & (high - low == 1)
        if single.any():
            left[single] = _may_be(rule, shown, low[single])
        return left
    # atoms are asked about the rectangles that reach into the cell: often few of many
    asked, found = Rects(*(x[left] for x in (part.q0, part.q1, part.k0, part.k1, low, high))), np.zeros_like(left)
    for i in range(1 << len(atoms)):
        if bool(table >> i & 1) == shown:
            found[left] |= _satisfiable(asked, [(atom, bool(i >> n & 1)) for n, atom in enumerate(atoms)])
    return found


def _may_be(rule: Any, shown: bool, d: np.ndarray) -> np.ndarray:
    """May pairs on these single diagonals be shown (or hidden)? There every step is known; a block only at 0."""
    if isinstance(rule, Op):
        join = np.logical_and if (rule.symbol == "&") == shown else np.logical_or
        return join.reduce([_may_be(term, shown, d) for term in rule.terms])
    atom, holds = (rule.leaf, not shown) if isinstance(rule, Not) else (rule, shown)
    if atom.kind == "step":
        return (d % atom.size == 0) == holds
    return (d != 0) | (atom.kind == "rule" or holds)


def _satisfiable(rects: Rects, signed: list[tuple[Atom, bool]]) -> np.ndarray:
    """May a pair satisfy all signed atoms at once? Necessary conditions, exact for one block atom."""
    steps = math.lcm(*(a.size for a, sign in signed if a.kind == "step" and sign))
    never = [a.size for a, sign in signed if a.kind == "step" and not sign]
    blocks = [(a.size, sign) for a, sign in signed if a.kind == "block"]
    if not blocks:
        return _comb(rects.d0, rects.d1, steps, never)
    found = np.ones(rects.q0.shape, bool)
    for size, same in blocks:
        spans = _inside_blocks(rects, size) if same else _across_blocks(rects, size)
        ok = np.zeros(rects.q0.shape, bool)
        for d0, d1 in spans:
            ok |= _comb(np.maximum(d0, rects.d0), np.minimum(d1, rects.d1), steps, never)
        found &= ok
    return found


def _comb(low, high, step: int, never: list[int]) -> np.ndarray:
    """Is there a d in [low, high) that `step` divides and none of `never` does?"""
    if any(step % size == 0 for size in never):
        return np.zeros(low.shape, bool)
    step = min(step, FAR)  # of combs that meet farther away no positions differ by more than 0 steps
    first = -(-low // step) * step
    if not never:
        return first < high
    found = first + MAX_MULTIPLES * step < high  # too many to look at: say that it may be
    for i in range(2 if len(never) == 1 else MAX_MULTIPLES):  # two neighbours are never both multiples
        d = first + i * step
        ok = d < high
        for size in never:
            ok = ok & (d % size != 0)
        found |= ok
    return found


def _inside_blocks(part: Rects, size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Ranges of d over the pairs of one block: of the first, of the last and of an inner block in reach."""
    first = np.maximum(part.q0, part.k0) // size
    last = np.minimum(part.q1 - 1, part.k1 - 1) // size
    spans = []
    for block in (first, np.minimum(first + 1, last), last):  # blocks between the two ends are all alike
        q0, q1 = np.maximum(part.q0, block * size), np.minimum(part.q1, (block + 1) * size)
        k0, k1 = np.maximum(part.k0, block * size), np.minimum(part.k1, (block + 1) * size)
        alive = (first <= last) & (q0 < q1) & (k0 < k1)
        spans.append((np.where(alive, q0 - k1 + 1, 0), np.where(alive, q1 - k0, 0)))
    return spans


def _across_blocks(part: Rects, size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Ranges of d over the pairs of different blocks: those with k in the earlier one, then the later one."""
    low, high = _over_edge(part.q0, part.q1, part.k0, part.k1, size)
    low_after, high_after = _over_edge(part.k0, part.k1, part.q0, part.q1, size)
    return [(low, high), (1 - high_after, 1 - low_after)]


def _over_edge(q0, q1, k0, k1, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Range of d over the pairs k < edge <= q for some multiple `edge` of size.

    All edges share the largest d; the smallest, max(q0, edge) - min(k1 - 1, edge - 1), is convex in the
    edge and flat between q0 and k1, so the multiples next to min(q0, k1) decide.
    """
    first, last = -(-(k0 + 1) // size) * size, (q1 - 1) // size * size
    flat = np.minimum(q0, k1)
    lows = []
    for edge in (-(-flat // size) * size, flat // size * size):
        edge = np.clip(edge, first, np.maximum(first, last))
        lows.append(np.maximum(q0, edge) - np.minimum(k1, edge) + 1)
    alive = first <= last
    return np.where(alive, np.minimum(*lows), 0), np.where(alive, q1 - k0, 0)
