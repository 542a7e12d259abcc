"""The backward pass: every tile visited once, its weights recomputed from the log-sum-exp."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from attnjax.backends.tiled.layout import Tiled, cut, from_key_tiles, from_query_tiles, query_tiles
from attnjax.blend import finite_max
from attnjax.call import Call


def backward(call: Call, o: Any, lse: Any, d_o: Any, d_lse: Any) -> dict[str, Any]:
    """Cotangents of everything in call.diff, recomputing each tile's weights from the log-sum-exp."""
    t = cut(call)
    tile, K = t.plan.tile_q, call.dims.K
    delta = jnp.sum(o.astype(t.dtype) * d_o.astype(t.dtype), axis=-1) - d_lse
    per_row = (t.q, *(query_tiles(x, K, tile) for x in (finite_max(lse)[..., None], d_o, delta[..., None])))

    def row(sums: Any, i: Any, visit: Any, q_tile: Any, lse_tile: Any, do_tile: Any, delta_tile: Any) -> Any:
        def body(state: Any, j: Any, partial: bool) -> Any:
            dq, sums = state
            dots, s = t.scores(i, j, q_tile, t.k[j], partial)
            p = jnp.exp(s - lse_tile)
            ds = p * (t.keep(i, j, t.einsum("bkrh,bksh->bkrs", do_tile, t.v[j])) - delta_tile)
            more = dict(sums)
            if "bias" in sums:
                more["bias"] = _add_scores(t, sums["bias"], i, j, ds)
            if call.options.score_fn is not None:
                pull = jax.vjp(lambda x, params: t.rescored(x, i, j, params), dots, t.params)[1]
                ds, d_params = pull(ds)
                more["score_params"] = jax.tree.map(lambda a, b: a + b.astype(a.dtype), sums["score_params"], d_params)
            dx = ds * t.cap_slope(dots)
            dq = dq + t.einsum("bkrs,bksh->bkrh", dx, t.k[j])
            more["k"] = sums["k"].at[j].add(t.einsum("bkrs,bkrh->bksh", dx, q_tile))
            more["v"] = sums["v"].at[j].add(t.einsum("bkrs,bkrh->bksh", t.keep(i, j, p), do_tile))
            return dq, more

        dq, sums = visit(body, (jnp.zeros(q_tile.shape, t.dtype), sums))
        return sums, dq.astype(call.q.dtype)

    summed = {"k": t.k, "v": t.v, "score_params": t.params} | ({} if t.bias is None else {"bias": t.bias})
    sums, dq = t.rows(row, jax.tree.map(lambda x: jnp.zeros(x.shape, t.dtype), summed), per_row)
    found = {"q": from_query_tiles(dq, t.plan.T, tile)} | {n: from_key_tiles(sums[n], t.plan.S) for n in "kv"}
    if t.bias is not None:
        found["bias"] = sums["bias"][:, :, : call.bias.shape[2], : call.bias.shape[3]]
    if "score_params" in call.diff:
        found["score_params"] = sums["score_params"]
    if "sink_logits" in call.diff:
        share = jnp.exp(call.diff["sink_logits"].astype(t.dtype)[:, None] - finite_max(lse))  # [B, T, N]
        d_sink = -jnp.sum(share * delta, axis=1)
        one = call.diff["sink_logits"].shape[0] == 1
        found["sink_logits"] = jnp.sum(d_sink, axis=0, keepdims=True) if one else d_sink
    return {name: jax.tree.map(lambda a, b: a.astype(b.dtype), x, call.diff[name]) for name, x in found.items()}


def _add_scores(t: Tiled, total: Any, i: Any, j: Any, ds: Any) -> Any:
    """Adds tile (i, j) of the scores' cotangent to a bias cotangent, summed over the axes it broadcasts."""
    B, K, G, tile_q, tile_k = t.split(ds).shape
    ds = ds.reshape(B, K * G, tile_q, tile_k)
    axes = tuple(a for a in range(4) if total.shape[a] == 1)
    ds = jnp.sum(ds, axis=axes, keepdims=True)
    corner = t.corner(total, i, j)
    return lax.dynamic_update_slice(total, lax.dynamic_slice(total, corner, ds.shape) + ds, corner)
