"""Writing tokens into slots, taking them back, and picking rows: arrays in, arrays out."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from attnjax.patterns import Slots
from attnjax.visible import positions as rows_from_0


class Store(NamedTuple):
    """What the slots of a cache hold."""

    k: Any  # [B, slots, K, H]
    v: Any  # [B, slots, K, h]
    positions: Any  # int32 [B, slots]: which token a slot holds, -1 for none
    length: Any  # int32 [B]: how many tokens went by


def chunk_positions(length: Any, T: int, lengths: Any) -> Any:
    """Positions of a chunk's tokens, int32 [B, T]; -1 for the padding behind the first lengths[b] tokens."""
    rows = rows_from_0(T)[None]
    where = length[:, None] + rows
    return where if lengths is None else jnp.where(rows < lengths[:, None], where, jnp.int32(-1))


def write(slots: Slots, store: Store, k: Any, v: Any, positions: Any, refused: Any) -> Store:
    """The store after a chunk whose tokens stand at `positions` (-1: padding); rows that are refused stay as they are.

    Of a chunk longer than the ring only the newest tokens are written, so no slot is written twice.
    """
    real = (positions >= 0) & ~refused[:, None]
    length = store.length + jnp.sum(real, axis=1, dtype=jnp.int32)
    lasting = (positions < slots.sinks) | (positions >= (length - slots.ring)[:, None])
    at = jnp.where(real & lasting, slots.at(positions), jnp.int32(slots.size))  # past the end: dropped
    row = rows_from_0(at.shape[0])[:, None]
    k, v, where = (
        old.at[row, at].set(new.astype(old.dtype), mode="drop")
        for old, new in ((store.k, k), (store.v, v), (store.positions, positions))
    )
    return Store(k, v, where, length)


def overflow(slots: Slots, most: int, length: Any, tokens: Any) -> Any:
    """Rows that have no room for `tokens` more, bool [B]."""
    return length > jnp.int32(slots.size if not slots.endless else most) - tokens


def trimmable(slots: Slots, store: Store, tokens: Any, prefix: int) -> Any:
    """Rows whose last `tokens` can be taken back, bool [B]: every key that the next query needs is still there, and
    none of the first `prefix` tokens goes alone, since the others have seen it."""
    length = store.length - tokens
    first = jnp.maximum(jnp.int32(slots.sinks), length - slots.ring + 1)
    held = (store.positions >= first[:, None]) & (store.positions < length[:, None])
    found = jnp.sum(held, axis=1, dtype=jnp.int32)
    whole = (length == 0) | (length >= prefix) | (tokens == 0)
    return (tokens >= 0) & (length >= 0) & (found == jnp.maximum(length - first, 0)) & whole


def trim(store: Store, tokens: Any, allowed: Any) -> Store:
    """The store without its last `tokens`, in the rows where that is allowed."""
    length = jnp.where(allowed, store.length - tokens, store.length)
    return store._replace(
        positions=jnp.where(store.positions < length[:, None], store.positions, jnp.int32(-1)), length=length
    )


def clear(store: Store, rows: Any) -> Store:
    """The store with these rows (bool [B]) as new."""

    def cleared(x: Any, value: int) -> Any:
        return jnp.where(rows.reshape(rows.shape + (1,) * (x.ndim - 1)), jnp.asarray(value, x.dtype), x)

    return Store(cleared(store.k, 0), cleared(store.v, 0), cleared(store.positions, -1), cleared(store.length, 0))
