"""Which rectangles of positions, laid over each other, show the same pairs: told from bounds, no pair is asked.

Two looks. First the bounds of each part are narrowed to those that its pairs in a rectangle attain, seen from the
corner: rectangles that agree in these, and in where combs and blocks lie, are one. Then the few that are left are
compared as runs of keys, query by query: exact for bands, columns and blocks, however parts divide them. Two masks of
combs or other rules that are equal pass for different where different bounds or rules make them.
"""

from typing import Any

import numpy as np

from attnjax.patterns.parts import Part
from attnjax.patterns.tiles import Rects

NONE = np.iinfo(np.int32).max  # a run that is not there


def same_mask(parts: tuple[Part, ...], rects: Rects) -> tuple[np.ndarray, np.ndarray]:
    """Numbers rectangles by their masks, which begin at their corners; what lies past their ends is hidden.

    Args:
        parts: disjoint, all that is shown; none of them asks the function of a `Where`.
        rects: at least one.

    Returns:
        (the number of each rectangle's mask, from 0 as they come; the first rectangle with each).
    """
    looks = [_look(part, rects) for part in parts]
    groups, places = _equal([column for look in looks for column in look], len(rects.q0))
    height = int(np.max(rects.q1 - rects.q0))
    found: dict[Any, int] = {}
    number, first = np.empty(len(groups), np.int64), []
    for group in np.argsort(groups):
        at = groups[group]
        corner = int(rects.q0[at]), int(rects.k0[at])
        mask = _mask([(p, [int(x[at]) for x in look]) for p, look in zip(parts, looks, strict=True)], corner, height)
        if mask not in found:
            first.append(at)
        number[group] = found.setdefault(mask, len(found))
    return number[places], np.array(first)


def _look(part: Part, rects: Rects) -> list[np.ndarray]:
    """Columns of numbers that decide what a part shows of each rectangle; all 0 where it shows nothing.

    First the bounds (q0, q1, k0, k1, d0, d1) that its pairs attain, from the corner; then where combs and blocks lie.
    """
    inside, d0, d1, left = rects.within(part.cell)
    if part.step > 1:  # from the first of its diagonals to the last
        d0, d1 = -(-d0 // part.step) * part.step, (d1 - 1) // part.step * part.step + 1
        left = left & (d0 < d1)
    q0, q1 = np.maximum(inside.q0, inside.k0 + d0), np.minimum(inside.q1, inside.k1 + d1 - 1)
    k0, k1 = np.maximum(inside.k0, inside.q0 - d1 + 1), np.minimum(inside.k1, inside.q1 - d0)
    q, k, d = rects.q0, rects.k0, rects.q0 - rects.k0
    found = [q0 - q, q1 - q, k0 - k, k1 - k, d0 - d, d1 - d]
    atoms = () if part.plain else part.cell.answer.atoms
    for step in (atom.size for atom in atoms if atom.kind == "step"):  # the part's `earlier` ones are among them
        ahead = -d0 % step  # to the first of its diagonals
        found.append(np.where(d0 + ahead < d1, ahead + 1, 0))
    for size in (atom.size for atom in atoms if atom.kind == "block"):
        start = q0 // size * size
        more = start + size < q1  # another block begins in reach
        found += [np.clip(start, k0, k1) - k, np.where(more, start + size - q, 0), np.where(more, d, 0)]
    return [np.where(left, column, 0) for column in found]


def _equal(columns: list[np.ndarray], rows: int) -> tuple[np.ndarray, np.ndarray]:
    """(the first of each set of equal rows, the set of each row)."""
    sets, count = np.zeros(rows, np.int64), 1
    for column in columns:
        low, span = int(column.min()), int(column.max() - column.min()) + 1
        if span * count >= 1 << 62:
            values, sets = np.unique(sets, return_inverse=True)
            count = len(values)
        sets, count = sets * span + (column - low), count * span
    _, groups, places = np.unique(sets, return_index=True, return_inverse=True)
    return groups, places


def _mask(seen: list[tuple[Part, list[int]]], corner: tuple[int, int], height: int) -> Any:
    """A value that is equal only for equal masks."""
    edges: list[np.ndarray] = []
    others = set()
    for part, look in seen:
        if look[1] and _is_run(part, look):
            edges += _run(part, look, corner, height)
        elif look[1]:
            others.add((part.step, None if part.plain else part.cell.answer, *look))
    if not edges:
        return b"", frozenset(others)
    found = np.stack(edges)
    if len(edges) > 2:
        found.sort(axis=0)
        met = (found[1:] == found[:-1]) & (found[1:] != NONE)  # where one run ends and the next begins is no edge
        found[1:][met] = found[:-1][met] = NONE
        found.sort(axis=0)
    return found[: int(np.sum(found != NONE, axis=0).max())].tobytes(), frozenset(others)


def _is_run(part: Part, look: list[int]) -> bool:
    """Whether each query sees one run of keys."""
    c = part.cell
    if part.plain:
        return part.step == 1 or look[5] - look[4] == 1  # a comb of one diagonal
    return part.step == 1 and len(c.answer.atoms) == 1 and c.answer.atoms[0].kind == "block"


def _run(part: Part, look: list[int], corner: tuple[int, int], height: int) -> list[np.ndarray]:
    """The first key and the end of the keys that each query sees, int32 [height], from the corner."""
    q0, q1, k0, k1, d0, d1 = look[:6]
    q = np.arange(height)
    low, high = np.maximum(k0, q - d1 + 1), np.minimum(k1, q - d0 + 1)
    if not part.plain:
        start = corner[0] - corner[1] + q - (corner[0] + q) % part.cell.answer.atoms[0].size
        same = part.cell.answer.table == 2
        low, high = (np.maximum(low, start), high) if same else (low, np.minimum(high, start))
    there = (q >= q0) & (q < q1) & (low < high)
    return [np.where(there, x, NONE).astype(np.int32) for x in (low, high)]
