"""How large a pattern may be: what bounds the work of every question that it answers."""

import math

from attnjax.patterns.algebra import Expr, Op, leaves
from attnjax.patterns.regions import edges

MOST_RULES = 128  # leaves of the normal form, repeats included
DEEPEST = 100  # groups of & and | inside each other, as deep as `parse` reads
MOST_REGIONS = 1 << 16  # cells before neighbours are joined
WAY_OUT = "write it as one function, aj.Where(fn), or pass an array as mask="


def check_size(expr: Expr) -> None:
    """Raises a ValueError with its numbers if a rule in normal form is too large."""
    if not isinstance(expr, Op):
        return
    used = list(leaves(expr))
    if len(used) > MOST_RULES:
        raise ValueError(f"the pattern would hold {len(used)} rules; it may hold at most {MOST_RULES}: {WAY_OUT}")
    depth = _depth(expr)
    if depth > DEEPEST:
        raise ValueError(f"the pattern would nest & and | {depth} deep; it may nest them {DEEPEST} deep: {WAY_OUT}")
    counts = [len(values) - 1 for values in edges(used)]
    regions = math.prod(counts)
    if regions > MOST_REGIONS:
        q, k, d = counts
        raise ValueError(
            f"the pattern's numbers would cut queries into {q} ranges, keys into {k} and distances into {d}, so "
            f"{regions:,} regions; it may have at most {MOST_REGIONS:,}: {WAY_OUT}"
        )


def _depth(expr: Expr) -> int:
    return 1 + max(map(_depth, expr.terms)) if isinstance(expr, Op) else 0
