"""Set operations on rules, always in one normal form.

`& |` flattened, sorted and deduplicated; `~` pushed to the leaves; leaves of one kind merged; absorption.
Two expressions that are equal after these steps are one value; no promise beyond that.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from attnjax.patterns.leaves import Band, Leaf, Where

Expr: TypeAlias = "Leaf | Not | Op"


@dataclasses.dataclass(frozen=True)
class Not:
    """Everything that one leaf hides."""

    leaf: Leaf


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
    """`exprs` joined by '&' or '|', in normal form."""
    neutral, ruling = (FULL, NOTHING) if symbol == "&" else (NOTHING, FULL)
    terms: set[Any] = set()
    for expr in exprs:
        terms.update(expr.terms if isinstance(expr, Op) and expr.symbol == symbol else (expr,))
    terms = _merged(symbol, terms)
    terms = _absorbed(symbol, terms) - {neutral}
    if ruling in terms or any(Not(t) in terms for t in terms if isinstance(t, Leaf)):
        return ruling
    if not terms:
        return neutral
    if len(terms) == 1:
        return terms.pop()
    return Op(symbol, tuple(sorted(terms, key=sort_key)))


def _merged(symbol: str, terms: set[Any]) -> set[Any]:
    """Leaves of one kind (plain or negated) replaced by their union or intersection where that is a leaf."""
    done: list[Any] = []
    for term in sorted(terms, key=sort_key):
        for i, other in enumerate(done):
            both = _merge_two(symbol, term, other)
            if both is not None:
                return _merged(symbol, (terms - {term, *done}) | {both, *done[:i], *done[i + 1 :]})
        done.append(term)
    return set(done)


def _merge_two(symbol: str, a: Any, b: Any) -> Any:
    """One leaf for a (symbol) b, or None. ~x & ~y is ~(x | y)."""
    if isinstance(a, Not) and isinstance(b, Not):
        both = _merge_two("|" if symbol == "&" else "&", a.leaf, b.leaf)
        return None if both is None else Not(both)
    if isinstance(a, Leaf) and type(a) is type(b):
        return a.meet(b) if symbol == "&" else a.join(b)
    return None


def _absorbed(symbol: str, terms: set[Any]) -> set[Any]:
    """a | (a & b) is a, and a & (a | b) is a."""

    def parts(term: Any) -> frozenset[Any]:
        return frozenset(term.terms) if isinstance(term, Op) and term.symbol != symbol else frozenset((term,))

    return {t for t in terms if not any(parts(other) < parts(t) for other in terms)}


def leaves(expr: Expr) -> Iterator[Leaf]:
    """Every leaf of the expression, in order, repeats included."""
    if isinstance(expr, Op):
        for term in expr.terms:
            yield from leaves(term)
    else:
        yield expr.leaf if isinstance(expr, Not) else expr


def allows(expr: Expr, q: Any, k: Any) -> Any:
    """The rule itself, elementwise on NumPy or JAX integer arrays."""
    if isinstance(expr, Not):
        return ~expr.leaf.allows(q, k)
    if isinstance(expr, Leaf):
        return expr.allows(q, k)
    result = allows(expr.terms[0], q, k)
    for term in expr.terms[1:]:
        result = result & allows(term, q, k) if expr.symbol == "&" else result | allows(term, q, k)
    return result


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
