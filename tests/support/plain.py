"""Attention in ten lines of ordinary JAX: the honest low-precision computation of what the oracle has no formula for.

Takes what `oracle.attention` takes. Imports nothing of the package.
"""

import jax
import jax.numpy as jnp


def attention(
    q, k, v, seen, *, scale, soft_cap=None, bias=None, sink_logits=None, slopes=None, distance=None, dropout=None, dtype,
):  # fmt: skip
    """(output [B, T, N, h] in q's dtype, log-sum-exp [B, T, N] in `dtype`)."""
    group = q.shape[2] // k.shape[2]
    x, keys, values = q.astype(dtype), *(jnp.repeat(x.astype(dtype), group, axis=2) for x in (k, v))
    s = jnp.einsum("btnh,bsnh->bnts", x, keys) * scale
    s = s if soft_cap is None else soft_cap * jnp.tanh(s / soft_cap)
    s = s if slopes is None else s + slopes[None, :, None, None] * jnp.asarray(distance, dtype)[:, None]
    s = s if bias is None else s + bias.astype(dtype)
    s = jnp.where(jnp.asarray(seen), s, -jnp.inf)
    if sink_logits is not None:
        sink = jnp.broadcast_to(sink_logits.astype(dtype)[None, :, None, None], (*s.shape[:3], 1))
        s = jnp.concatenate([s, sink], axis=-1)
    top = jax.lax.stop_gradient(jnp.max(s, axis=-1, keepdims=True))
    p = jnp.exp(s - jnp.where(jnp.isneginf(top), 0, top))
    total = jnp.sum(p, axis=-1, keepdims=True)
    some = jnp.where(total > 0, total, 1)
    lse = jnp.where(total > 0, top + jnp.log(some), -jnp.inf)[..., 0].swapaxes(1, 2)
    w = (p / some)[..., : k.shape[1]]
    w = w if dropout is None else w * jnp.asarray(dropout, dtype)
    return jnp.einsum("bnts,bsnh->btnh", w, values).astype(q.dtype), lse
