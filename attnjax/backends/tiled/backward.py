"""The backward pass: every tile visited once, its weights recomputed from the log-sum-exp."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from attnjax.backends.tiled import slices
from attnjax.backends.tiled.jobs import Job, groups, jobs
from attnjax.backends.tiled.layout import Pass, Tiled, Visit, cut
from attnjax.backends.tiled.slices import Sliced
from attnjax.blend import finite_max
from attnjax.call import Call


def backward(call: Call, o: Any, lse: Any, d_o: Any, d_lse: Any) -> dict[str, Any]:
    """Cotangents of everything in call.diff, recomputing each tile's weights from the log-sum-exp."""
    settled, dtype = slices.settled(call)
    rows = {"o": o, "d_o": d_o, "lse": finite_max(lse)[..., None], "d_lse": d_lse[..., None]}
    total: dict[str, Any] = {}
    for job in (job for group in groups(call) for job in jobs(call, group)):
        for name, x in _job(settled, job, rows, dtype).items():
            total[name] = jax.tree.map(jnp.add, total[name], x) if name in total else x
    zeros = jax.tree.map(jnp.zeros_like, {n: x for n, x in call.diff.items() if n not in total})  # nothing is visible
    return {n: jax.tree.map(lambda a, b: a.astype(b.dtype), (total | zeros)[n], x) for n, x in call.diff.items()}


def _job(call: Call, job: Job, rows: dict[str, Any], dtype: Any) -> dict[str, Any]:
    """Cotangents of the call's arrays through one walk."""
    d = call.dims
    fills = {"lse": jnp.inf}  # rows that are not there then weigh nothing
    outer = {name: slices.rows(call, job, x, fill=fills.get(name, 0.0)) for name, x in rows.items()}
    diff = slices.tree(call, job, call.diff)
    arrays = diff, slices.facts(call, job)
    zeros = jax.tree.map(lambda x: Sliced(jnp.zeros(x.x.shape, dtype), x.axis), diff, is_leaf=slices.is_sliced)

    def body(totals: Any, g: Any) -> Any:
        some = slices.call_of(call, job, *slices.cut(job, arrays, g))
        found = _rows(some, job, slices.cut(job, outer, g))
        return jax.tree.map(lambda total, x: slices.put(job, total, x, g, add=total.axis is None), totals, found,
                            is_leaf=slices.is_sliced)  # fmt: skip

    found = slices.each(call, job, body, zeros)
    done = {name: slices.restored(call, job, found[name], keys=name != "q") for name in "qkv"}
    for name, count, heads in (("q", d.N, job.heads), ("k", d.K, job.key_heads), ("v", d.K, job.key_heads)):
        if heads != tuple(range(count)):
            whole = jnp.zeros((*done[name].shape[:2], count, done[name].shape[3]), dtype)
            done[name] = whole.at[:, :, jnp.asarray(heads)].add(done[name])
    if "bias" in found:
        like = call.bias.astype(dtype)
        (done["bias"],) = jax.linear_transpose(lambda x: slices.scores(call, job, x).x, like)(found["bias"].x)
    if "score_params" in found:
        done["score_params"] = jax.tree.map(lambda x: x.x, found["score_params"], is_leaf=slices.is_sliced)
    return done


def _rows(call: Call, job: Job, outer: dict[str, Any]) -> dict[str, Any]:
    """Cotangents of the arrays of some sequences."""
    t, scale = cut(call, job.walk), call.options.scale
    q, o, d_o, d_lse = (t.whole_rows(x) for x in (call.q, outer["o"], outer["d_o"], outer["d_lse"]))
    lse = t.whole_rows(outer["lse"], jnp.inf)

    def begin(i: Any) -> Any:
        q_tile, o_tile, do_tile, lse_tile, d_lse_tile = (t.queries(x, i) for x in (q, o, d_o, lse, d_lse))
        q_tile = q_tile * scale
        # a tile at a time: XLA for CPUs sums short rows of an array that is not in the cache ten times slower
        delta_tile = jnp.sum(o_tile * do_tile, axis=-1, keepdims=True) - d_lse_tile
        # transposed once here, because a product that contracts the rows of its left side is slow
        columns = q_tile.swapaxes(2, 3), do_tile.swapaxes(2, 3)
        return (q_tile, do_tile, lse_tile, delta_tile, *columns), jnp.zeros_like(q_tile)

    def take(fixed: Any, dq: Any, at: Visit) -> Any:
        q_tile, do_tile, lse_tile, delta_tile, q_column, do_column = fixed
        k_tile, parcel = t.keys(t.k, at), {}
        dots, s = t.scores(at, q_tile, k_tile)
        p = jnp.exp(s - lse_tile)
        ds = p * (t.keep(at, t.einsum("bkrh,bksh->bkrs", do_tile, t.keys(t.v, at))) - delta_tile)
        if t.bias is not None:
            parcel["bias"] = _summed(t, t.bias.shape, ds)
        if call.options.score_fn is not None:
            pull = jax.vjp(lambda x, params: t.rescored(x, at, params), dots, t.params)[1]
            ds, d_params = pull(ds)
            if "score_params" in call.diff:
                parcel["score_params"] = d_params
        slope = t.capped_slope(dots)
        ds = ds if slope is None else ds * slope
        parcel["k"] = t.einsum("bkhr,bkrs->bkhs", q_column, ds)
        parcel["v"] = t.einsum("bkhr,bkrs->bkhs", do_column, t.keep(at, p))
        return dq + t.einsum("bkrs,bksh->bkrh", ds, k_tile), parcel

    def gather(sums: Any, at: Visit, parcel: Any) -> Any:
        zero = jnp.int32(0)
        more = {n: _added(sums[n], parcel[n], (zero, zero, zero, at.start)) for n in "kv"}
        if "bias" in parcel:
            more["bias"] = _added(sums["bias"], parcel["bias"], t.corner(sums["bias"], at))
        if "score_params" in parcel:
            sums_of_params, params = sums["score_params"], parcel["score_params"]
            more["score_params"] = jax.tree.map(lambda a, b: a + b.astype(a.dtype), sums_of_params, params)
        return more

    zero: dict[str, Any] = {
        n: jnp.zeros((x.shape[0], *x.shape[2:], x.shape[1]), t.dtype) for n, x in (("k", t.k), ("v", t.v))
    }
    if t.bias is not None:
        zero["bias"] = jnp.zeros(t.bias.shape, t.dtype)
    if "score_params" in call.diff:
        zero["score_params"] = jax.tree.map(lambda x: jnp.zeros(x.shape, t.dtype), t.params)
    steps = Pass(begin, take, gather, lambda _, dq: [t.from_queries(dq * scale)])
    sums, (dq,) = t.rows(steps, zero, job.together)
    found = sums | {n: sums[n].transpose(0, 3, 1, 2)[:, : job.walk.S] for n in "kv"} | {"q": dq}
    if t.bias is not None:
        found["bias"] = sums["bias"][:, :, : call.bias.shape[2], : call.bias.shape[3]]
    return found


def _added(total: Any, x: Any, corner: tuple[Any, ...]) -> Any:
    """The array with x added from the corner on."""
    return lax.dynamic_update_slice(total, lax.dynamic_slice(total, corner, x.shape) + x, corner)


def _summed(t: Tiled, shape: tuple[int, ...], ds: Any) -> Any:
    """A visit's cotangent of the scores, summed over the axes along which a bias of this shape broadcasts."""
    B, K, G, tile_q, size = t.split(ds).shape
    axes = tuple(axis for axis in range(4) if shape[axis] == 1)
    return jnp.sum(ds.reshape(B, K * G, tile_q, size), axis=axes, keepdims=True)
