"""The backward pass: every tile visited once, its weights recomputed from the log-sum-exp."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from attnjax.backends.base import Target
from attnjax.backends.tiled import slices, two_passes
from attnjax.backends.tiled.jobs import Job, groups, jobs
from attnjax.backends.tiled.layout import Visit, cut
from attnjax.backends.tiled.loops import Pass, by_rows
from attnjax.backends.tiled.slices import Sliced
from attnjax.blend import finite_max
from attnjax.call import Call, Diff
from attnjax.score_rule import ScoreArrays


def backward(call: Call, target: Target, o: Any, lse: Any, d_o: Any, d_lse: Any) -> Diff:
    """Cotangents of everything in call.diff, recomputing each tile's weights from the log-sum-exp."""
    settled, dtype = slices.settled(call)
    rows = {"o": o, "d_o": d_o, "lse": finite_max(lse)[..., None], "d_lse": d_lse[..., None]}
    all_groups = groups(call, target, backward=True)
    found = [_job(settled, job, rows, dtype) for group in all_groups for job in jobs(call, group, target)]
    if not found:  # nothing is visible
        return jax.tree.map(jnp.zeros_like, call.diff)
    total = functools.reduce(lambda a, b: jax.tree.map(jnp.add, a, b), found)
    return jax.tree.map(lambda a, b: a.astype(b.dtype), total, call.diff)


def _job(call: Call, job: Job, rows: dict[str, Any], dtype: Any) -> Diff:
    """Cotangents of the call's arrays through one walk."""
    d = call.dims
    fills = {"lse": jnp.inf}  # rows that are not there then weigh nothing
    outer = {name: slices.rows(call, job, x, fill=fills.get(name, 0.0)) for name, x in rows.items()}
    diff = slices.tree(call, job, call.diff)
    arrays = diff, slices.facts(call, job)
    by_keys = job.together > 1 and not job.sizes.stretches
    of_rows = two_passes.rows if by_keys else _rows
    zeros = jax.tree.map(lambda x: Sliced(jnp.zeros(x.x.shape, dtype), x.axis), diff, is_leaf=slices.is_sliced)

    def body(totals: Any, g: Any) -> Any:
        some = slices.call_of(call, job, *slices.cut(job, arrays, g))
        found = of_rows(some, job, slices.cut(job, outer, g))
        return jax.tree.map(lambda total, x: slices.put(job, total, x, g, add=total.axis is None), totals, found,
                            is_leaf=slices.is_sliced)  # fmt: skip

    found = slices.each(call, job, body, zeros)

    def restored(sliced: Sliced, count: int, heads: tuple[int, ...], keys: bool) -> Any:
        x = slices.restored(call, job, sliced, keys)
        if heads == tuple(range(count)):
            return x
        return jnp.zeros((*x.shape[:2], count, x.shape[3]), dtype).at[:, :, jnp.asarray(heads)].add(x)

    def unsliced(bias: Any) -> Any:
        like = call.bias.astype(dtype)
        return jax.linear_transpose(lambda x: slices.scores(call, job, x).x, like)(bias)[0]

    score = jax.tree.map(lambda x: x.x, found.score, is_leaf=slices.is_sliced)
    dk, dv = (restored(x, d.K, job.key_heads, True) for x in (found.k, found.v))
    return Diff(restored(found.q, d.N, job.heads, False), dk, dv, score.cut(unsliced, lambda x: x))


def _rows(call: Call, job: Job, outer: dict[str, Any]) -> Diff:
    """Cotangents of the arrays of some sequences."""
    t, scale = cut(call, job), call.options.rule.scale
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
        p, pull = t.weights(at, q_tile, k_tile, lse_tile)
        ds = p * (t.keep(at, t.einsum("bkrh,bksh->bkrs", do_tile, t.keys(t.v, at))) - delta_tile)
        ds, parcel["score"] = pull(ds)
        parcel["k"] = t.einsum("bkhr,bkrs->bkhs", q_column, ds)
        parcel["v"] = t.einsum("bkhr,bkrs->bkhs", do_column, t.keep(at, p))
        return dq + t.einsum("bkrs,bksh->bkrh", ds, k_tile), parcel

    def gather(sums: Any, at: Visit, parcel: Any) -> Any:
        zero = jnp.int32(0)
        more = {n: _added(sums[n], parcel[n], (zero, zero, zero, at.start)) for n in "kv"}
        total, score = sums["score"], parcel["score"]
        added = jax.tree.map(lambda a, b: a + b.astype(a.dtype), _without_bias(total), _without_bias(score))
        if total.bias is not None:
            bias = _added(total.bias, score.bias, t.corner(total.bias, at))
            added = dataclasses.replace(added, bias=bias)
        return more | {"score": added}

    zero: dict[str, Any] = {
        n: jnp.zeros((x.shape[0], *x.shape[2:], x.shape[1]), t.dtype) for n, x in (("k", t.k), ("v", t.v))
    }
    zero["score"] = jax.tree.map(lambda x: jnp.zeros(x.shape, t.dtype), t.score)
    steps = Pass(begin, take, gather, lambda _, dq: [t.from_queries(dq * scale)])
    sums, (dq,) = by_rows(t, steps, zero, job.together)
    dk, dv = (sums[n].transpose(0, 3, 1, 2)[:, : job.walk.S] for n in "kv")
    unpadded = sums["score"].cut(lambda x: x[:, :, : call.bias.shape[2], : call.bias.shape[3]], lambda x: x)
    return Diff(dq, dk, dv, unpadded)


def _added(total: Any, x: Any, corner: tuple[Any, ...]) -> Any:
    """The array with x added from the corner on."""
    return lax.dynamic_update_slice(total, lax.dynamic_slice(total, corner, x.shape) + x, corner)


def _without_bias(score: ScoreArrays) -> ScoreArrays:
    return dataclasses.replace(score, bias=None)
