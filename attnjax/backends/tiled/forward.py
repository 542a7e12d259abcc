"""The forward pass: each row of tiles takes its visits one after the other into a softmax state."""

from typing import Any

import jax.numpy as jnp

from attnjax.backends.tiled.jobs import Group, Job, arrays_of, back, call_of_job, float32, groups
from attnjax.backends.tiled.layout import Visit, cut, sequences
from attnjax.backends.tiled.sequences import each
from attnjax.blend import Partial, absorb, finish, merge, of_scores, start
from attnjax.call import Call


def forward(call: Call) -> tuple[Any, Any]:
    """(output [B, T, N, h], log-sum-exp [B, T, N])."""
    wide = float32(call)
    found = groups(call)
    results = [_group(wide, group) for group in found]
    o, lse = (joined(found, [result[n] for result in results]) for n in range(2))
    return o.astype(call.q.dtype), lse


def joined(found: tuple[Group, ...], arrays: list[Any]) -> Any:
    """The groups' arrays [B, T, n, ...] put together in the order of the heads."""
    if len(found) == 1:
        return arrays[0]
    order = [head for group in found for head in group.heads]
    places = sorted(range(len(order)), key=order.__getitem__)
    return jnp.concatenate(arrays, axis=2)[:, :, jnp.asarray(places)]


def _group(call: Call, group: Group) -> tuple[Any, Any]:
    """(output, log-sum-exp) of heads that share a pattern: their walks merged, then the sinks."""
    d = call.dims
    sinks = call.diff.get("sink_logits")
    if sinks is not None:
        sinks = sinks[:, jnp.asarray(group.heads)].astype(call.q.dtype)
    jobs = [Job(group.heads, group.pattern, walk) for walk in group.plan.walks]
    if len(jobs) == 1:
        return _job(call, jobs[0], sinks)
    part = start((d.B, d.T, len(group.heads)), d.h, call.q.dtype)
    for job in jobs:
        o, lse = _job(call, job, None)
        part = merge(part, Partial(o, lse, jnp.where(jnp.isneginf(lse), jnp.zeros_like(lse), jnp.ones_like(lse))))
    return finish(part, None if sinks is None else sinks[:, None])


def _job(call: Call, job: Job, sinks: Any) -> tuple[Any, Any]:
    """(output [B, T, n, h], log-sum-exp [B, T, n]) of one walk."""
    mine = call_of_job(call, job, arrays_of(call, job, call.diff))
    if sinks is not None and sinks.shape[0] > 1:
        sinks = jnp.tile(sinks, (mine.dims.B // sinks.shape[0], 1))

    def body(_: None, some: Call, arrays: Any) -> Any:
        t = cut(some, job.walk)
        q = t.whole_rows(some.q)
        logits = t.per_head(arrays["sinks"])

        def row(_: None, i: Any, visit: Any) -> Any:
            q_tile = t.queries(q, i) * some.options.scale

            def take(part: Partial | None, at: Visit) -> Partial:
                s = t.scores(at, q_tile, t.keys(t.k, at))[1]

                def blended(p: Any) -> Any:
                    return t.einsum("bkrs,bksh->bkrh", t.keep(at, p), t.keys(t.v, at))

                return of_scores(s, blended) if part is None else absorb(part, s, blended)

            begin = None if job.walk.stretches else start(q_tile.shape[:-1], t.v.shape[-1], t.dtype)
            o, lse = finish(visit(take, begin), logits)
            return None, (t.from_queries(o), t.from_queries(lse[..., None])[..., 0])

        return t.rows(row, None)

    _, (o, lse) = each(mine, sequences(mine, job), {"sinks": sinks}, body, None)
    return back(call, job, o), back(call, job, lse)
