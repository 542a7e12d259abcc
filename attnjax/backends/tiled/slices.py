"""A job's arrays, a few sequences at a time: cut out of the arrays of the call, and put back into them.

Sequences are split along the batch axis, or (in a walk through residue classes) along the axis of classes, which
a reshape of the rows provides: row i is row i // step of class i % step. Nothing of full size is transposed.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from attnjax.backends.tiled.jobs import Job
from attnjax.call import Call, Diff, Facts
from attnjax.scores import matmul_precision
from attnjax.shapes import compute_dtype
from attnjax.varying import vary
from attnjax.visible import positions


@functools.partial(jax.tree_util.register_dataclass, data_fields=["x"], meta_fields=["axis"])
@dataclasses.dataclass(frozen=True)
class Sliced:
    """An array of the call with the axis along which the job's sequences are split (None: shared by all)."""

    x: Any
    axis: int | None


def rows(call: Call, job: Job, x: Any, keys: bool = False, fill: float = 0.0) -> Sliced:
    """[B, T|S, N|K, ...] of the call: the job's heads, laid out in the job's rows."""
    chosen, count = (job.key_heads, call.dims.K) if keys else (job.heads, call.dims.N)
    if chosen != tuple(range(count)):
        x = x[:, :, jnp.asarray(chosen)]
    return laid_out(job, x, keys, fill)


def laid_out(job: Job, x: Any, keys: bool = False, fill: float = 0.0) -> Sliced:
    """[B, T|S, n, ...] of the job's heads, the rows as [B, rows, classes, ...] where it has classes.

    Rows, classes and sequences that are not there hold `fill`.
    """
    walk = job.walk
    if walk.step == 1:
        return _along_batch(job, x, fill)
    length, front = (walk.S, walk.shift) if keys else (walk.T, 0)
    x = _pad(x, 1, front, length * walk.step - front - x.shape[1], fill)
    x = x.reshape(x.shape[0], length, walk.step, *x.shape[2:])
    x = x if job.classes == walk.step else x[:, :, : job.classes]
    return Sliced(_pad(x, 2, 0, job.groups * job.size - job.classes, fill), 2)


def scores(call: Call, job: Job, x: Any) -> Sliced:
    """bias or mask [B|1, N|1, T|1, S|1] of the call: the job's heads, [classes, b, n, rows|1, rows|1] with classes."""
    d, walk = call.dims, job.walk
    if x.shape[1] > 1 and job.heads != tuple(range(d.N)):
        x = x[:, jnp.asarray(job.heads)]
    if walk.step == 1:
        return _along_batch(job, x) if x.shape[0] > 1 else Sliced(x, None)
    tall, wide = x.shape[2] > 1, x.shape[3] > 1
    if not (tall or wide or x.shape[0] > 1):
        return Sliced(x, None)
    x = _classes(x, 3, walk.S, walk.shift, job) if wide else x[..., None]
    x = _classes(x, 2, walk.T, 0, job) if tall else x[:, :, :, None]
    if tall and wide:
        x = jnp.diagonal(x, axis1=3, axis2=5)  # rows and columns of one class
    else:
        x = x[:, :, :, 0] if wide else x[..., 0].swapaxes(3, 4)
    x = jnp.broadcast_to(jnp.moveaxis(x, -1, 0), (job.classes, d.B, *x.shape[1:4]))
    return Sliced(_pad(x, 0, 0, job.groups * job.size - job.classes), 0)


def _classes(x: Any, axis: int, length: int, front: int, job: Job) -> Any:
    """An axis of rows as (rows, classes)."""
    x = _pad(x, axis, front, length * job.walk.step - front - x.shape[axis])
    x = x.reshape(*x.shape[:axis], length, job.walk.step, *x.shape[axis + 1 :])
    return lax.slice_in_dim(x, 0, job.classes, axis=axis + 1)


def tree(call: Call, job: Job, arrays: Diff) -> Diff:
    """What is differentiated, or its tangents, sliced for the job."""
    q, k, v = rows(call, job, arrays.q), rows(call, job, arrays.k, keys=True), rows(call, job, arrays.v, keys=True)
    return Diff(q, k, v, arrays.score.cut(lambda bias: scores(call, job, bias), whole))


def whole(x: Any) -> Sliced:
    """An array that all sequences share."""
    return Sliced(x, None)


def facts(call: Call, job: Job) -> Facts:
    """What is not differentiated, sliced for the job, with the rows and heads that the job's are."""
    d, walk, known = call.dims, job.walk, call.facts
    found: dict[str, Any] = {name: jax.tree.map(whole, getattr(known, name)) for name in ("of_rules", "of_score_fn")}
    for name in ("q_offset", "q_ids", "k_ids", "q_pos", "k_pos", "seed", "b_index"):
        if (x := getattr(known, name)) is not None:
            found[name] = per_sequence(job, x)
    if known.mask is not None:
        found["mask"] = scores(call, job, known.mask)
    if job.heads != tuple(range(d.N)):
        found["heads"] = whole(call.heads[:, jnp.asarray(job.heads)])
    elif known.heads is not None:
        found["heads"] = whole(known.heads)
    if walk.step > 1:
        z = positions(job.groups * job.size)[:, None]
        for name, length, front in (("q_index", walk.T, 0), ("k_index", walk.S, walk.shift)):
            index = z + walk.step * positions(length)[None] - front
            found[name] = Sliced(jnp.broadcast_to(index[:, None], (index.shape[0], d.B, length)), 0)
        found["num_keys"] = whole(jnp.int32(d.S))
    return Facts(**found)


def per_sequence(job: Job, x: Any) -> Sliced:
    """An array [B|1, ...] without rows; each class of a walk holds all sequences."""
    if x.shape[0] == 1:
        return Sliced(x, None)
    if job.walk.step == 1:
        return _along_batch(job, x)
    return Sliced(jnp.tile(x, (job.size,) + (1,) * (x.ndim - 1)), None)


def cut(job: Job, sliced: Any, g: Any) -> Any:
    """Group g of a tree of `Sliced`: arrays with one batch axis."""

    def one(leaf: Sliced) -> Any:
        x, axis = leaf.x, leaf.axis
        if axis is None:
            return x
        if job.groups > 1:
            x = lax.dynamic_slice_in_dim(x, g * job.size, job.size, axis)
        if job.walk.step == 1:
            return x
        x = jnp.moveaxis(x, axis, 0)  # [classes, B, ...] -> [classes * B, ...]
        return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])

    return jax.tree.map(one, sliced, is_leaf=is_sliced)


def put(job: Job, total: Sliced, x: Any, g: Any, add: bool = False) -> Sliced:
    """The array with group g replaced (or added to) by what `cut` would give back."""
    axis = total.axis
    if axis is None:
        return Sliced(total.x + x if add else x, None)
    if job.walk.step > 1:
        x = jnp.moveaxis(x.reshape(job.size, -1, *x.shape[1:]), 0, axis)
    if job.groups == 1:
        return Sliced(total.x + x if add else x, axis)
    if add:
        x = x + lax.dynamic_slice_in_dim(total.x, g * job.size, job.size, axis)
    return Sliced(lax.dynamic_update_slice_in_dim(total.x, x, g * job.size, axis), axis)


def restored(call: Call, job: Job, total: Sliced, keys: bool = False) -> Any:
    """An array of rows as `laid_out` made it -> [B, T|S, n, ...]."""
    d, walk, x = call.dims, job.walk, total.x
    if walk.step == 1:
        return x if x.shape[0] == d.B else x[: d.B]
    x = _pad(x[:, :, : job.classes], 2, 0, walk.step - job.classes)
    x = x.reshape(d.B, -1, *x.shape[3:])
    return x[:, walk.shift : walk.shift + d.S] if keys else x[:, : d.T]


def each(call: Call, job: Job, body: Any, carry: Any) -> Any:
    """body(carry, g) for each group of sequences."""
    if job.groups == 1:
        return body(carry, 0)
    carry = vary(carry, call.varies)  # it starts as zeros
    return lax.scan(lambda c, g: (body(c, g), None), carry, positions(job.groups))[0]


def call_of(call: Call, job: Job, diff: Diff, known: Facts) -> Call:
    """A group of a job as a call of its own."""
    return Call(dataclasses.replace(call.options, pattern=job.pattern), diff, known)


def settled(call: Call) -> tuple[Call, Any]:
    """The call with the precision that suits its inputs, and the dtype that everything is computed in.

    The arrays stay as they came: each visit widens its own piece, so that no wide copy of them is ever made.
    """
    precision = matmul_precision(call.options.precision, call.q, call.k, call.v)
    settled = dataclasses.replace(call, options=dataclasses.replace(call.options, precision=precision))
    return settled, compute_dtype(call.q, call.k, call.v)


def _along_batch(job: Job, x: Any, fill: float = 0.0) -> Sliced:
    return Sliced(_pad(x, 0, 0, job.groups * job.size - x.shape[0], fill), 0)


def is_sliced(x: Any) -> bool:
    """For `jax.tree.map(..., is_leaf=is_sliced)`."""
    return isinstance(x, Sliced)


def _pad(x: Any, axis: int, before: int, after: int, fill: float = 0.0) -> Any:
    pads = [(before, after) if a == axis else (0, 0) for a in range(x.ndim)]
    return jnp.pad(x, pads, constant_values=fill) if before or after else x
