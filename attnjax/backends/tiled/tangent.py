"""The tangent pass: forward mode through the same tiles."""

from typing import Any

import jax
import jax.numpy as jnp

from attnjax.backends.base import Target
from attnjax.backends.tiled import slices
from attnjax.backends.tiled.forward import joined
from attnjax.backends.tiled.jobs import Group, Job, groups, jobs
from attnjax.backends.tiled.layout import Visit, cut
from attnjax.backends.tiled.loops import Pass, by_rows
from attnjax.blend import finite_max
from attnjax.call import Call, Diff


def tangent(call: Call, target: Target, o: Any, lse: Any, along: Diff) -> tuple[Any, Any]:
    """Tangents of (output, log-sum-exp) along tangents of everything in call.diff."""
    settled, dtype = slices.settled(call)
    along = jax.tree.map(lambda x: x.astype(dtype), along)
    lse = finite_max(lse)
    found = groups(call, target)
    results = [_group(settled, group, target, lse[..., None], along, dtype) for group in found]
    out, total = (joined(found, [result[n] for result in results]) for n in range(2))
    return (out - total[..., None] * o.astype(dtype)).astype(o.dtype), total


def _group(call: Call, group: Group, target: Target, lse: Any, along: Diff, dtype: Any) -> tuple[Any, Any]:
    """(sum of weights times tangents, sum of the weights' tangents) over the walks of a group."""
    d, n = call.dims, len(group.heads)
    out, total = jnp.zeros((d.B, d.T, n, d.h), dtype), jnp.zeros((d.B, d.T, n), dtype)
    for job in jobs(call, group, target):
        more = _job(call, job, lse, along, dtype)
        out, total = out + more[0], total + more[1]
    return out, total


def _job(call: Call, job: Job, lse: Any, along: Diff, dtype: Any) -> tuple[Any, Any]:
    """The same sums through one walk."""
    d, n = call.dims, len(job.heads)
    arrays = slices.tree(call, job, call.diff), slices.facts(call, job)
    more = slices.tree(call, job, along), slices.rows(call, job, lse, fill=jnp.inf)
    shapes = (d.B, d.T, n, d.h), (d.B, d.T, n)
    results = tuple(slices.laid_out(job, jnp.zeros(shape, dtype)) for shape in shapes)

    def body(results: Any, g: Any) -> Any:
        some = slices.call_of(call, job, *slices.cut(job, arrays, g))
        found = _rows(some, job, *slices.cut(job, more, g))
        return tuple(slices.put(job, total, x, g) for total, x in zip(results, found, strict=True))

    out, total = slices.each(call, job, body, results)
    return slices.restored(call, job, out), slices.restored(call, job, total)


def _rows(call: Call, job: Job, along: Diff, lse: Any) -> list[Any]:
    """The same sums for some sequences."""
    t, moved = cut(call, job), cut(Call(call.options, along), job)
    q, dq, lse = t.whole_rows(call.q), t.whole_rows(along.q), t.whole_rows(lse, jnp.inf)

    def begin(i: Any) -> Any:
        q_tile, dq_tile, lse_tile = t.queries(q, i), t.queries(dq, i), t.queries(lse, i)
        zeros = jnp.zeros((*q_tile.shape[:-1], t.v.shape[-1]), t.dtype), jnp.zeros(lse_tile.shape, t.dtype)
        return (q_tile * call.options.rule.scale, dq_tile * call.options.rule.scale, lse_tile), zeros

    def take(fixed: Any, state: Any, at: Visit) -> Any:
        q_tile, dq_tile, lse_tile = fixed
        out, total = state
        k_tile = t.keys(t.k, at)
        dots = t.products(q_tile, k_tile)
        dx = t.einsum("bkrh,bksh->bkrs", dq_tile, k_tile)
        dx = dx + t.einsum("bkrh,bksh->bkrs", q_tile, t.keys(moved.k, at))
        both = (dots, t.arrays(at)), (dx, t.arrays(at, moved.score))
        s, dx = jax.jvp(lambda dots, arrays: t.scores(at, dots, arrays), *both)
        p = jnp.exp(t.visible(at, s) - lse_tile)
        pds = p * dx
        out = out + t.einsum("bkrs,bksh->bkrh", t.keep(at, pds), t.keys(t.v, at))
        out = out + t.einsum("bkrs,bksh->bkrh", t.keep(at, p), t.keys(moved.v, at))
        return (out, total + jnp.sum(pds, axis=-1, keepdims=True)), None

    def end(_: Any, state: Any) -> list[Any]:
        return [t.from_queries(state[0]), t.from_queries(state[1])[..., 0]]

    return by_rows(t, Pass(begin, take, lambda sums, at, parcel: sums, end), None, job.together)[1]
