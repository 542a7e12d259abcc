"""A rule split into disjoint parts of a known shape: what a plan picks layouts for.

Kinds: "band" (a range of diagonals), "column" (few keys, visible to all later queries), "comb" (every
step-th diagonal), "block" (a rectangle, or the chunks of a grid) and "rest" (whatever else).
"""

from typing import Any, NamedTuple

import numpy as np

from attnjax.patterns.algebra import Expr, allows
from attnjax.patterns.checks import LARGEST
from attnjax.patterns.leaves import Atom
from attnjax.patterns.regions import FAR, Region, regions, relevant, restrict
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
    atoms, cells = regions(expr)
    return tuple(part for cell in cells if cell.table for part in _split(atoms, cell))


def _split(atoms: tuple[Atom, ...], cell: Region) -> list[Part]:
    used = relevant(cell.table, len(atoms))
    if not used:
        return [Part(_shape(cell), cell)]
    shown = [i for i, answer in enumerate(restrict(cell.table, len(atoms), used)) if answer]
    steps = [n for n, a in enumerate(used) if atoms[a].kind == "step" and atoms[a].size > 1]
    if all(any(i >> n & 1 for n in steps) for i in shown):  # whatever is visible lies on some comb
        taken: list[int] = []
        for n in steps:
            if any(i >> n & 1 and not any(i >> m & 1 for m in taken) for i in shown):
                taken.append(n)
        sizes = [atoms[used[n]].size for n in taken]
        return [Part("comb", cell, size, tuple(sizes[:i]), len(used) == 1) for i, size in enumerate(sizes)]
    block = len(used) == 1 and atoms[used[0]].kind == "block" and shown == [1]
    return [Part("block" if block else "rest", cell, plain=False)]


def _shape(cell: Region) -> str:
    if cell.q1 < FAR and cell.k1 < FAR:
        return "block"
    return "column" if cell.k1 < FAR and cell.d1 == FAR else "band"


def shown_by(expr: Expr, chosen: tuple[Part, ...], q: Any, k: Any) -> Any:
    """Which pairs these parts show, elementwise; of a comb the pairs asked about must lie on it."""
    seen = None
    for part in chosen:
        one = part.bounds(q, k)
        one = (q == q) & (k == k) if one is None else one
        if not part.plain:
            one = one & allows(expr, q, k)
        seen = one if seen is None else seen | one
    return seen


def classify_parts(expr: Expr, chosen: tuple[Part, ...], rects: Rects) -> np.ndarray:
    """Codes of `Tile` for rectangles of positions, looking at these parts alone.

    Exact where one part decides; PARTIAL where only several parts together show all of a rectangle.
    """
    atoms, _ = regions(expr)
    everything = regions(expr).full_table
    some, full = np.zeros(rects.q0.shape, bool), np.zeros(rects.q0.shape, bool)
    for part in chosen:
        cell = part.cell
        some |= may_hold(cell, cell.table, atoms, rects)
        full |= rects.inside(cell) & ~may_hold(cell, everything ^ cell.table, atoms, rects)
    return np.where(full, Tile.FULL, np.where(some, Tile.PARTIAL, Tile.EMPTY)).astype(np.int8)
