"""A rule split into disjoint parts of a known shape: what a plan picks layouts for.

Kinds: "band" (a range of diagonals), "column" (few keys, visible to all later queries), "comb" (every
step-th diagonal), "block" (a rectangle, or the chunks of a grid) and "rest" (whatever else).
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from attnjax.patterns.algebra import Expr, allows, asking, fold
from attnjax.patterns.checks import LARGEST
from attnjax.patterns.regions import FAR, Answer, Region, regions
from attnjax.patterns.tile import Tile
from attnjax.patterns.tiles import Rects, may_hold


class Part(NamedTuple):
    """The pairs of one cell; of a comb only those whose distance q - k is a multiple of `step`.

    `earlier` are steps of combs that already took their pairs out of the same cell. `plain` says that inside
    these bounds everything is visible; where it is False the rule itself has the last word.
    """

    kind: str
    cell: Region
    step: int = 1
    earlier: tuple[int, ...] = ()
    plain: bool = True

    def bounds(self, q: Any, k: Any) -> Any:
        """Whether pairs lie inside the cell and in no earlier comb, elementwise; None if nothing is left to ask."""
        c, d = self.cell, q - k
        asked = [x >= min(low, LARGEST) for x, low in ((q, c.q0), (k, c.k0), (d, c.d0)) if low > -FAR]
        asked += [x < high for x, high in ((q, c.q1), (k, c.k1), (d, c.d1)) if high <= LARGEST]
        asked += [d % step != 0 for step in self.earlier]
        seen = None
        for one in asked:
            seen = one if seen is None else seen & one
        return seen


def parts(expr: Expr) -> tuple[Part, ...]:
    """Disjoint parts whose union is what the rule shows."""
    return tuple(part for cell in regions(expr).shown for part in _split(cell))


def _split(cell: Region) -> list[Part]:
    atoms, table, _ = cell.answer
    if not atoms:
        return [Part(_shape(cell), cell)]
    steps = _combs(cell.answer)
    if steps:
        return [Part("comb", cell, step, steps[:i], len(atoms) == 1) for i, step in enumerate(steps)]
    block = len(atoms) == 1 and atoms[0].kind == "block" and table == 2  # visible where it holds
    return [Part("block" if block else "rest", cell, plain=False)]


@functools.lru_cache(maxsize=1024)
def _combs(answer: Answer) -> tuple[int, ...]:
    """The steps of combs that whatever is visible lies on; none if they do not hold all of it, or have no table."""
    atoms, table, _ = answer
    if table is None:
        return ()
    left = [i for i in range(1 << len(atoms)) if table >> i & 1]
    taken = []
    for n, atom in enumerate(atoms):
        if atom.kind == "step" and atom.size > 1 and any(i >> n & 1 for i in left):
            taken.append(atom.size)
            left = [i for i in left if not i >> n & 1]
    return () if left else tuple(taken)


def _shape(cell: Region) -> str:
    if cell.q1 < FAR and cell.k1 < FAR:
        return "block"
    return "column" if cell.k1 < FAR and cell.d1 == FAR else "band"


def shown_by(expr: Expr, chosen: tuple[Part, ...], q: Any, k: Any, given: Callable[[Any], Any]) -> Any:
    """Which pairs these parts show, elementwise, given(fn) being asked for fn; of a comb the pairs must lie on it."""
    seen, whole = None, None
    for part in chosen:
        one = part.bounds(q, k)
        one = (q == q) & (k == k) if one is None else one
        if not part.plain and part.cell.answer.table is not None:
            one = one & fold(part.cell.answer.rule, lambda atom: atom.asking(given).holds(q, k))
        elif not part.plain:  # of many atoms: the rule is the same in all cells
            whole = allows(asking(expr, given), q, k) if whole is None else whole
            one = one & whole
        seen = one if seen is None else seen | one
    return seen


def classify_parts(chosen: tuple[Part, ...], rects: Rects) -> np.ndarray:
    """Codes of `Tile` for rectangles of positions, looking at these parts alone.

    Exact where one part decides; PARTIAL where only several parts together show all of a rectangle.
    """
    some, full = np.zeros(rects.q0.shape, bool), np.zeros(rects.q0.shape, bool)
    for part in chosen:
        some |= may_hold(part.cell, True, rects)
        full |= rects.inside(part.cell) & ~may_hold(part.cell, False, rects)
    return np.where(full, Tile.FULL, np.where(some, Tile.PARTIAL, Tile.EMPTY)).astype(np.int8)
