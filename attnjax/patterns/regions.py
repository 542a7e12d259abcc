"""A rule cut into disjoint regions in which only atoms are left to decide.

The thresholds of all leaves cut the plane of (q, k) into cells: a range of q, a range of k and a range of
d = q - k. Inside a cell each leaf is True, False or one atom, so the whole rule is a truth table over the
atoms. Exact counts and tile states follow from cells in closed form, and so do the parts of a plan.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

from attnjax.patterns.algebra import Expr, Not, leaves
from attnjax.patterns.leaves import Atom, Corner, Leaf

FAR = 1 << 42  # stands for infinity: beyond any position, small enough that sums fit in int64


class Region(NamedTuple):
    """A cell: q0 <= q < q1, k0 <= k < k1, d0 <= q - k < d1, and the truth table left in it.

    Bit i of `table` is the answer where exactly the atoms of the set bits of i hold.
    """

    q0: int
    q1: int
    k0: int
    k1: int
    d0: int
    d1: int
    table: int


class Regions(NamedTuple):
    """All cells of a rule (the hidden ones too: together they tile the plane), and their atoms."""

    atoms: tuple[Atom, ...]
    cells: tuple[Region, ...]

    @property
    def full_table(self) -> int:
        return (1 << (1 << len(self.atoms))) - 1


@functools.lru_cache(maxsize=1024)
def regions(expr: Expr) -> Regions:
    """The cells of a rule, neighbours with the same answer merged."""
    found = list(leaves(expr))
    atoms = tuple(dict.fromkeys(a for a in (leaf.atom() for leaf in found) if a is not None))
    full = (1 << (1 << len(atoms))) - 1
    tables = {atom: _table(i, len(atoms)) for i, atom in enumerate(atoms)}
    cuts = [leaf.cuts() for leaf in found]
    q_edges = _edges(v for c in cuts for v in c.q)
    k_edges = _edges(v for c in cuts for v in c.k)
    d_edges = _edges(v for c in cuts for v in c.d)

    def answer(node: Expr, corner: Corner) -> int:
        if isinstance(node, Not):
            return full ^ answer(node.leaf, corner)
        if isinstance(node, Leaf):
            value = node.at(corner)
            return tables[value] if isinstance(value, Atom) else full * value
        values = [answer(term, corner) for term in node.terms]
        return functools.reduce(int.__and__ if node.symbol == "&" else int.__or__, values)

    def diagonals(q: int, k: int) -> tuple[tuple[int, int, int], ...]:
        return _runs((d0, d1, answer(expr, Corner(d0, k, q))) for d0, d1 in zip(d_edges, d_edges[1:], strict=False))

    def columns(q: int) -> tuple[tuple[int, int, tuple], ...]:
        return _runs((k0, k1, diagonals(q, k0)) for k0, k1 in zip(k_edges, k_edges[1:], strict=False))

    rows = _runs((q0, q1, columns(q0)) for q0, q1 in zip(q_edges, q_edges[1:], strict=False))
    cells = [Region(q0, q1, k0, k1, d0, d1, table) for q0, q1, cols in rows for k0, k1, diags in cols
             for d0, d1, table in diags]
    return Regions(atoms, tuple(cells))


def _edges(values) -> list[int]:
    return [-FAR, *sorted(set(values)), FAR]


def _runs(rows) -> tuple:
    """(low, high, answer) rows with equal neighbours joined."""
    joined: list = []
    for low, high, answer in rows:
        if joined and joined[-1][2] == answer:
            joined[-1] = (joined[-1][0], high, answer)
        else:
            joined.append((low, high, answer))
    return tuple(joined)


def _table(atom: int, atoms: int) -> int:
    """Truth table of one atom: bit i is set where bit `atom` of i is set."""
    table = 0
    for i in range(1 << atoms):
        table |= ((i >> atom) & 1) << i
    return table


def relevant(table: int, atoms: int) -> list[int]:
    """The atoms on which a truth table depends."""
    size = 1 << atoms
    full = (1 << size) - 1
    found = []
    for a in range(atoms):
        ones = _table(a, atoms)
        off = full ^ ones
        if ((table & ones) >> (1 << a)) != (table & off):
            found.append(a)
    return found


def restrict(table: int, atoms: int, kept: Sequence[int]) -> list[bool]:
    """The table over the kept atoms only (it must not depend on the others), as a list of answers."""
    answers = []
    for i in range(1 << len(kept)):
        index = sum(((i >> n) & 1) << a for n, a in enumerate(kept))
        answers.append(bool((table >> index) & 1))
    return answers
