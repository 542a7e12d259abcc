"""The tangent pass: forward mode through the same tiles."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from attnjax.backends.tiled.layout import cut, from_query_tiles, key_tiles, pad_scores, query_tiles
from attnjax.blend import finite_max
from attnjax.call import Call


def tangent(call: Call, o: Any, lse: Any, along: dict[str, Any]) -> tuple[Any, Any]:
    """Tangents of (output, log-sum-exp) along tangents of everything in call.diff."""
    t = cut(call)
    tile, K = t.plan.tile_q, call.dims.K
    dk, dv = (key_tiles(along[n], t.plan.tile_k) for n in "kv")
    db = pad_scores(along["bias"], (t.plan.rows * tile, t.k.shape[0] * t.plan.tile_k)) if "bias" in along else None
    per_row = (t.q, *(query_tiles(x, K, tile) for x in (along["q"], finite_max(lse)[..., None], o)))
    sinks, d_sinks = (t.sinks(x.get("sink_logits")) for x in (call.diff, along))

    def row(_: None, i: Any, visit: Any, q_tile: Any, dq_tile: Any, lse_tile: Any, o_tile: Any) -> Any:
        def body(state: Any, j: Any, partial: bool) -> Any:
            out, total = state
            dots, s = t.scores(i, j, q_tile, t.k[j], partial)
            p = jnp.exp(s - lse_tile)
            dx = t.einsum("bkrh,bksh->bkrs", dq_tile, t.k[j]) + t.einsum("bkrh,bksh->bkrs", q_tile, dk[j])
            dx = dx * t.cap_slope(dots)
            if call.options.score_fn is not None:
                rescored = functools.partial(t.rescored, i=i, j=j)
                both = (dots, t.params), (dx, along.get("score_params"))
                dx = jax.jvp(lambda x, params: rescored(x, params=params), *both)[1]
            ds = t.split(dx)
            ds = ds if db is None else ds + t.slice(db, i, j).astype(ds.dtype)
            pds = p * ds.reshape(p.shape)
            out = out + t.einsum("bkrs,bksh->bkrh", t.keep(i, j, pds), t.v[j])
            out = out + t.einsum("bkrs,bksh->bkrh", t.keep(i, j, p), dv[j])
            return out, total + jnp.sum(pds, axis=-1, keepdims=True)

        zeros = (jnp.zeros(o_tile.shape, t.dtype), jnp.zeros(lse_tile.shape, t.dtype))
        out, total = visit(body, zeros)
        if sinks is not None:
            total = total + jnp.exp(sinks[..., None] - lse_tile) * d_sinks[..., None]
        return None, ((out - total * o_tile.astype(t.dtype)).astype(o.dtype), total)

    _, (d_o, d_lse) = t.rows(row, None, per_row)
    return from_query_tiles(d_o, t.plan.T, tile), from_query_tiles(d_lse, t.plan.T, tile)[..., 0]
