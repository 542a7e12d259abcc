"""The forward pass: each row of tiles takes its visits one after the other into a softmax state."""

from typing import Any

import jax.numpy as jnp

from attnjax.backends.base import Target
from attnjax.backends.tiled import slices
from attnjax.backends.tiled.jobs import Group, Job, groups, jobs
from attnjax.backends.tiled.layout import Visit, cut
from attnjax.backends.tiled.loops import Pass, by_rows
from attnjax.backends.tiled.stored import Stored
from attnjax.blend import Partial, absorb, finish, finished, of_scores, start
from attnjax.call import Call


def forward(call: Call, target: Target) -> tuple[Any, Any]:
    """(output [B, T, N, h], log-sum-exp [B, T, N])."""
    call, dtype = slices.settled(call)
    found = groups(call, target)
    results = [_group(call, group, target, dtype) for group in found]
    o, lse = (joined(found, [result[n] for result in results]) for n in range(2))
    return o, lse


def joined(found: tuple[Group, ...], arrays: list[Any]) -> Any:
    """The groups' arrays [B, T, n, ...] put together in the order of the heads."""
    if len(found) == 1:
        return arrays[0]
    order = [head for group in found for head in group.heads]
    places = sorted(range(len(order)), key=order.__getitem__)
    return jnp.concatenate(arrays, axis=2)[:, :, jnp.asarray(places)]


def _group(call: Call, group: Group, target: Target, dtype: Any) -> tuple[Any, Any]:
    """(output, log-sum-exp) of heads that share a pattern, walk after walk."""
    d = call.dims
    found = jobs(call, group, target)
    if not found:  # nothing is visible
        o, lse = finish(start((d.B, d.T, len(group.heads)), d.h, dtype))
        return o.astype(call.q.dtype), lse
    before: Any = None
    between = call.q.dtype if len(found) == 1 else dtype  # walks go on from each other's unrounded output
    for job in found:
        before = _job(call, job, before, (between, dtype))
    return before[0].astype(call.q.dtype), before[1]


def _job(call: Call, job: Job, before: Any, dtypes: tuple[Any, Any]) -> tuple[Any, Any]:
    """(output [B, T, n, h], log-sum-exp [B, T, n]) of one walk and of those `before` it, in these dtypes."""
    d, n = call.dims, len(job.heads)
    arrays = slices.tree(call, job, call.diff), slices.facts(call, job)
    if before is None:
        shapes = (d.B, d.T, n, d.h), (d.B, d.T, n)
        results = tuple(slices.laid_out(job, jnp.zeros(*x)) for x in zip(shapes, dtypes, strict=True))
    else:
        results = tuple(slices.laid_out(job, x) for x in before)

    def body(results: Any, g: Any) -> Any:
        some = slices.call_of(call, job, *slices.cut(job, arrays, g))
        so_far = None if before is None else slices.cut(job, results, g)
        found = _rows(some, job, so_far, dtypes)
        return tuple(slices.put(job, total, x, g) for total, x in zip(results, found, strict=True))

    o, lse = slices.each(call, job, body, results)
    return slices.restored(call, job, o), slices.restored(call, job, lse)


def _rows(call: Call, job: Job, so_far: Any, dtypes: tuple[Any, Any]) -> list[Any]:
    """[output, log-sum-exp] of some sequences."""
    t = cut(call, job)
    q = t.whole_rows(call.q)
    # values are summed as shares of this power of two, so that no sum of S finite ones leaves the range of floats
    most = 2.0 ** (job.walk.S + 1).bit_length()
    earlier = None if so_far is None else (t.whole_rows(so_far[0]), t.whole_rows(so_far[1][..., None], -jnp.inf))

    def begin(i: Any) -> Any:
        q_tile = t.queries(q, i) * call.options.rule.scale
        if earlier is not None:
            o, lse = t.queries(earlier[0], i), t.queries(earlier[1], i)[..., 0]
            return q_tile, finished(o / most, lse)
        return q_tile, None if job.walk.stretches else start(q_tile.shape[:-1], t.v.shape[-1], t.dtype)

    def take(q_tile: Any, part: Partial | None, at: Visit) -> Any:
        s = t.visible(at, t.scores(at, t.products(q_tile, t.keys(t.k, at)), t.arrays(at)))

        def blended(p: Any) -> Any:
            return t.einsum("bkrs,bksh->bkrh", t.keep(at, p), t.keys(t.v, at) / most)

        return (of_scores(s, blended) if part is None else absorb(part, s, blended)), None

    def end(_: Any, part: Partial) -> list[Any]:
        o, lse = finish(part)
        o, lse = (x.astype(dtype) for x, dtype in zip((o * most, lse), dtypes, strict=True))
        return [t.stored(t.from_queries(o)).x, t.from_queries(lse[..., None])[..., 0]]

    o, lse = by_rows(t, Pass(begin, take, lambda sums, at, parcel: sums, end), None, job.together)[1]
    return [Stored(o, dtypes[0]).floats(o), lse]
