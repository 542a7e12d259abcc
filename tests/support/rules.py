"""Every shipped pattern's rule written out by hand, and random compositions with their rules beside them.

Truth for patterns: imports nothing of the package but the constructors it draws from.
"""

import numpy as np
from hypothesis import strategies as st

import attnjax as aj

# name -> (constructor, argument strategies, rule(q, k, *arguments))
SMALL = st.integers(1, 9)
SIDE = st.one_of(st.none(), st.integers(0, 7))


def _band(q, k, left, right):
    return (left is None or q - k <= left) and (right is None or q - k >= -right)


SHIPPED = {
    "full": (aj.Full, (), lambda q, k: True),
    "causal": (aj.Causal, (), lambda q, k: k <= q),
    "window": (aj.Window, (SMALL,), lambda q, k, w: q - w < k <= q),
    "band": (aj.Band, (SIDE, SIDE), _band),
    "sink": (aj.Sink, (SMALL,), lambda q, k, n: k < n and k <= q),
    "strided": (aj.Strided, (SMALL,), lambda q, k, s: (q - k) % s == 0 and k <= q),
    "chunked": (aj.Chunked, (SMALL,), lambda q, k, c: q // c == k // c and k <= q),
    "prefix": (aj.Prefix, (SMALL,), lambda q, k, n: k <= q or (0 <= q < n and k < n)),
}


def _leaf(name):
    return st.tuples(st.just(name), *SHIPPED[name][1])


# Specifications, not patterns, are drawn: the type checks that run while a pattern is built draw random
# numbers of their own, which a strategy must not do.
leaves = st.sampled_from(sorted(SHIPPED)).flatmap(_leaf)
compositions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(st.just("~"), inner),
        st.tuples(st.just("&"), inner, inner),
        st.tuples(st.just("|"), inner, inner),
    ),
    max_leaves=6,
)


def build(spec):
    """(pattern, rule by hand) of a drawn specification."""
    name, *rest = spec
    if name == "~":
        pattern, rule = build(rest[0])
        return ~pattern, lambda q, k: not rule(q, k)
    if name in "&|":
        (a, rule_a), (b, rule_b) = map(build, rest)
        if name == "&":
            return a & b, lambda q, k: rule_a(q, k) and rule_b(q, k)
        return a | b, lambda q, k: rule_a(q, k) or rule_b(q, k)
    make, _, rule = SHIPPED[name]
    return make(*rest), lambda q, k: rule(q, k, *rest)


def table(rule, q_positions, k_positions):
    """The rule asked pair by pair: bool [len(q), len(k)]."""
    return np.array([[bool(rule(q, k)) for k in k_positions] for q in q_positions], bool).reshape(
        len(q_positions), len(k_positions)
    )
