"""One call as jobs: heads of one pattern, in the layout of one walk. Every job is a short call of its own.

A job's arrays are those of the call, rows picked and reordered. All of it is plain, linear JAX, so cotangents
come back through its transpose and tangents go through it unchanged.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from attnjax.call import Call
from attnjax.patterns import PerHead
from attnjax.plan import Plan, plan
from attnjax.scores import matmul_precision
from attnjax.shapes import compute_dtype
from attnjax.tile_sizes import RUN_TIME, Heads
from attnjax.visible import positions
from attnjax.walks import Walk

RUN_TIME_FACTS = ("q_offset", "q_ids", "k_ids", "q_pos", "k_pos")  # what decides at run time who sees whom


class Group(NamedTuple):
    """Query heads that share a pattern."""

    heads: tuple[int, ...]
    pattern: Any
    plan: Plan


class Job(NamedTuple):
    """One walk of one group."""

    heads: tuple[int, ...]
    pattern: Any
    walk: Walk


def at_run_time(call: Call) -> bool:
    """Whether positions or segments decide at run time which tiles are visited."""
    return call.options.plan_by is not None or "q_ids" in call.facts


def groups(call: Call) -> tuple[Group, ...]:
    """The call's heads by pattern, each with its plan."""
    d, o = call.dims, call.options
    split = isinstance(o.pattern, PerHead) and not at_run_time(call) and o.tile is None
    patterns = o.pattern.patterns if split else (o.pattern,) * d.N
    found = []
    for pattern in dict.fromkeys(patterns):
        heads = tuple(n for n, other in enumerate(patterns) if other == pattern)
        found.append(Group(heads, pattern, _plan(call, pattern, heads)))
    return tuple(found)


def _plan(call: Call, pattern: Any, heads: tuple[int, ...]) -> Plan:
    d, o = call.dims, call.options
    tile = o.tile
    if tile is None and at_run_time(call):
        tile = min(RUN_TIME, d.T), min(RUN_TIME, d.S)
    key_heads = _key_heads(d, heads)
    sizes = Heads(d.B, len(heads), len(heads) // len(key_heads))
    masked = call.mask is not None or o.plan_by is not None
    return plan(pattern if o.plan_by is None else o.plan_by, d.T, d.S, o.q_offset, sizes, masked, tile)


def _key_heads(d: Any, heads: tuple[int, ...]) -> tuple[int, ...]:
    """Which key heads these query heads read, in an order in which equal numbers of them share one."""
    size = d.N // d.K
    owners = [n // size for n in heads]
    whole = tuple(dict.fromkeys(owners))
    return whole if len(heads) == size * len(whole) else tuple(owners)


def float32(call: Call) -> Call:
    """The call with q, k and v in the dtype that everything is computed in, cast once."""
    dtype = compute_dtype(call.q, call.k, call.v)
    precision = matmul_precision(call.options.precision, call.q, call.k, call.v)  # of the inputs as they came
    wide = call.diff | {name: call.diff[name].astype(dtype) for name in "qkv"}
    return dataclasses.replace(call, diff=wide, options=dataclasses.replace(call.options, precision=precision))


def arrays_of(call: Call, job: Job, tree: dict[str, Any]) -> dict[str, Any]:
    """What is differentiated (or its tangents) in the rows of the job."""
    found = {name: x for name, x in tree.items() if name == "score_params"}
    for name in "qkv":
        found[name] = rows_of(call, job, tree[name], keys=name != "q")
    if "bias" in tree:
        found["bias"] = _scores(call, job, tree["bias"])
    return found


def rows_of(call: Call, job: Job, x: Any, keys: bool = False, fill: float = 0.0) -> Any:
    """[B, T|S, N|K, ...] of the call in the rows of the job, `fill` where a job's row is none of the call."""
    d = call.dims
    if len(job.heads) < d.N or job.heads != tuple(range(d.N)):
        x = x[:, :, jnp.asarray(_key_heads(d, job.heads) if keys else job.heads)]
    return x if job.walk.step == 1 else _classes(x, job.walk, min(job.walk.step, d.T), keys, fill)


def _classes(x: Any, walk: Walk, classes: int, keys: bool, fill: float) -> Any:
    """[B, length, ...] -> [classes * B, rows, ...]: row m of class z is row z + m * step (less the shift of keys)."""
    rows, front = (walk.S, walk.shift) if keys else (walk.T, 0)
    pads = [(0, 0), (front, rows * walk.step - front - x.shape[1])] + [(0, 0)] * (x.ndim - 2)
    x = jnp.pad(x, pads, constant_values=fill).reshape(x.shape[0], rows, walk.step, *x.shape[2:])[:, :, :classes]
    return jnp.moveaxis(x, 2, 0).reshape(classes * x.shape[0], rows, *x.shape[3:])


def back(call: Call, job: Job, x: Any) -> Any:
    """[classes * B, rows, ...] of a job's queries -> [B, T, ...]."""
    walk, d = job.walk, call.dims
    if walk.step == 1:
        return x
    classes = min(walk.step, d.T)
    x = jnp.moveaxis(x.reshape(classes, d.B, *x.shape[1:]), 0, 2)
    return x.reshape(d.B, walk.T * classes, *x.shape[3:])[:, : d.T]


def _scores(call: Call, job: Job, x: Any) -> Any:
    """bias or mask [B|1, N|1, T|1, S|1] in the rows of the job; heads picked, classes along the batch axis."""
    d, walk = call.dims, job.walk
    if x.shape[1] > 1 and job.heads != tuple(range(d.N)):
        x = x[:, jnp.asarray(job.heads)]
    if walk.step == 1:
        return x
    classes, tall, wide = min(walk.step, d.T), x.shape[2] > 1, x.shape[3] > 1
    if not tall and not wide:
        return x if x.shape[0] == 1 else jnp.tile(x, (classes, 1, 1, 1))
    if wide:
        x = jnp.pad(x, [(0, 0)] * 3 + [(walk.shift, walk.S * walk.step - walk.shift - x.shape[3])])
        x = x.reshape(*x.shape[:3], walk.S, walk.step)[..., :classes]
    else:
        x = jnp.broadcast_to(x[..., None], (*x.shape, classes))
    if tall:
        x = jnp.pad(x, [(0, 0), (0, 0), (0, walk.T * walk.step - x.shape[2]), (0, 0), (0, 0)])
        x = x.reshape(*x.shape[:2], walk.T, walk.step, *x.shape[3:])[:, :, :, :classes]
        x = jnp.diagonal(x, axis1=3, axis2=5)  # rows and columns of one class
    x = jnp.moveaxis(x, -1, 0)
    return jnp.broadcast_to(x, (classes, d.B, *x.shape[2:])).reshape(classes * d.B, *x.shape[2:])


def call_of_job(call: Call, job: Job, diff: dict[str, Any]) -> Call:
    """The job as a call of its own, given its arrays."""
    walk, d = job.walk, call.dims
    facts = dict(call.facts)
    if "mask" in facts:
        facts["mask"] = _scores(call, job, facts["mask"])
    if job.heads != tuple(range(d.N)):
        facts["heads"] = jnp.asarray([job.heads], jnp.int32)
    options = dataclasses.replace(call.options, pattern=job.pattern)
    if walk.step > 1:
        facts["keys"] = jnp.int32(d.S)
        classes = min(walk.step, d.T)
        z = positions(classes)[:, None]
        for name, rows, shift in (("q_index", walk.T, 0), ("k_index", walk.S, walk.shift)):
            index = z + walk.step * positions(rows)[None] - shift
            facts[name] = jnp.repeat(index, d.B, axis=0)
        for name in ("seed", "b_index"):
            if name in facts and facts[name].shape[0] > 1:
                facts[name] = jnp.tile(facts[name], (classes,) + (1,) * (facts[name].ndim - 1))
        if "b_index" in facts:
            facts["b_index"] = jnp.broadcast_to(facts["b_index"], (classes * d.B,))
    return Call(options, diff, facts)


def pulled(call: Call, job: Job, cotangents: dict[str, Any]) -> dict[str, Any]:
    """Cotangents of a job's arrays brought back to the arrays of the call."""
    tree = {name: x for name, x in call.diff.items() if name != "sink_logits"}
    dtype = compute_dtype(call.q, call.k, call.v)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, dtype), tree)
    return jax.linear_transpose(lambda x: arrays_of(call, job, x), shapes)(cotangents)[0]
