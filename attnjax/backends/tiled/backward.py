"""The backward pass: every tile visited once, its weights recomputed from the log-sum-exp."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from attnjax.backends.tiled.jobs import Job, arrays_of, call_of_job, float32, groups, pulled, rows_of
from attnjax.backends.tiled.layout import Tiled, Visit, cut, sequences
from attnjax.backends.tiled.sequences import each
from attnjax.blend import finite_max
from attnjax.call import Call

FILL = {"lse": float("inf")}  # rows of padding then weigh nothing, whatever a bias or a score_fn adds to them


def backward(call: Call, o: Any, lse: Any, d_o: Any, d_lse: Any) -> dict[str, Any]:
    """Cotangents of everything in call.diff, recomputing each tile's weights from the log-sum-exp."""
    wide = float32(call)
    dtype = wide.q.dtype
    d_lse = jnp.where(jnp.isneginf(lse), jnp.zeros_like(d_lse), d_lse)  # an empty row's is often NaN: f'(-inf)
    delta = jnp.sum(o.astype(dtype) * d_o.astype(dtype), axis=-1) - d_lse  # [B, T, N]
    rows = {"d_o": d_o.astype(dtype), "lse": finite_max(lse)[..., None], "delta": delta[..., None]}
    total: Any = {name: jax.tree.map(lambda x: jnp.zeros(x.shape, dtype), x) for name, x in call.diff.items()}
    for group in groups(call):
        for walk in group.plan.walks:
            job = Job(group.heads, group.pattern, walk)
            found = pulled(wide, job, _job(wide, job, rows))
            total |= {name: jax.tree.map(jnp.add, total[name], x) for name, x in found.items()}
    if "sink_logits" in total:
        share = jnp.exp(call.diff["sink_logits"].astype(dtype)[:, None] - finite_max(lse))  # [B, T, N]
        d_sink = -jnp.sum(share * delta, axis=1)
        one = call.diff["sink_logits"].shape[0] == 1
        total["sink_logits"] = jnp.sum(d_sink, axis=0, keepdims=True) if one else d_sink
    return {name: jax.tree.map(lambda a, b: a.astype(b.dtype), x, call.diff[name]) for name, x in total.items()}


def _job(call: Call, job: Job, rows: dict[str, Any]) -> dict[str, Any]:
    """Cotangents of one job's arrays."""
    mine = call_of_job(call, job, arrays_of(call, job, call.diff))
    B, scale = mine.dims.B, mine.options.scale
    shared = [n for n in ("bias", "score_params") if n in mine.diff and (n != "bias" or mine.diff[n].shape[0] < B)]

    def body(summed: Any, some: Call, arrays: Any) -> Any:
        t = cut(some, job.walk)
        q, d_o, delta = (t.whole_rows(x) for x in (some.q, arrays["d_o"], arrays["delta"]))
        lse = t.whole_rows(arrays["lse"], FILL["lse"])

        def row(sums: Any, i: Any, visit: Any) -> Any:
            q_tile, do_tile, lse_tile, delta_tile = (t.queries(x, i) for x in (q, d_o, lse, delta))
            q_tile = q_tile * scale
            # transposed once here, because a product that contracts the rows of its left side is slow
            columns = q_tile.swapaxes(2, 3), do_tile.swapaxes(2, 3)

            def take(state: Any, at: Visit) -> Any:
                dq, sums = state
                k_tile = t.keys(t.k, at)
                dots, s = t.scores(at, q_tile, k_tile)
                p = jnp.exp(s - lse_tile)
                ds = p * (t.keep(at, t.einsum("bkrh,bksh->bkrs", do_tile, t.keys(t.v, at))) - delta_tile)
                more = dict(sums)
                if "bias" in sums:
                    more["bias"] = _add_scores(t, sums["bias"], at, ds)
                if some.options.score_fn is not None:
                    pull = jax.vjp(lambda x, params: t.rescored(x, at, params), dots, t.params)[1]
                    ds, d_params = pull(ds)
                    if "score_params" in sums:
                        more["score_params"] = jax.tree.map(
                            lambda a, b: a + b.astype(a.dtype), sums["score_params"], d_params)  # fmt: skip
                slope = t.capped_slope(dots)
                ds = ds if slope is None else ds * slope
                more["k"] = _add_keys(sums["k"], at, t.einsum("bkhr,bkrs->bkhs", columns[0], ds))
                more["v"] = _add_keys(sums["v"], at, t.einsum("bkhr,bkrs->bkhs", columns[1], t.keep(at, p)))
                return dq + t.einsum("bkrs,bksh->bkrh", ds, k_tile), more

            dq, sums = visit(take, (jnp.zeros_like(q_tile), sums))
            return sums, (t.from_queries(dq * scale),)

        zero = {n: jnp.zeros((x.shape[0], *x.shape[2:], x.shape[1]), t.dtype) for n, x in (("k", t.k), ("v", t.v))}
        if t.bias is not None:
            zero["bias"] = jnp.zeros(t.bias.shape, t.dtype)
        sums, (dq,) = t.rows(row, zero | {n: summed[n] for n in shared if n != "bias"})
        found = {n: sums[n].transpose(0, 3, 1, 2)[:, : job.walk.S] for n in "kv"} | {"q": dq}
        if t.bias is not None:
            sums["bias"] = sums["bias"][:, :, : some.bias.shape[2], : some.bias.shape[3]]
            if "bias" not in shared:
                found["bias"] = sums["bias"]
        more = {n: sums[n] + summed[n] if n == "bias" else sums[n] for n in shared}
        return more, found

    zeros = {n: jax.tree.map(lambda x: jnp.zeros(x.shape, mine.q.dtype), mine.diff[n]) for n in shared}
    arrays = {name: rows_of(call, job, x, fill=FILL.get(name, 0.0)) for name, x in rows.items()}
    summed, found = each(mine, sequences(mine, job), arrays, body, zeros, FILL)
    return found | summed


def _add_keys(total: Any, at: Visit, x: Any) -> Any:
    """Adds a visit's [B, K, H, size] to [B, K, H, S']."""
    mine = lax.dynamic_slice_in_dim(total, at.start, at.size, 3)
    return lax.dynamic_update_slice_in_dim(total, mine + x, at.start, 3)


def _add_scores(t: Tiled, total: Any, at: Visit, ds: Any) -> Any:
    """Adds a visit's cotangent of the scores to a bias cotangent, summed over the axes it broadcasts."""
    B, K, G, tile_q, size = t.split(ds).shape
    ds = ds.reshape(B, K * G, tile_q, size)
    axes = tuple(a for a in range(4) if total.shape[a] == 1)
    ds = jnp.sum(ds, axis=axes, keepdims=True)
    corner = t.corner(total, at)
    return lax.dynamic_update_slice(total, lax.dynamic_slice(total, corner, ds.shape) + ds, corner)
