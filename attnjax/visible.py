"""Patterns meet JAX: masks as arrays, and patterns as static pytree nodes."""

import functools
import typing
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from attnjax.patterns import Pattern, PerHead, Tile
from attnjax.patterns import shipped
from attnjax.patterns.checks import lengths

for _pattern in (Pattern, PerHead):
    jax.tree_util.register_static(_pattern)


def check_pattern(pattern: object) -> Pattern | PerHead:
    """The pattern, or a TypeError that says how to write one."""
    if not isinstance(pattern, (Pattern, PerHead)):
        hint = f"; write parse({pattern!r})" if isinstance(pattern, str) else ""
        hint = f"; call it: {pattern.__name__}(...)" if getattr(pattern, "__name__", "") in vars(shipped) else hint
        shown = getattr(pattern, "__name__", repr(pattern))
        raise TypeError(f"pattern={shown} is not a pattern such as Causal() or Window(4096) | Sink(4){hint}")
    return pattern


@typing.no_type_check
def visible(
    pattern: Pattern | PerHead, T: int, S: int | None = None, q_offset: int | None = None
) -> Bool[Array, "1 N T S"]:
    """The pattern as a bool array that broadcasts to [B, N, T, S]: True means may look.

    Args:
        pattern: which keys a query position may look at.
        T: number of queries.
        S: number of keys; T when None.
        q_offset: position of query row 0; None means 0 when T == S and must be given otherwise.

    Returns:
        [1, 1, T, S], or [1, N, T, S] for `PerHead`.

    Raises:
        TypeError: if `pattern` is none.
        ValueError: if T != S, the pattern depends on positions and `q_offset` is None.

    Example:
        >>> import attnjax as aj
        >>> aj.visible(aj.Causal(), 2)[0, 0].tolist()
        [[True, False], [True, True]]
    """
    T, S, q_offset = lengths(T, S, q_offset, check_pattern(pattern).depends_on_positions)
    return visible_at(pattern, q_offset + positions(T), positions(S))


def positions(size: int) -> Array:
    """0, 1, ... size - 1 as int32, also where 64-bit types are on: positions of all origins then mix."""
    return jnp.arange(size, dtype=jnp.int32)


def visible_at(pattern: Pattern | PerHead, q_pos: Any, k_pos: Any) -> Any:
    """The pattern on position vectors [T] and [S]: bool [1, 1, T, S], or [1, N, T, S] for `PerHead`."""
    shape = (q_pos.shape[0], k_pos.shape[0])
    q, k = q_pos[:, None], k_pos[None, :]
    if isinstance(pattern, PerHead):
        return jnp.stack([jnp.broadcast_to(p.allows(q, k), shape) for p in pattern.patterns])[None]
    return jnp.broadcast_to(pattern.allows(q, k), shape)[None, None]


@typing.no_type_check
def additive_mask(m: Bool[Array, "..."]) -> Float[Array, "..."]:
    """M of the formula softmax(QK^T / sqrt(d) + M) V: 0 where visible, -inf where not (float32).

    Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3.

    Args:
        m: bool mask of any shape, True means may look.

    Raises:
        TypeError: if `m` is not bool.

    Example:
        >>> import attnjax as aj
        >>> aj.additive_mask(aj.visible(aj.Causal(), 2))[0, 0].tolist()
        [[0.0, -inf], [0.0, 0.0]]
    """
    if getattr(m, "dtype", None) != bool:
        raise TypeError(f"m has dtype {getattr(m, 'dtype', type(m).__name__)}; a mask is bool, True means may look")
    return jnp.where(m, jnp.float32(0), jnp.float32(-jnp.inf))


@functools.lru_cache(maxsize=256)
def _seen_columns(pattern: Pattern | PerHead, T: int, S: int, q_offset: int) -> np.ndarray | None:
    """Which keys some query may see, [S]; None if all are."""
    k = np.arange(S)
    seen = pattern.tile(q_offset, q_offset + T, k, k + 1) != Tile.EMPTY
    return None if seen.all() else seen


def seen_keys(pattern: Pattern | PerHead, T: int, S: int, q_offset: int, mask: Any) -> Any:
    """Which keys some query of the call may see: bool [1 or B, S], or None if the pattern shows all.

    Keys and values that nobody may see are replaced by 0 before anything is computed, so that NaN in
    padding or in unwritten cache slots cannot reach a result (0 * NaN is NaN).
    """
    if T == 0 or S == 0:
        return None
    if pattern.has_rule or (mask is not None and mask.shape[2] > 1):
        shown = visible_at(pattern, q_offset + positions(T), positions(S))
        return jnp.any(shown if mask is None else shown & mask, axis=(1, 2))
    columns = _seen_columns(pattern, T, S, q_offset)
    if mask is None:
        return None if columns is None else jnp.asarray(columns)[None]
    by_mask = jnp.broadcast_to(jnp.any(mask, axis=(1, 2)), (mask.shape[0], S))
    return by_mask if columns is None else by_mask & jnp.asarray(columns)[None]
