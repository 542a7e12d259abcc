"""Exact counts where many atoms decide: over distances q - k instead of over sets of atoms, of which there are 2**n.

At one distance every step atom is known, so distances that agree on all of them share one rule over blocks alone. Of
that rule a stretch of queries that stay in their blocks is cut at the starts of these blocks into rectangles in which
nothing is left to decide.
"""

from typing import Any

import numpy as np

from attnjax.patterns.algebra import fold, resolve
from attnjax.patterns.leaves import Atom
from attnjax.patterns.regions import atoms_of

AT_ONCE = 1 << 17  # distances, and queries cut into rectangles, that are looked at together
ROWS = 1 << 14  # queries that are asked at one distance together: their places in all blocks stay in the cache
RECTANGLE = 40  # passes over an array that counting the pairs of a rectangle takes, beside one for each atom


def count_by_distance(rule: Any, q0: int, q1: int, k0: int, k1: int, d0: int, d1: int) -> int:
    """Pairs of [q0, q1) x [k0, k1) with d0 <= q - k < d1 where a rule over steps and blocks holds.

    No pair may lie beyond d0 or d1 by the bounds of q and k; a block holds no pair with d < 0.
    """
    total = 0
    for first in range(d0, d1, AT_ONCE):
        for left, d in _alike(rule, np.arange(first, min(first + AT_ONCE, d1))):
            if left is True:
                total += int(np.sum(np.minimum(q1, k1 + d) - np.maximum(q0, k0 + d)))
            elif left is not False:
                total += _in_blocks(left, max(q0, k0 + int(d[0])), min(q1, k1 + int(d[-1])), k0, k1, d)
    return total


def _alike(rule: Any, d: np.ndarray) -> list[tuple[Any, np.ndarray]]:
    """(what the steps leave of the rule, the distances where they leave it), each distance once."""
    steps = [atom for atom in atoms_of(rule) if atom.kind == "step"]
    if not steps:
        return [(rule, d)]
    held = np.stack([d % atom.size == 0 for atom in steps])
    if len(steps) == len(atoms_of(rule)):
        return [(True, d[fold(rule, dict(zip(steps, held, strict=True)).__getitem__)])]
    bits = np.ascontiguousarray(np.packbits(held, axis=0).T)
    _, first, group = np.unique(bits.view(f"V{bits.shape[1]}").ravel(), return_index=True, return_inverse=True)
    order = np.argsort(group, kind="stable")
    ends = np.cumsum(np.bincount(group))[:-1]
    found: dict[Any, list[np.ndarray]] = {}
    for column, same in zip(first, np.split(d[order], ends), strict=True):
        known = dict(zip(steps, held[:, column].tolist(), strict=True))
        left = resolve(rule, lambda atom, known=known: known.get(atom, atom))
        found.setdefault(left, []).append(same)
    return [(left, np.sort(np.concatenate(some))) for left, some in found.items()]


def _in_blocks(rule: Any, q0: int, q1: int, k0: int, k1: int, d: np.ndarray) -> int:
    """Pairs at these distances (sorted) where a rule over blocks holds, by the cheaper of two ways."""
    atoms = list(atoms_of(rule))
    stretches = min(q1 - q0, sum((q1 - q0) // atom.size + 1 for atom in atoms))
    cheaper = (len(atoms) + RECTANGLE) * stretches < len(d) * (q1 - q0) // 4
    way, rows = (_in_rectangles, AT_ONCE) if cheaper else (_one_by_one, ROWS)
    return sum(way(rule, atoms, start, min(start + rows, q1), k0, k1, d) for start in range(q0, q1, rows))


def _one_by_one(rule: Any, atoms: list[Atom], q0: int, q1: int, k0: int, k1: int, d: np.ndarray) -> int:
    """These pairs, one distance after the other."""
    places = {atom: _places(q0, q1, atom.size) for atom in atoms}
    total = 0
    for one in d[np.searchsorted(d, q0 - k1, "right") : np.searchsorted(d, q1 - k0)].tolist():
        low, high = max(q0, k0 + one) - q0, min(q1, k1 + one) - q0
        held = {atom: x[low:high] >= one for atom, x in places.items()}
        total += int(np.count_nonzero(fold(rule, held.__getitem__)))
    return total


def _places(q0: int, q1: int, size: int) -> np.ndarray:
    """q % size of q0 <= q < q1: how many keys of its block come before each query. Copied, as dividing is slow."""
    period = q0 % size + np.arange(min(size, q1 - q0))
    period = np.where(period < size, period, period - size).astype(np.int32)
    return np.tile(period, (q1 - q0) // size + 1)[: q1 - q0]


def _in_rectangles(rule: Any, atoms: list[Atom], q0: int, q1: int, k0: int, k1: int, d: np.ndarray) -> int:
    """These pairs, rectangle by rectangle."""
    grids = [np.arange(q0 // atom.size + 1, (q1 - 1) // atom.size + 1) * atom.size for atom in atoms]
    edges = np.unique(np.concatenate([[q0, q1], *grids]))
    starts, ends = edges[:-1], edges[1:]
    begin = {atom: starts // atom.size * atom.size for atom in atoms}  # of the block that these queries are in
    ends_of_keys = (np.full(starts.shape, k) for k in (k0, k1))
    cuts = np.sort(np.stack([*ends_of_keys, *begin.values()]).clip(k0, k1), axis=0)
    below = np.concatenate([[0], np.cumsum(d)])

    def up_to(u: np.ndarray) -> np.ndarray:
        """Sum of u - distance over the distances below u."""
        n = np.searchsorted(d, u)
        return n * u - below[n]

    total = 0
    for low, high in zip(cuts, cuts[1:], strict=False):
        # pairs on a diagonal of a rectangle: they rise by one, stay, and fall by one
        found = up_to(ends - low) - up_to(starts - low) - up_to(ends - high) + up_to(starts - high)
        held = {atom: x <= low for atom, x in begin.items()}
        total += int(np.sum(found[fold(rule, held.__getitem__)]))
    return total
