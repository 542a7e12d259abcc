"""A rule cut into disjoint regions in which only atoms are left to decide.

The thresholds of all leaves cut the plane of (q, k) into cells: a range of q, a range of k and a range of
d = q - k. Inside a cell each leaf is True, False or one atom, so what is left of the rule is an expression over
the few atoms that matter there. Exact counts and tile states follow from cells, and so do the parts of a plan.
"""

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

from attnjax.patterns.algebra import Expr, Not, Op, fold, leaves, resolve
from attnjax.patterns.leaves import Atom, Corner, Leaf

FAR = 1 << 42  # stands for infinity: beyond any position, small enough that sums fit in int64
MOST_TABLED = 8  # a truth table over n atoms has 2**n bits


class Answer(NamedTuple):
    """What a cell shows: everything, nothing, or what its atoms say.

    Bit i of `table` is the answer where exactly the atoms of the set bits of i hold. Of more than MOST_TABLED atoms
    there is no table: it is None, and only `rule`, an expression over them, is known.
    """

    atoms: tuple[Atom, ...]
    table: int | None
    rule: Any


SHOWN = Answer((), 1, True)
HIDDEN = Answer((), 0, False)


class Region(NamedTuple):
    """A cell: q0 <= q < q1, k0 <= k < k1, d0 <= q - k < d1, and its answer."""

    q0: int
    q1: int
    k0: int
    k1: int
    d0: int
    d1: int
    answer: Answer = SHOWN


class Regions(NamedTuple):
    """All cells of a rule (the hidden ones too: together they tile the plane), and those that show anything."""

    cells: tuple[Region, ...]
    shown: tuple[Region, ...]


@functools.lru_cache(maxsize=1024)
def regions(expr: Expr) -> Regions:
    """The cells of a rule, neighbours with the same answer merged."""
    used = list(leaves(expr))
    places = {leaf.atom(): -i for i, leaf in enumerate(reversed(used))}  # where each atom comes first
    found: dict[Any, Answer] = {True: SHOWN, False: HIDDEN}
    same: dict[Any, Answer] = {}

    def answer(corner: Corner) -> Answer:
        rule = resolve(expr, lambda leaf: leaf.at(corner))
        if rule not in found:
            new = _answer(rule, places)
            # rules that are equal on all atoms are one answer
            found[rule] = new if new.table is None else same.setdefault(new[:2], new)
        return found[rule]

    q_edges, k_edges, d_edges = edges(used)

    def diagonals(q: int, k: int) -> tuple[tuple[int, int, Answer], ...]:
        return _runs((d0, d1, answer(Corner(d0, k, q))) for d0, d1 in zip(d_edges, d_edges[1:], strict=False))

    def columns(q: int) -> tuple[tuple[int, int, tuple], ...]:
        return _runs((k0, k1, diagonals(q, k0)) for k0, k1 in zip(k_edges, k_edges[1:], strict=False))

    rows = _runs((q0, q1, columns(q0)) for q0, q1 in zip(q_edges, q_edges[1:], strict=False))
    cells = tuple(Region(q0, q1, k0, k1, d0, d1, shown) for q0, q1, cols in rows for k0, k1, diags in cols
                  for d0, d1, shown in diags)  # fmt: skip
    return Regions(cells, tuple(cell for cell in cells if cell.answer is not HIDDEN))


def edges(used: list[Leaf]) -> tuple[list[int], list[int], list[int]]:
    """Where these leaves cut q, k and d = q - k, both infinities included."""
    cuts = [leaf.cuts() for leaf in used]
    values = (v for c in cuts for v in c.q), (v for c in cuts for v in c.k), (v for c in cuts for v in c.d)
    q, k, d = ([-FAR, *sorted(set(found)), FAR] for found in values)
    return q, k, d


def _runs(rows: Iterable[tuple]) -> tuple:
    """(low, high, answer) rows with equal neighbours joined."""
    joined: list = []
    for low, high, answer in rows:
        if joined and joined[-1][2] == answer:
            joined[-1] = (joined[-1][0], high, answer)
        else:
            joined.append((low, high, answer))
    return tuple(joined)


def atoms_of(rule: Any) -> dict[Atom, None]:
    """The atoms in what is left of a rule."""
    if isinstance(rule, Op):
        return {atom: None for term in rule.terms for atom in atoms_of(term)}
    return {rule.leaf if isinstance(rule, Not) else rule: None}


def _answer(rule: Any, places: dict[Atom | None, int]) -> Answer:
    """The answer of a rule over atoms, with those alone on which it depends, in the order of the leaves."""
    atoms = tuple(sorted(atoms_of(rule), key=lambda atom: places[atom]))
    if len(atoms) > MOST_TABLED:
        return Answer(atoms, None, rule)
    n = len(atoms)
    tables = {atom: _table(a, n) for a, atom in enumerate(atoms)}
    table = fold(rule, tables.__getitem__) & ((1 << (1 << n)) - 1)
    used = [a for a in range(n) if (table & _table(a, n)) >> (1 << a) != table & ~_table(a, n)]
    if not used:
        return SHOWN if table else HIDDEN
    kept = 0
    for i in range(1 << len(used)):
        index = sum((i >> new & 1) << a for new, a in enumerate(used))
        kept |= (table >> index & 1) << i
    return Answer(tuple(atoms[a] for a in used), kept, rule)


@functools.lru_cache(maxsize=64)
def _table(atom: int, atoms: int) -> int:
    """Truth table of one atom: bit i is set where bit `atom` of i is set."""
    return sum((i >> atom & 1) << i for i in range(1 << atoms))
