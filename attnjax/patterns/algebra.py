"""Set operations on rules, always in one normal form.

`& |` flattened, sorted and deduplicated; `~` pushed to the leaves; leaves of one kind merged; absorption.
Two expressions that are equal after these steps are one value; no promise beyond that.
"""

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from attnjax.patterns.leaves import Band, Leaf, Where

Expr: TypeAlias = "Leaf | Not | Op"


@dataclasses.dataclass(frozen=True)
class Not:
    """Everything that one leaf hides (or one atom, in what is left of a rule)."""

    leaf: Any  # a Leaf, or an Atom


@dataclasses.dataclass(frozen=True)
class Op:
    """`terms` joined by symbol '&' or '|': at least two, sorted, no nested Op of the same symbol."""

    symbol: str
    terms: tuple[Any, ...]


FULL = Band(None, None)
NOTHING = Not(FULL)


def negate(expr: Expr) -> Expr:
    """The complement, with `~` at the leaves only."""
    if isinstance(expr, Not):
        return expr.leaf
    if isinstance(expr, Leaf):
        return Not(expr)
    return combine("|" if expr.symbol == "&" else "&", (negate(t) for t in expr.terms))


def combine(symbol: str, exprs: Iterable[Expr]) -> Expr:
    """`exprs`, each in normal form, joined by '&' or '|', in normal form."""
    neutral, ruling = (FULL, NOTHING) if symbol == "&" else (NOTHING, FULL)
    groups = [expr.terms if isinstance(expr, Op) and expr.symbol == symbol else (expr,) for expr in exprs]
    terms = _absorbed(_merged(symbol, groups)) - {neutral}
    if ruling in terms or any(Not(t) in terms for t in terms if isinstance(t, Leaf)):
        return ruling
    if not terms:
        return neutral
    if len(terms) == 1:
        return terms.pop()
    return Op(symbol, tuple(sorted(terms, key=sort_key)))


def _merged(symbol: str, groups: list[tuple[Any, ...]]) -> set[Any]:
    """Leaves of one kind (plain or negated) replaced by their union or intersection where that is a leaf.

    Inside a group no two merge any more, so only the other groups' terms are tried with the largest one's.
    """
    largest, *others = sorted(groups, key=lambda group: (-len(group), [sort_key(term) for term in group]))
    done = dict.fromkeys(largest)
    for term in sorted({term for group in others for term in group} - done.keys(), key=sort_key):
        found = _merge_with(symbol, term, done)
        while found is not None:
            other, term = found
            del done[other]
            found = _merge_with(symbol, term, done)
        done[term] = None
    return set(done)


def _merge_with(symbol: str, term: Any, done: Iterable[Any]) -> tuple[Any, Any] | None:
    """(the first of `done` that merges with the term, what they make), or None."""
    for other in done:
        both = _merge_two(symbol, term, other)
        if both is not None:
            return other, both
    return None


def _merge_two(symbol: str, a: Any, b: Any) -> Any:
    """One leaf for a (symbol) b, or None. ~x & ~y is ~(x | y)."""
    if isinstance(a, Not) and isinstance(b, Not):
        both = _merge_two("|" if symbol == "&" else "&", a.leaf, b.leaf)
        return None if both is None else Not(both)
    if isinstance(a, Leaf) and type(a) is type(b):
        return a.meet(b) if symbol == "&" else a.join(b)
    return None


def _absorbed(terms: set[Any]) -> set[Any]:
    """a | (a & b) is a, and a & (a | b) is a."""
    groups = {term: frozenset(term.terms) for term in terms if isinstance(term, Op)}

    def spare(term: Any) -> bool:
        inner = groups.get(term)
        return inner is not None and (not inner.isdisjoint(terms) or any(other < inner for other in groups.values()))

    return {term for term in terms if not spare(term)}


def leaves(expr: Expr) -> Iterator[Leaf]:
    """Every leaf of the expression, in order, repeats included."""
    if isinstance(expr, Op):
        for term in expr.terms:
            yield from leaves(term)
    else:
        yield expr.leaf if isinstance(expr, Not) else expr


def allows(expr: Expr, q: Any, k: Any) -> Any:
    """The rule itself, elementwise on NumPy or JAX integer arrays."""
    return fold(expr, lambda leaf: leaf.allows(q, k))


def fold(expr: Any, ask: Callable[[Any], Any]) -> Any:
    """The answer to a rule from those of its leaves, bool arrays."""
    if isinstance(expr, Op):
        joined = operator.and_ if expr.symbol == "&" else operator.or_
        return functools.reduce(joined, (fold(term, ask) for term in expr.terms))
    return ~ask(expr.leaf) if isinstance(expr, Not) else ask(expr)


def resolve(expr: Any, ask: Callable[[Any], Any]) -> Any:
    """What is left of a rule: True, False or a rule. `ask` answers a leaf with True, False or what is left of it."""
    if isinstance(expr, Not):
        left = ask(expr.leaf)
        return not left if isinstance(left, bool) else Not(left)
    if not isinstance(expr, Op):
        return ask(expr)
    ruling, rest = expr.symbol == "|", {}
    for term in expr.terms:
        left = resolve(term, ask)
        if left is ruling:
            return ruling
        if not isinstance(left, bool):
            rest[left] = None
    if len(rest) < 2:
        return next(iter(rest), not ruling)
    return Op(expr.symbol, tuple(rest))


def rules(expr: Expr) -> tuple[Callable[..., Any], ...]:
    """The functions that take part, each once."""
    return tuple(dict.fromkeys(leaf.fn for leaf in leaves(expr) if isinstance(leaf, Where)))


def asking(expr: Expr, given: Callable[[Any], Any]) -> Expr:
    """The expression that asks given(fn) wherever it asked fn, its terms as they stand."""
    if isinstance(expr, Op):
        return Op(expr.symbol, tuple(asking(term, given) for term in expr.terms))
    if isinstance(expr, Not):
        return Not(asking(expr.leaf, given))
    return dataclasses.replace(expr, fn=given(expr.fn)) if isinstance(expr, Where) else expr


def sort_key(expr: Expr) -> tuple[Any, ...]:
    """A total order: leaves, then negated leaves, then groups."""
    if isinstance(expr, Leaf):
        return (0, expr.sort_key())
    if isinstance(expr, Not):
        return (1, expr.leaf.sort_key())
    return (2, expr.symbol, len(expr.terms), tuple(sort_key(t) for t in expr.terms))


def text(expr: Expr) -> str:
    """The pattern language, e.g. `window(4) | sink(1)`."""
    if isinstance(expr, Not):
        return "~" + text(expr.leaf)
    if isinstance(expr, Leaf):
        name, args = expr.text()
        return f"{name}({', '.join(args)})"
    return f" {expr.symbol} ".join(f"({text(t)})" if isinstance(t, Op) else text(t) for t in expr.terms)
