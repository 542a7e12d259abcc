"""The tangent pass: forward mode through the same tiles."""

from typing import Any

import jax
import jax.numpy as jnp

from attnjax.backends.tiled.forward import joined
from attnjax.backends.tiled.jobs import Group, Job, arrays_of, back, call_of_job, float32, groups, rows_of
from attnjax.backends.tiled.layout import Visit, cut, sequences
from attnjax.backends.tiled.sequences import each
from attnjax.blend import finite_max
from attnjax.call import Call


def tangent(call: Call, o: Any, lse: Any, along: dict[str, Any]) -> tuple[Any, Any]:
    """Tangents of (output, log-sum-exp) along tangents of everything in call.diff."""
    wide = float32(call)
    dtype = wide.q.dtype
    along = jax.tree.map(lambda x: x.astype(dtype), along)
    rows = {"lse": finite_max(lse)[..., None]}
    found = groups(call)
    results = [_group(wide, group, rows, along) for group in found]
    out, total = (joined(found, [result[n] for result in results]) for n in range(2))
    if "sink_logits" in along:
        logits = call.diff["sink_logits"].astype(dtype)[:, None]
        total = total + jnp.exp(logits - finite_max(lse)) * along["sink_logits"][:, None]
    return (out - total[..., None] * o.astype(dtype)).astype(o.dtype), total


def _group(call: Call, group: Group, rows: dict[str, Any], along: dict[str, Any]) -> tuple[Any, Any]:
    """(sum of weights times tangents, sum of the weights' tangents) over the walks of a group."""
    d, n = call.dims, len(group.heads)
    out, total = jnp.zeros((d.B, d.T, n, d.h), call.q.dtype), jnp.zeros((d.B, d.T, n), call.q.dtype)
    for walk in group.plan.walks:
        more = _job(call, Job(group.heads, group.pattern, walk), rows, along)
        out, total = out + more[0], total + more[1]
    return out, total


def _job(call: Call, job: Job, rows: dict[str, Any], along: dict[str, Any]) -> tuple[Any, Any]:
    mine = call_of_job(call, job, arrays_of(call, job, call.diff))
    arrays = {name: rows_of(call, job, x) for name, x in rows.items()} | {"along": arrays_of(call, job, along)}

    def body(_: None, some: Call, arrays: Any) -> Any:
        t, along = cut(some, job.walk), arrays["along"]
        moved = cut(Call(some.options, along, {}), job.walk)
        db = None if "bias" not in along else moved.bias
        q, dq, lse = t.whole_rows(some.q), t.whole_rows(along["q"]), t.whole_rows(arrays["lse"], jnp.inf)

        def row(_: None, i: Any, visit: Any) -> Any:
            q_tile, dq_tile, lse_tile = t.queries(q, i), t.queries(dq, i), t.queries(lse, i)
            q_tile, dq_tile = q_tile * some.options.scale, dq_tile * some.options.scale

            def take(state: Any, at: Visit) -> Any:
                out, total = state
                k_tile, v_tile = t.keys(t.k, at), t.keys(t.v, at)
                dots, s = t.scores(at, q_tile, k_tile)
                p = jnp.exp(s - lse_tile)
                dx = t.einsum("bkrh,bksh->bkrs", dq_tile, k_tile)
                dx = dx + t.einsum("bkrh,bksh->bkrs", q_tile, t.keys(moved.k, at))
                slope = t.capped_slope(dots)
                dx = dx if slope is None else dx * slope
                if some.options.score_fn is not None:
                    both = (dots, t.params), (dx, along.get("score_params"))
                    dx = jax.jvp(lambda x, params: t.rescored(x, at, params), *both)[1]
                if db is not None:
                    dx = (t.split(dx) + t.slice(db, at).astype(dx.dtype)).reshape(dx.shape)
                pds = p * dx
                out = out + t.einsum("bkrs,bksh->bkrh", t.keep(at, pds), v_tile)
                out = out + t.einsum("bkrs,bksh->bkrh", t.keep(at, p), t.keys(moved.v, at))
                return out, total + jnp.sum(pds, axis=-1, keepdims=True)

            zeros = jnp.zeros((*q_tile.shape[:-1], t.v.shape[-1]), t.dtype), jnp.zeros(lse_tile.shape, t.dtype)
            out, total = visit(take, zeros)
            return None, (t.from_queries(out), t.from_queries(total)[..., 0])

        return t.rows(row, None)

    _, (out, total) = each(mine, sequences(mine, job), arrays, body, None)
    return back(call, job, out), back(call, job, total)
