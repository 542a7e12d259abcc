"""The one derivative seam around backends that bring their own backward, and one program for every platform.

Output and log-sum-exp, their tangents and the cotangents of what is differentiated are one primitive each. Its lowering
asks which backend suits the platform that the program is lowered for; a program exported for several of them holds what
each one chose. The tangent is linear in the tangents, and its transpose is the pullback, so reverse mode costs what a
hand-written one costs. Derivatives of tangent and pullback (second order) are those of `plain_form`, the same attention
in ordinary JAX.

Learned sinks join outside of the seam, and rows that see no key are cleared before a backward or a tangent runs: no
backend needs to know of either.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from attnjax import plain_form
from attnjax.backends import BACKENDS, choose, derivatives_of
from attnjax.backends.base import PLATFORMS, Target, default_target, target_of
from attnjax.blend import finish, finished, finite_sinks
from attnjax.call import Call, Diff, Facts, Options
from attnjax.joined_batch import joined_batch
from attnjax.shapes import compute_dtype
from attnjax.varying import axes_of, summed_as

SAVED = "attnjax_output", "attnjax_lse"  # names under which `jax.checkpoint` may keep what a derivative needs


class Static(NamedTuple):
    """What a trace depends on beside shapes."""

    options: Options
    backend: str  # "auto", or the one that was named
    lse: bool  # whether the log-sum-exp is asked for


def run(call: Call, backend: str, lse: bool) -> tuple[Any, Any]:
    """(output, log-sum-exp) of the named backend, or of the one that suits the platform, with all derivatives."""
    call = call.alike()
    sinks = call.diff.sink_logits
    static, diff = Static(call.options, backend, lse), dataclasses.replace(call.diff, sink_logits=None)
    o, of_rows = _bind(forward_p, static, diff, call.facts)
    if sinks is None:
        return o, of_rows
    sinks = finite_sinks(sinks.astype(of_rows.dtype))[:, None]
    joined, of_rows = finish(finished(o.astype(of_rows.dtype), of_rows), sinks)
    return joined.astype(o.dtype), of_rows


def pullback(static: Static, closed: bool, diff: Diff, facts: Facts, o: Any, lse: Any, d_o: Any, d_lse: Any) -> Diff:
    """Cotangents of diff; those of the floats that score_fn closes over only if `closed`, else 0."""
    looks = ~jnp.isneginf(lse)
    q, d_o, d_lse = (_cleared(x, looks) for x in (diff.q, d_o, d_lse))
    diff = dataclasses.replace(diff, q=q)
    call = Call(static.options, diff, facts)
    if closed and any(call.varies - axes_of(x) for x in diff.score.closed):
        # score_fn as it was traced sums their derivative over the mesh, which only plain JAX does in the right places
        return summed_as(plain_form.cotangents(call, d_o, d_lse), diff)
    found = _bind(pullback_p, static, diff, facts, o, lse, d_o, d_lse, closed=closed)
    return jax.tree.unflatten(jax.tree.structure(diff), found)


def _cleared(x: Any, looks: Any) -> Any:
    """Rows [B, T, N, ...] with 0 where a query sees no key: what stands there (NaN, say) counts for nothing."""
    return jnp.where(looks.reshape(looks.shape + (1,) * (x.ndim - 3)), x, jnp.zeros_like(x))


# -- what the primitives compute for a target; operands are the leaves of these arguments ------------------------------


def _forward(target: Target, static: Static, diff: Diff, facts: Facts) -> tuple[Any, Any]:
    call = Call(static.options, diff, facts)
    o, lse = BACKENDS[_chosen(call, static, target)].forward(call, target)
    return o, jnp.full(o.shape[:3], jnp.nan, compute_dtype(call.q, call.k, call.v)) if lse is None else lse


def _chosen(call: Call, static: Static, target: Target) -> str:
    return choose(call, static.backend, target, static.lse)[0]


def _tangent(
    target: Target, static: Static, along: Diff, diff: Diff, facts: Facts, o: Any, lse: Any
) -> tuple[Any, Any]:
    looks = ~jnp.isneginf(lse)
    diff, along = (dataclasses.replace(x, q=_cleared(x.q, looks)) for x in (diff, along))
    call = Call(static.options, diff, facts)
    name = _chosen(call, static, target)
    if BACKENDS[name].plain:
        return jax.jvp(functools.partial(_plain, name, target, call), (diff,), (along,))[1]
    return derivatives_of(name).tangent(call, target, o, lse, along)


def _pullback(
    target: Target, static: Static, diff: Diff, facts: Facts, o: Any, lse: Any, d_o: Any, d_lse: Any, *, closed: bool
) -> list[Any]:
    call = Call(static.options, diff, facts)
    call = call if closed else call.with_closed_as_facts()
    name = _chosen(call, static, target)
    if BACKENDS[name].plain:
        (found,) = jax.vjp(functools.partial(_plain, name, target, call), call.diff)[1]((d_o, d_lse))
    else:
        found = derivatives_of(name).backward(call, target, o, lse, d_o, d_lse)
    if not closed:
        zeros = jax.tree.map(jnp.zeros_like, diff.score.closed)
        found = dataclasses.replace(found, score=dataclasses.replace(found.score, closed=zeros))
    return jax.tree.leaves(found)


def _plain(name: str, target: Target, call: Call, diff: Diff) -> tuple[Any, Any]:
    return BACKENDS[name].forward(dataclasses.replace(call, diff=diff), target)


# -- the primitives ----------------------------------------------------------------------------------------------------


def _primitive(name: str, compute: Any, shapes: Any) -> Primitive:
    """A primitive that computes for the platform which it is lowered for; parameters: static, tree, and more."""
    p = Primitive(f"attnjax_{name}")
    p.multiple_results = True

    def computed(target: Target, *args: Any, static: Static, tree: Any, **more: Any) -> list[Any]:
        return list(compute(target, static, *tree.unflatten(args), **more))

    def now(*args: Any, **parameters: Any) -> list[Any]:
        config: Any = jax.config
        if config.jax_disable_jit:
            return computed(default_target(), *args, **parameters)
        return jax.jit(functools.partial(p.bind, **parameters))(*args)

    def lowered(platform: str | None, context: Any, *args: Any, **parameters: Any) -> Any:
        target = _target(context, platform or context.module_context.platforms[0])
        return mlir.lower_fun(functools.partial(computed, target), multiple_results=True)(context, *args, **parameters)

    p.def_impl(now)
    p.def_abstract_eval(lambda *args, static, tree, **_: shapes(tree, *args))
    batching.primitive_batchers[p] = functools.partial(joined_batch, p)
    mlir.register_lowering(p, functools.partial(lowered, None))  # of a plugin
    for platform in PLATFORMS:
        mlir.register_lowering(p, functools.partial(lowered, platform), platform=platform)
    return p


def _target(context: Any, platform: str) -> Target:
    """What a program is lowered for, as far as that is known: its devices, or the chip that its mesh names."""
    where = context.module_context.axis_context
    mesh, devices = getattr(where, "mesh", None), getattr(where, "device_assignment", None)
    if mesh is None:
        count = getattr(where, "num_devices", None) or 1
    else:  # inside of jax.shard_map, which has split what lies along its manual axes
        count = math.prod(size for axis, size in mesh.shape.items() if axis not in where.manual_axes)
        devices = tuple(mesh.devices.flat) if isinstance(mesh, jax.sharding.Mesh) else None
    chip = getattr(jax.sharding.get_abstract_mesh(), "abstract_device", None)
    return target_of(devices[0] if devices else chip or jax.devices()[0], platform, count)


def _bind(p: Primitive, static: Static, *operands: Any, **more: Any) -> list[Any]:
    leaves, tree = jax.tree.flatten(operands)
    return p.bind(*leaves, static=static, tree=tree, **more)


# Types of results, from those of the operands' leaves: no tree may be built where there is no trace.


def _like_queries(tree: Any, q: Any, k: Any, v: Any, *others: Any) -> list[Any]:
    """Of output [B, T, N, h] and log-sum-exp [B, T, N]; they lie on a mesh as queries do."""
    without_last = q.sharding.update(spec=jax.sharding.PartitionSpec(*q.sharding.spec[:3]))
    dtype = jnp.dtype(compute_dtype(q, k, v))
    o = q.update(shape=(*q.shape[:3], v.shape[3]), weak_type=False)
    return [o, q.update(shape=q.shape[:3], dtype=dtype, sharding=without_last, weak_type=False)]


def _like_last_two(tree: Any, *leaves: Any) -> list[Any]:
    return list(leaves[-2:])


def _like_first(tree: Any, *leaves: Any) -> list[Any]:
    return [x.update(weak_type=False) for x in leaves[: tree.children()[0].num_leaves]]


forward_p = _primitive("forward", _forward, _like_queries)
tangent_p = _primitive("tangent", _tangent, _like_last_two)
pullback_p = _primitive("pullback", _pullback, _like_first)


# -- their derivatives -------------------------------------------------------------------------------------------------


def _forward_jvp(primals: Any, tangents: Any, *, static: Static, tree: Any) -> Any:
    # what a derivative keeps are the named ones: a policy of jax.checkpoint that saves them runs no forward twice
    o, lse = map(checkpoint_name, forward_p.bind(*primals, static=static, tree=tree), SAVED)
    diff, facts = tree.unflatten(primals)
    return [o, lse], _bind(tangent_p, static, _along(diff, tangents), diff, facts, o, lse)


def _along(diff: Diff, tangents: Any) -> Diff:
    """The first of these tangents as those of diff, zeros where there are none."""
    leaves, tree = jax.tree.flatten(diff)
    return tree.unflatten([ad.instantiate_zeros(t) for t in tangents[: len(leaves)]])


def _tangent_jvp(primals: Any, tangents: Any, *, static: Static, tree: Any) -> Any:
    """Linear in the tangents; through the other operands, the derivative of the plain form."""
    out = tangent_p.bind(*primals, static=static, tree=tree)
    along, diff, facts, _, _ = tree.unflatten(primals)
    n = len(jax.tree.leaves(along))
    t_along, t_diff = tangents[:n], tangents[n : 2 * n]
    parts = []
    if not all(isinstance(t, ad.Zero) for t in t_along):
        parts.append(tangent_p.bind(*map(ad.instantiate_zeros, t_along), *primals[n:], static=static, tree=tree))
    if not all(isinstance(t, ad.Zero) for t in t_diff):

        def plain(diff: Diff) -> tuple[Any, Any]:
            return plain_form.attention(Call(static.options, diff, facts))

        def along_diff(diff: Diff) -> Any:
            return jax.jvp(plain, (diff,), (along,))[1]

        parts.append(jax.jvp(along_diff, (diff,), (_along(diff, t_diff),))[1])
    return out, [sum(p[1:], p[0]) for p in zip(*parts, strict=True)]


def _tangent_transpose(cts: Any, *args: Any, static: Static, tree: Any) -> list[Any]:
    along, diff, facts, o, lse = tree.unflatten(args)
    if all(isinstance(ct, ad.Zero) for ct in cts):
        return [None] * len(args)
    closed = any(map(ad.is_undefined_primal, along.score.closed))
    found = pullback(static, closed, diff, facts, o, lse, *map(ad.instantiate_zeros, cts))
    linear = jax.tree.leaves(along, is_leaf=ad.is_undefined_primal)
    wanted = [ct if ad.is_undefined_primal(t) else None for ct, t in zip(jax.tree.leaves(found), linear, strict=True)]
    return [*wanted, *[None] * (len(args) - len(wanted))]


def _pullback_jvp(primals: Any, tangents: Any, *, static: Static, tree: Any, closed: bool) -> Any:
    """Output and log-sum-exp follow from diff: their share is in the plain form."""
    diff, facts, _, _, d_o, d_lse = tree.unflatten(primals)

    def again(diff: Diff, d_o: Any, d_lse: Any) -> list[Any]:
        return jax.tree.leaves(plain_form.cotangents(Call(static.options, diff, facts), d_o, d_lse))

    moved = _along(diff, tangents), *map(ad.instantiate_zeros, tangents[-2:])
    _, tangent = jax.jvp(again, (diff, d_o, d_lse), moved)
    return pullback_p.bind(*primals, static=static, tree=tree, closed=closed), tangent


ad.primitive_jvps[forward_p] = _forward_jvp
ad.primitive_jvps[tangent_p] = _tangent_jvp
ad.primitive_transposes[tangent_p] = _tangent_transpose
ad.primitive_jvps[pullback_p] = _pullback_jvp
