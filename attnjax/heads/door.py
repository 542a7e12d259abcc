"""Weights and tokens at the door of every score: checked, with the reason in numbers; and the mean that a score is."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from attnjax.heads.rules import RULES, At, Terms, xp_of
from attnjax.patterns.checks import integer
from attnjax.shapes import check_float, shown

ABOVE = 1e-3  # rows of float32 weights sum to 1 within much less


def check_period(period: Any, S: int) -> int:
    """The period as an int of which two copies fit.

    Raises:
        TypeError: if it is no int.
        ValueError: if it is below 2, or S tokens do not hold two copies.
    """
    period = integer("period", period, 2, "in rounds of one token, what followed is the query itself")
    if S < 2 * period:
        raise ValueError(f"S={S} tokens do not hold two copies of period={period}: they take {2 * period}")
    return period


def score(name: str, weights: Any, at: At) -> Any:
    reasons = {"duplicate_token": "no token stands twice", "prefix_matching": "no token stands twice"}
    return mean(RULES[name](weights, at), reasons.get(name, "no query that counts, or none with any weight"))


def mean(terms: Terms, nothing: str) -> Any:
    """Sum over queries by sum over queries; a known 0 in the second is an error."""
    xp = xp_of(*terms)
    value, count = xp.sum(terms.value, axis=-1), xp.sum(terms.count, axis=-1)
    if not isinstance(count, Tracer) and not np.all(np.asarray(count) > 0):
        raise ValueError(f"there is nothing to take the mean of: {nothing}")
    return value / count


def enter(weights: Any, q_offset: Any, tokens: Any = None) -> tuple[Any, At]:
    """Weights and where they stand, checked."""
    check_float(weights=weights)
    if weights.ndim < 2 or min(weights.shape) == 0:
        raise ValueError(f"{shown(weights=weights)} must be [.., T, S]: a row of weights for each query, none empty")
    T, S = weights.shape[-2:]
    if q_offset is None and T != S:
        raise ValueError(
            f"{shown(weights=weights)} has T={T} queries and S={S} keys: say where query 0 stands: q_offset={S - T} "
            "if the last rows are these, q_offset=0 if the first"
        )
    offset = 0 if q_offset is None else integer("q_offset", q_offset, 0)
    if offset + T > S:
        raise ValueError(f"q_offset={offset} puts the last of T={T} queries behind the last of S={S} keys")
    _check_rows(weights)
    xp = xp_of(weights)
    weights = xp.asarray(weights)
    row, col = (xp.arange(n, dtype=np.int32) for n in (T, S))
    if tokens is not None:
        got = shown(tokens=check_ids(tokens), weights=weights)
        tokens = beside(tokens, weights.shape[:-2], S, "weights [b, .., T, S]", got)
    return weights, At(row + offset, col, tokens)


def _check_rows(weights: Any) -> None:
    """Raises a ValueError if known weights are negative, NaN, or more than 1 in a row."""
    if isinstance(weights, Tracer):
        return
    least, most = float(np.min(weights)), float(np.max(np.sum(weights, axis=-1)))
    if not least >= 0:
        raise ValueError(f"weights hold {least}; they are shares of a query's attention: after the softmax, 0 or more")
    if not most <= 1 + ABOVE:
        raise ValueError(f"a row of weights sums to {most:.4f}; a row sums to 1, or less with a learned sink")


def beside(tokens: Any, lead: tuple[int, ...], S: int, of: str, got: str) -> Any:
    """Tokens [S] or [b, S] with as many axes as leading ones and S."""
    own = tokens.shape[:-1]
    if tokens.ndim < 1 or tokens.shape[-1] != S or own != lead[: len(own)]:
        raise ValueError(f"tokens must be [S], or [b, S] with {of}; got {got}")
    tokens = tokens if isinstance(tokens, np.ndarray) else jnp.asarray(tokens)
    return tokens.reshape(*own, *(1,) * (len(lead) - len(own)), S)


def check_ids(tokens: Any) -> Any:
    """Tokens, if they are an array of integers."""
    if not hasattr(tokens, "dtype") or not jnp.issubdtype(tokens.dtype, jnp.integer):
        what = f"dtype {tokens.dtype}" if hasattr(tokens, "dtype") else f"a {type(tokens).__name__}"
        raise TypeError(f"tokens are {what}; token ids are an integer array")
    return tokens
