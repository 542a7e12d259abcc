"""Where the rows of queries and keys stand for rope, and how long the text is that they stand in."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from attnjax.rope import Rope, check_positions
from attnjax.segments import Ids, Segments, restarted, runs
from attnjax.shapes import to_rank
from attnjax.visible import positions as rows_from_0


class Standing(NamedTuple):
    """Positions [T] and [S], or [B|1, T] and [B|1, S]."""

    q: Any
    k: Any
    q_length: Any  # what the base of dynamic NTK is computed from, broadcasting with the positions; else None
    k_length: Any


def restarts(segments: Any) -> bool:
    """Whether positions restart at every document (what is no Segments at all, `attend` refuses)."""
    return isinstance(segments, Segments) and segments.positions == "segment"


def standing(rope: Rope, x: Any, kv: Any, positions: Any, segments: Any) -> Standing:
    """Where the rows of x [*B, T, D] stand, which may be given, and those of kv [*B, S, D] (None: x again).

    Raises:
        TypeError: if positions are neither integers nor float32/float64.
        ValueError: if positions or segments do not fit the rows.
    """
    T, S = x.shape[-2], (x if kv is None else kv).shape[-2]
    batch, q, k = x.shape[0] if x.ndim == 3 else 1, rows_from_0(T), rows_from_0(S)
    ids: Any = None
    if restarts(segments) or (rope.is_dynamic and isinstance(segments, Segments)):
        ids = segments.ids(batch, T, S)
    if restarts(segments):
        q, k = restarted(ids.q), restarted(ids.k)
    if positions is not None:
        positions = positions if hasattr(positions, "dtype") else jnp.asarray(positions)
        check_positions(positions, x.shape[:-1], f"x{tuple(x.shape)}")
        q, k = positions, positions if kv is None else k
    lengths: Any
    if not rope.is_dynamic:
        lengths = None, None
    elif ids is None:
        lengths = (rope.length(q, k),) * 2
    elif restarts(segments):
        lengths = _of_documents(ids, q, k, batch)
    else:
        lengths = (_of_rows(ids, None if positions is None else q, kv),) * 2
    found = Standing(q, k, *lengths)
    if ids is None or x.ndim == 3:
        return found
    return Standing(*(one if one is None or one.ndim < 2 else one[0] for one in found))


def _of_rows(ids: Ids, positions: Any, kv: Any) -> Any:
    """The length of each row, [B|1, 1]: how many of its tokens are no padding, or, with positions of x, one more than
    the largest of such a token."""
    sides = [ids.q >= 0, ids.k >= 0] if kv is not None else [(ids.q >= 0) & (ids.k >= 0)]
    lengths = [jnp.sum(real, axis=1, keepdims=True, dtype=jnp.float32) for real in sides]
    if positions is not None:
        lengths[0] = jnp.max(jnp.where(sides[0], _places(positions), 0), axis=1, keepdims=True, initial=0) + 1
    return functools.reduce(jnp.maximum, lengths, jnp.float32(1))


def _of_documents(ids: Ids, q: Any, k: Any, batch: int) -> tuple[Any, Any]:
    """The length of each token's document, [B, T] and [B, S]: one more than its largest position.

    A document is a run of equal ids where queries and keys are the same rows, else all that have one id.
    """
    sides = ((runs(ids.q), q),) if ids.shared else ((ids.q, q), (ids.k, k))
    number, place = (
        jnp.concatenate([jnp.broadcast_to(x, (batch, x.shape[1])) for x in parts], axis=1)
        for parts in zip(*((group, _places(at)) for group, at in sides), strict=True)
    )

    def longest(number: Any, place: Any) -> Any:
        number = jnp.unique(number, size=number.size, return_inverse=True)[1]
        return jax.ops.segment_max(place, number, num_segments=number.size)[number]

    lengths = jnp.maximum(jax.vmap(longest)(number, place) + 1, 1)
    return lengths[:, : ids.q.shape[1]], lengths[:, lengths.shape[1] - ids.k.shape[1] :]


def _places(positions: Any) -> Any:
    """Positions as float32 [B|1, n]."""
    return to_rank(jnp.asarray(positions.astype(jnp.float32)), 2)
