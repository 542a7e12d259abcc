"""Arrays that lie on explicit axes of a mesh: each device computes its own sequences and heads, and nothing moves.

`jax.make_mesh` makes explicit axes: types then tell how arrays are split, and operations that would have to move them
are refused. Sequences and heads know nothing of each other, so the call goes through `jax.shard_map` along them.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec, reshard

from attnjax.call import Call
from attnjax.patterns import PerHead
from attnjax.visible import positions

PER_SEQUENCE = ("q_offset", "q_ids", "k_ids", "q_pos", "k_pos", "seed", "b_index")


class Split(NamedTuple):
    """Along which explicit axes of a mesh sequences and heads are split."""

    mesh: Any
    axes: tuple[str, ...]  # all explicit ones
    batch: tuple[str, ...]
    heads: tuple[str, ...]
    shards: int  # of the heads


def split_of(call: Call) -> Split | None:
    """How the call is split; None if no array lies on a mesh with explicit axes.

    Raises:
        ValueError: if its arrays are split in another way than along sequences and heads, or differently.
    """
    meshes = [jax.typeof(x).sharding.mesh for x in jax.tree.leaves((call.diff, call.facts))]
    found = [(mesh, _explicit(mesh)) for mesh in meshes]
    mesh, axes = next(((mesh, axes) for mesh, axes in found if axes), (None, ()))
    if mesh is None:
        return None
    batch, rows, heads, size = _axes(call.q)
    if rows or size:
        raise ValueError(
            f"q[B, T, N, H] is split as {jax.typeof(call.q).sharding.spec}: each device needs whole queries of whole "
            f"sequences; jax.sharding.reshard(q, {_spec(batch, (), heads, ())}) first"
        )
    split = Split(mesh, axes, batch, heads, math.prod(mesh.shape[axis] for axis in heads))
    wanted = _specs(call, split)
    for name, x, spec in (("k", call.k, wanted.diff.k), ("v", call.v, wanted.diff.v), ("bias", call.bias, None),
                          ("mask", call.mask, None)):  # fmt: skip
        if x is None or not any(_axes(x)):
            continue
        spec = _of_scores(x, split) if spec is None else spec
        if jax.typeof(x).sharding.spec != spec:
            raise ValueError(
                f"{name} is split as {jax.typeof(x).sharding.spec}, where q as {jax.typeof(call.q).sharding.spec} "
                f"needs it whole or as {spec}; jax.sharding.reshard({name}, ...) first"
            )
    return split


def run_split(run: Callable[[Call], tuple[Any, Any]], call: Call, split: Split) -> tuple[Any, Any]:
    """(output, log-sum-exp), split as queries are: every device runs its own part of the call.

    Raises:
        ValueError: if heads that lie on different devices cannot run one program.
    """
    d = call.dims
    facts = dataclasses.replace(call.facts, heads=positions(d.N)[None])  # of the whole call
    options = dataclasses.replace(call.options, pattern=_local(call.options.pattern, split.shards))
    call = Call(options, call.diff, facts)
    specs = _specs(call, split)

    def part(call: Call) -> tuple[Any, Any]:
        if split.heads and d.K % split.shards:
            head = lax.axis_index(split.heads) * d.K // split.shards  # the one that all queries of this device share
            k, v = (lax.dynamic_slice_in_dim(x, head, 1, 2) for x in (call.k, call.v))
            call = dataclasses.replace(call, diff=dataclasses.replace(call.diff, k=k, v=v))
        return run(call)

    call = jax.tree.map(lambda x, spec: reshard(x, NamedSharding(split.mesh, spec)), call, specs)
    out = _spec(split.batch, (), split.heads, ()), _spec(split.batch, (), split.heads)
    return jax.shard_map(part, mesh=split.mesh, in_specs=(specs,), out_specs=out, axis_names=set(split.axes))(call)


def _specs(call: Call, split: Split) -> Call:
    """A call of partition specs, of each array how it has to lie."""
    d = call.dims
    if split.shards > 1 and d.K % split.shards and split.shards % d.K:
        raise ValueError(
            f"q's {d.N} heads are split {split.shards} ways, and {d.K} key heads are neither a multiple nor a "
            f"divisor of that: some device would need parts of two; split along sequences, or over fewer devices"
        )
    whole = jax.tree.map(lambda x: PartitionSpec(*[None] * x.ndim), call)
    keys = _spec(split.batch, (), () if d.K % split.shards else split.heads, ())
    score, facts = whole.diff.score, whole.facts
    if call.bias is not None:
        score = dataclasses.replace(score, bias=_of_scores(call.bias, split))
    sinks = call.diff.sink_logits
    diff = dataclasses.replace(
        whole.diff, q=_spec(split.batch, (), split.heads, ()), k=keys, v=keys, score=score,
        sink_logits=None if sinks is None else _spec(split.batch if sinks.shape[0] > 1 else (), split.heads),
    )  # fmt: skip
    known = {name: x for name in PER_SEQUENCE if (x := getattr(call.facts, name)) is not None and x.shape[0] > 1}
    more = {name: _spec(split.batch, *[()] * (x.ndim - 1)) for name, x in known.items()}
    if call.mask is not None:
        more["mask"] = _of_scores(call.mask, split)
    if call.facts.heads is not None:
        more["heads"] = _spec((), split.heads)
    return dataclasses.replace(whole, diff=diff, facts=dataclasses.replace(facts, **more))


def _of_scores(x: Any, split: Split) -> PartitionSpec:
    """Of bias or mask [B|1, N|1, T|1, S|1]."""
    return _spec(split.batch if x.shape[0] > 1 else (), split.heads if x.shape[1] > 1 else (), (), ())


def _local(pattern: Any, shards: int) -> Any:
    """The pattern of the heads of one device."""
    if not isinstance(pattern, PerHead) or shards == 1:
        return pattern
    some = len(pattern.patterns) // shards
    parts = {pattern.patterns[i : i + some] for i in range(0, len(pattern.patterns), some)}
    if len(parts) > 1:
        raise ValueError(
            f"{pattern} has other patterns for other heads, which are split {shards} ways, and all devices run one "
            f"program: split along sequences, or order the heads so that each device has the same patterns"
        )
    return PerHead(parts.pop())


def _explicit(mesh: Any) -> tuple[str, ...]:
    return tuple(axis for axis, kind in zip(mesh.axis_names, mesh.axis_types, strict=True) if kind == AxisType.Explicit)


def _axes(x: Any) -> tuple[tuple[str, ...], ...]:
    """The explicit axes of the mesh along which each axis of an array is split."""
    return tuple(() if e is None else (e,) if isinstance(e, str) else tuple(e) for e in jax.typeof(x).sharding.spec)


def _spec(*axes: tuple[str, ...]) -> PartitionSpec:
    return PartitionSpec(*(None if not names else names[0] if len(names) == 1 else names for names in axes))
