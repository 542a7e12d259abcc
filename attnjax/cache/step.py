"""One step: a chunk looks at what is kept and at itself, and its tokens take their slots."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from attnjax.cache import columns, places, store
from attnjax.cache.look import call_at, look
from attnjax.door import Scoring


@functools.partial(jax.jit, static_argnames=("backend", "return_weights"))
def look_and_write(
    cache: Any, q: Any, k: Any, v: Any, lengths: Any, refused: Any, scoring: Scoring, backend: str, return_weights: bool
) -> tuple[Any, Any, Any]:
    """(output, the cache afterwards, weights or None); rows that are `refused` stay as they are and give NaN."""
    q_pos = store.chunk_positions(cache.length, k.shape[1], lengths)
    length = jnp.maximum(cache.length, jnp.max(q_pos, axis=1, initial=-1) + 1)
    k, v = k.astype(cache.dtype), v.astype(cache.dtype)  # what is looked at is what will be kept
    rope, late = cache.rope, cache.turns_late
    if rope is not None and not late:
        q, k = (places.turned(rope, x, jnp.maximum(q_pos, 0), length) for x in (q, k))
    after = store.write(cache.slots, cache.store, k, v, q_pos, refused)
    k_seen, v_seen, k_pos = _seen(cache, after, k, v, q_pos, return_weights)
    if rope is not None and late and cache.mode == "text":
        q, k_seen = places.in_text(rope, q, k_seen, q_pos, k_pos, length)
    elif rope is not None and late:
        q, k_seen = places.in_cache(rope, cache.slots, q, k_seen, q_pos, k_pos, cache.length, length)
    o, weights = look(call_at(q, k_seen, v_seen, cache.pattern, q_pos, k_pos, scoring), backend, return_weights)
    o = jnp.where(refused[:, None, None, None], jnp.asarray(jnp.nan, o.dtype), o)
    return o, cache.holding(after, cache.refused | refused), weights


def _seen(cache: Any, after: store.Store, k: Any, v: Any, q_pos: Any, all_slots: bool) -> tuple[Any, Any, Any]:
    """Keys, values and positions that the chunk looks at.

    Where all tokens are kept, or one comes alone, no slot is lost that it would look at: it looks into the slots
    that hold it already, and nothing is copied. A longer chunk, or one that asks for `all_slots`, looks at the slots as
    they were, and at itself.
    """
    one = k.shape[1] == 1
    if all_slots or (cache.slots.endless and not one):
        k, v = jnp.concatenate([cache.k, k], axis=1), jnp.concatenate([cache.v, v], axis=1)
        return k, v, jnp.concatenate([cache.positions, q_pos], axis=1)
    reads = columns.few(cache.pattern, cache.slots.size) if one and not cache.slots.endless else None
    if reads is None:
        return after.k, after.v, after.positions
    at, counts = columns.slots_of(reads, q_pos[:, 0], cache.slots.size)
    k, v, k_pos = (columns.take(x, at) for x in (after.k, after.v, after.positions))
    return k, v, jnp.where(counts, k_pos, jnp.int32(-1))
