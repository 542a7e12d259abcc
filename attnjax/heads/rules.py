"""What each score sees in one query's row of weights.

Every score is a sum over queries divided by a sum over queries, so weights may come a block of rows at a time. A rule
takes weights [.., t, S] of t queries and says both terms for each of them, [.., t]; a query that does not count has
0 in both. NumPy weights give NumPy terms.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from attnjax.shapes import to_rank


class At(NamedTuple):
    """Where a block of weights stands: positions of its rows [t] and columns [S], and what stands there."""

    row: Any
    col: Any
    tokens: Any = None  # [.., S] with as many axes as the weights have, less one
    period: int | None = None


class Terms(NamedTuple):
    """Of each query, [.., t]: what is added up, and what that is divided by."""

    value: Any
    count: Any


Rule = Callable[[Any, At], Terms]


def xp_of(*arrays: Any) -> Any:
    """NumPy when every array is NumPy's, else jax.numpy."""
    return np if all(isinstance(a, np.ndarray) for a in arrays) else jnp


def mean_over(value: Any, counted: Any) -> Terms:
    """The mean of value [.., t] over the queries that count: bool, broadcast to it."""
    xp = xp_of(value)
    counted = xp.broadcast_to(to_rank(counted, value.ndim), value.shape)
    return Terms(xp.where(counted, value, xp.zeros_like(value)), counted.astype(value.dtype))


def mass(w: Any, chosen: Any) -> Any:
    """How much of each query's weight lies on the chosen keys: bool [.., t, S] -> [.., t]."""
    xp = xp_of(w)
    return xp.sum(xp.where(to_rank(chosen, w.ndim), w, xp.zeros_like(w)), axis=-1)


def previous_token(w: Any, at: At) -> Terms:
    return mean_over(mass(w, at.col[None] == at.row[:, None] - 1), at.row >= 1)


def first_token(w: Any, at: At) -> Terms:
    return mean_over(mass(w, at.col[None] == 0), at.row >= 1)


def sink(w: Any, at: At) -> Terms:
    """As `first_token`, with the first query, which looks at itself."""
    return mean_over(mass(w, at.col[None] == 0), at.row >= 0)


def induction(w: Any, at: At) -> Terms:
    """Queries of the last copy, and the key after the same token in the copy before."""
    return mean_over(mass(w, at.col[None] == at.row[:, None] - at.period + 1), in_last_copy(at))


def in_last_copy(at: At) -> Any:
    return (at.row >= at.col.shape[0] - at.period) & (at.row < at.col.shape[0])


def duplicate_token(w: Any, at: At) -> Terms:
    earlier = to_rank(at.col[None] < at.row[:, None], w.ndim)
    return _matching(w, (_tokens_of(at)[..., None] == at.tokens[..., None, :]) & earlier)


def prefix_matching(w: Any, at: At) -> Terms:
    xp = xp_of(at.tokens)
    follows = to_rank((at.col[None] >= 1) & (at.col[None] <= at.row[:, None]), w.ndim)
    before = xp.roll(at.tokens, 1, axis=-1)
    return _matching(w, (_tokens_of(at)[..., None] == before[..., None, :]) & follows)


def _tokens_of(at: At) -> Any:
    """The token of each row, [.., t]; rows past the end repeat the last (nobody counts them)."""
    xp = xp_of(at.tokens)
    return xp.take(at.tokens, xp.minimum(at.row, at.tokens.shape[-1] - 1), axis=-1)


def _matching(w: Any, match: Any) -> Terms:
    """The mass on matching keys, over the queries that have one."""
    return mean_over(mass(w, match), xp_of(match).any(match, axis=-1))


def entropy(w: Any, at: At) -> Terms:
    return mean_over(_entropy(w), at.row >= 0)


def normalized_entropy(w: Any, at: At) -> Terms:
    """The entropy as a share of log(i + 1), what even weights on all keys up to the query have."""
    xp = xp_of(w)
    most = xp.log(xp.maximum(at.row, 1).astype(w.dtype) + 1)
    return mean_over(_entropy(w) / to_rank(most, w.ndim - 1), at.row >= 1)


def _entropy(w: Any) -> Any:
    xp = xp_of(w)
    return -xp.sum(w * xp.log(xp.where(w > 0, w, xp.ones_like(w))), axis=-1)


def mean_distance(w: Any, at: At) -> Terms:
    """Divided by the weights themselves: a learned sink's share has no distance."""
    xp = xp_of(w)
    distance = xp.abs(at.row[:, None] - at.col[None]).astype(w.dtype)
    return Terms(xp.sum(w * to_rank(distance, w.ndim), axis=-1), xp.sum(w, axis=-1))


def learned_sink(w: Any, at: At) -> Terms:
    """What no key of a row got."""
    return mean_over(1 - xp_of(w).sum(w, axis=-1), at.row >= 0)


def copying(raised: Any, at: At) -> Terms:
    """`raised` [.., t, S]: by how much each row's token, where it alone is looked at, raises the logit of the token at
    each column, at least 0. A token that stands at several columns counts once; to raise none is a share of 0."""
    xp = xp_of(raised)
    times = xp.sum((at.tokens[..., :, None] == at.tokens[..., None, :]).astype(raised.dtype), axis=-1)
    once = raised / times[..., None, :]
    own, total = mass(once, _tokens_of(at)[..., None] == at.tokens[..., None, :]), xp.sum(once, axis=-1)
    share = own / xp.where(total > 0, total, xp.ones_like(total))
    return mean_over(2 * share - 1, at.row >= 0)


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        previous_token, first_token, sink, induction, duplicate_token, prefix_matching, entropy, normalized_entropy,
        mean_distance, learned_sink,
    )
}  # fmt: skip
