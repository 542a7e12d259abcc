"""Patterns meet JAX: masks as arrays, and patterns as static pytree nodes."""

import functools
import typing
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jaxtyping import Bool, Float, Int

from attnjax.patterns import Pattern, PerHead, Tile, shipped
from attnjax.patterns.checks import LARGEST, integer, lengths, offset_of
from attnjax.segments import Segments, restarted, runs, same_segment
from attnjax.shapes import check_bool, is_symbolic, to_int32, to_rank

for _pattern in (Pattern, PerHead):
    jax.tree_util.register_static(_pattern)


def check_pattern(pattern: object) -> Pattern | PerHead:
    """The pattern, or a TypeError that says how to write one."""
    if not isinstance(pattern, (Pattern, PerHead)):
        hint = f"; write aj.parse({pattern!r})" if isinstance(pattern, str) else ""
        shown = getattr(pattern, "__name__", repr(pattern))
        hint = f"; call it: {shown}(...)" if shown in vars(shipped) else hint
        raise TypeError(f"pattern={shown} is not a pattern such as Causal() or Window(4096) | Sink(4){hint}")
    return pattern


@typing.no_type_check
def visible(
    pattern: Pattern | PerHead,
    T: int,
    S: int | None = None,
    *,
    q_offset: int | Int[Array, "*B"] | None = None,
    segments: Segments | None = None,
) -> Bool[Array, "B N T S"]:
    """The pattern as a bool array that broadcasts to [B, N, T, S]: True means may look.

    Args:
        pattern: which keys a query position may look at.
        T: number of queries.
        S: number of keys; T when None.
        q_offset: position of query row 0, an int or an integer array (one, or [B]); None means 0 when T == S
            and must be given otherwise.
        segments: rows that belong together; they narrow the pattern.

    Returns:
        [B, N, T, S], where B is 1 unless `q_offset` or `segments` have a batch axis and N is 1 but for `PerHead`.

    Raises:
        TypeError: if `pattern` is none.
        ValueError: if T != S, the pattern depends on positions and `q_offset` is None.

    Example:
        >>> import attnjax as aj
        >>> aj.visible(aj.Causal(), 2)[0, 0].tolist()
        [[True, False], [True, True]]
    """
    T, S, place = place_rows(check_pattern(pattern), T, S, q_offset, segments, None)
    offset = place["q_offset"]
    rows = offset + positions(T) if isinstance(offset, int) else offset[:, None] + positions(T)[None]
    q_pos = place.get("q_pos", to_rank(rows, 2))
    seen = visible_at(pattern, q_pos, place.get("k_pos", positions(S)[None]))
    return seen & same_segment(place["q_ids"], place["k_ids"])[:, None] if "q_ids" in place else seen


def place_rows(
    pattern: Pattern | PerHead, T: Any, S: Any, q_offset: Any, segments: Any, B: Any
) -> tuple[Any, Any, dict[str, Any]]:
    """(T, S, where rows stand): q_offset, an int or [B|1], and with segments q_ids, k_ids and maybe q_pos, k_pos.

    Raises:
        TypeError: if `q_offset` is neither an int nor an integer array, or `segments` no Segments.
        ValueError: if an offset is needed but None, does not fit, or stands beside positions="segment".
    """
    if segments is not None and not isinstance(segments, Segments):
        raise TypeError(f"segments is a {type(segments).__name__}; write Segments(ids) or Segments.from_lengths(...)")
    restart = segments is not None and segments.positions == "segment"
    if restart and q_offset is not None:
        raise ValueError('positions="segment" places every row by itself: leave q_offset out')
    S = T if S is None else S
    known = not is_symbolic(T, S)
    if not hasattr(q_offset, "shape") or isinstance(q_offset, np.generic):
        depends = pattern.depends_on_positions and not restart
        T, S, offset = lengths(T, S, q_offset, depends) if known else (T, S, offset_of(T, S, q_offset, depends))
        check_reach(offset, T, S)
    else:
        T, S = (integer("T", T, 0), integer("S", S, 0)) if known else (T, S)
        offset: Any = q_offset
        if not jnp.issubdtype(offset.dtype, jnp.integer) or offset.ndim > 1:
            raise TypeError(
                f"q_offset is {offset.dtype}{tuple(offset.shape)}; it must be an int, or an integer array [] or [B]"
            )
        if B is not None and offset.shape not in ((), (1,), (B,)):
            raise ValueError(f"q_offset{tuple(offset.shape)} must be one int or one per sequence, [{B}]")
        if not isinstance(offset, jax.ShapeDtypeStruct):
            offset = jnp.atleast_1d(to_int32("q_offset", offset))
            reach = np.asarray([0] if isinstance(q_offset, Tracer) or not offset.size else q_offset)
            check_reach(int(reach.min()), T, S)
            check_reach(int(reach.max()), T, S)
    place: dict[str, Any] = {"q_offset": offset}
    if segments is not None:
        ids = segments.ids(B, T, S)
        place |= {"q_ids": ids.q, "k_ids": ids.k}
        if restart:
            place |= {"q_pos": restarted(ids.q), "k_pos": restarted(ids.k)}
            if ids.shared:
                place["q_ids"] = place["k_ids"] = runs(ids.q)
    return T, S, place


def check_reach(offset: int, T: Any, S: Any) -> None:
    """Raises a ValueError if rows of a call stand beyond what int32 counts."""
    sizes = [size for size in (T, S) if not is_symbolic(size)]
    if abs(offset) + max(sizes, default=0) > LARGEST:
        raise ValueError(f"q_offset={offset} with T={T} and S={S} leaves the range of int32 positions, +-{LARGEST}")


def positions(size: Any) -> Array:
    """0, 1, ... size - 1 as int32, also where 64-bit types are on: positions of all origins then mix."""
    return jnp.arange(size, dtype=jnp.int32)


def visible_at(pattern: Pattern | PerHead, q_pos: Any, k_pos: Any) -> Any:
    """The pattern on positions [B|1, T] and [B|1, S]: bool [B|1, 1, T, S], or [B|1, N, T, S] for `PerHead`."""
    q, k = q_pos[:, :, None], k_pos[:, None, :]
    shape = jnp.broadcast_shapes(q.shape, k.shape)
    patterns = pattern.patterns if isinstance(pattern, PerHead) else (pattern,)
    return jnp.stack([jnp.broadcast_to(p.allows(q, k), shape) for p in patterns], axis=1)


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
    check_bool(m=m)
    return jnp.where(m, jnp.float32(0), jnp.float32(-jnp.inf))


@functools.lru_cache(maxsize=256)
def seen_columns(pattern: Pattern | PerHead, T: int, S: int, q_offset: int) -> np.ndarray | None:
    """Which keys some query may see, [S]; None if all are."""
    k = np.arange(S)
    seen = pattern.tile(q_offset, q_offset + T, k, k + 1) != Tile.EMPTY
    return None if seen.all() else seen
