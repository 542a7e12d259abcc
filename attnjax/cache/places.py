"""Where queries and keys stand for the rotary embedding: in the text, or in the cache.

In the cache (Xiao et al. 2023, "StreamingLLM") the tokens that a query at position p may still meet stand in
places 0, 1, 2, ... without the gap that dropped tokens leave, the query last. Sinks stand at their own
position, all others at their position less what was dropped, so a distance differs from that in the text for
sinks alone, and no place grows beyond the cache however long the stream is.
"""

from typing import Any

import jax.numpy as jnp

from attnjax.patterns import Slots
from attnjax.rope import Rope


def turns_late(rope: Rope | None, positions: str) -> bool:
    """Whether keys are kept as they came and are turned anew in every step."""
    return rope is not None and (positions == "cache" or rope.is_dynamic)


def turned(rope: Rope, x: Any, positions: Any, length: Any) -> Any:
    """x [B, T, N, H] at positions [B, T]; length [B] is what dynamic NTK's base is computed from."""
    return rope(x, positions, length[:, None] if rope.is_dynamic else None)


def in_text(rope: Rope, q: Any, k: Any, q_pos: Any, k_pos: Any, length: Any) -> tuple[Any, Any]:
    """Queries and kept keys turned by their positions."""
    return turned(rope, q, jnp.maximum(q_pos, 0), length), turned(rope, k, jnp.maximum(k_pos, 0), length)


def in_cache(
    rope: Rope, slots: Slots, q: Any, k: Any, q_pos: Any, k_pos: Any, before: Any, length: Any
) -> tuple[Any, Any]:
    """Queries and kept keys turned by their places in the cache; `before` [B] tokens went by before this chunk.

    One place per key serves all queries of a chunk if there are no sinks: distances within the ring are those
    of the text. Sinks come closer to each query that drops a token, so in a longer chunk queries and keys get
    a second set of channels, in which only the sinks are not 0.
    """
    length = jnp.minimum(length, slots.size)
    dropped = jnp.maximum(before + (1 - slots.size), 0)[:, None]
    q_far, k_ring = jnp.maximum(q_pos - dropped, 0), jnp.maximum(k_pos - dropped, 0)
    q_near, k_sink = jnp.clip(q_pos, 0, slots.size - 1), jnp.maximum(k_pos, 0)
    is_sink = k_pos < slots.sinks
    if not slots.sinks or q.shape[1] == 1:
        place = jnp.where(is_sink, k_sink, k_ring)
        return turned(rope, q, q_far, length), turned(rope, k, place, length)
    q = jnp.concatenate([turned(rope, q, q_far, length), turned(rope, q, q_near, length)], axis=-1)
    zero, is_sink = jnp.zeros_like(k), is_sink[:, :, None, None]
    ring = jnp.where(is_sink, zero, turned(rope, k, k_ring, length))
    sink = jnp.where(is_sink, turned(rope, k, k_sink, length), zero)
    return q, jnp.concatenate([ring, sink], axis=-1)
