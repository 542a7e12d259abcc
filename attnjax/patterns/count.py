"""Exact number of visible pairs of a rule in a rectangle, without looking at the pairs.

A cell's truth table is turned into a sum over sets of atoms that all hold (a Moebius transform). Step atoms
that hold together are one comb, block atoms that hold together one finer grid, and pairs on a comb inside
grid blocks have a closed form. Cells of many atoms are counted distance by distance. Opaque rules have no such
form: their cells are evaluated in blocks of rows.
"""

import math

import numpy as np

from attnjax.patterns.algebra import Expr, allows
from attnjax.patterns.by_distance import count_by_distance
from attnjax.patterns.lattice import clip, pairs
from attnjax.patterns.leaves import Atom
from attnjax.patterns.regions import FAR, Region, regions

MOST_GRIDS = 3  # block atoms in the sets of a cell: each set walks over its finer grid
BLOCK = 1 << 22  # pairs evaluated at once


def count_pairs(expr: Expr, q0: int, q1: int, k0: int, k1: int) -> int:
    """Visible pairs in [q0, q1) x [k0, k1)."""
    return sum(_count_cell(expr, cell, q0, q1, k0, k1) for cell in regions(expr).shown)


def _count_cell(expr: Expr, cell: Region, q0: int, q1: int, k0: int, k1: int) -> int:
    q0, q1, k0, k1 = max(q0, cell.q0), min(q1, cell.q1), max(k0, cell.k0), min(k1, cell.k1)
    if q0 >= q1 or k0 >= k1:
        return 0
    atoms, table, rule = cell.answer
    if not atoms:
        return pairs(q0, q1, k0, k1, cell.d0, cell.d1)
    if any(atom.kind == "rule" for atom in atoms):
        return _evaluate(expr, cell, q0, q1, k0, k1)
    if table is None or sum(atom.kind == "block" for atom in atoms) > MOST_GRIDS:
        return count_by_distance(rule, q0, q1, k0, k1, max(cell.d0, q0 - k1 + 1), min(cell.d1, q1 - k0))
    total = 0
    for i, weight in enumerate(_moebius([table >> i & 1 for i in range(1 << len(atoms))])):
        if weight:
            held = [atom for n, atom in enumerate(atoms) if i >> n & 1]
            total += weight * _all_hold(held, cell, q0, q1, k0, k1)
    return total


def _moebius(answers: list[int]) -> list[int]:
    """Weights w with answers[i] = sum of w[j] over the subsets j of i."""
    size, bit = len(answers), 1
    while bit < size:
        for i in range(size):
            if i & bit:
                answers[i] -= answers[i ^ bit]
        bit <<= 1
    return answers


def _all_hold(held: list[Atom], cell: Region, q0: int, q1: int, k0: int, k1: int) -> int:
    """Pairs of the cell at which every one of the atoms holds."""
    step = min(math.lcm(*(a.size for a in held if a.kind == "step")), FAR)  # a longer one only meets at distance 0
    sizes = [a.size for a in held if a.kind == "block"]
    if not sizes:
        return pairs(q0, q1, k0, k1, cell.d0, cell.d1, step)
    d0, d1 = max(cell.d0, 1 - min(sizes)), min(cell.d1, min(sizes))  # pairs of a block are closer than its size
    if d0 >= d1 or q0 - k1 + 1 >= d1 or q1 - k0 <= d0:  # no block reaches from one range into the other
        return 0
    # a block holds a pair only if it reaches into both ranges; if these are apart, only if it spans the gap
    low, high = sorted((max(q0, k0), min(q1, k1)))
    grids = [np.arange(low // size, -(-high // size) + 1, dtype=np.int64) * size for size in sizes]
    edges = np.unique(np.concatenate(grids))
    first, last = max(g[0] for g in grids), min(g[-1] for g in grids)
    edges = edges[(edges >= first) & (edges <= last)]
    starts, ends = edges[:-1], edges[1:]
    return int(
        np.sum(
            pairs(
                clip(starts, q0, q1), clip(ends, q0, q1), clip(starts, k0, k1), clip(ends, k0, k1),
                d0, d1, step,
            )
        )
    )


def _evaluate(expr: Expr, cell: Region, q0: int, q1: int, k0: int, k1: int) -> int:
    """Pairs of the cell counted by asking the rule, a block of rows at a time."""
    total, start = 0, q0
    while start < q1:
        # the cell's diagonals bound the columns of a row; a block of rows reaches as many columns more
        width = max(1, min(k1, start + 1 - cell.d0) - max(k0, start - cell.d1 + 1))
        rows = max(1, min(q1 - start, BLOCK // 2 // width, math.isqrt(BLOCK // 2)))
        stop = start + rows
        left, right = max(k0, start - cell.d1 + 1), min(k1, stop - cell.d0)
        if left < right:
            q, k = np.arange(start, stop)[:, None], np.arange(left, right)[None, :]
            inside = (q - k >= cell.d0) & (q - k < cell.d1)
            total += int(np.count_nonzero(np.broadcast_to(allows(expr, q, k), inside.shape) & inside))
        start = stop
    return total
