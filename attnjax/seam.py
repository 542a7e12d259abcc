"""The one derivative seam around backends that bring their own backward.

`run` is a custom_jvp whose tangent is one primitive of ours, `tangent_p`, linear in the tangents. Its
transpose is the backend's backward, so reverse mode costs what a hand-written one costs; its lowering is the
backend's tangent, so forward mode works too. Derivatives of the tangent and of the backward (second order)
are those of `plain`, the same attention row block by row block in ordinary JAX: any order, O(T) memory.

Learned sinks join outside of the seam, and rows that see no key are cleared before a backward or a tangent runs: no
backend needs to know of either.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from attnjax import reference
from attnjax.backends import BACKENDS, derivatives_of
from attnjax.backends.base import Target
from attnjax.blend import finish, finished, finite_sinks
from attnjax.call import Call, Diff, Facts, Options
from attnjax.shapes import compute_dtype
from attnjax.varying import axes_of, summed_as
from attnjax.visible import positions

SAVED = "attnjax_output", "attnjax_lse"  # names under which `jax.checkpoint` may keep what a derivative needs
PLAIN_ROWS = 128  # queries that the plain form takes at once
BROADCASTING = ("bias", "mask", "q_offset", "q_ids", "k_ids", "q_pos", "k_pos", "seed", "heads")  # B or 1
WITHOUT_BATCH = ("params", "closed", "of_rules", "of_score_fn")  # what functions of the call read: any shapes


class Static(NamedTuple):
    """What a trace depends on beside shapes."""

    options: Options
    backend: str
    target: Target


def run(static: Static, diff: Diff, facts: Facts) -> tuple[Any, Any]:
    """(output, log-sum-exp) of the named backend, differentiable in every mode."""
    o, lse = _run(static, dataclasses.replace(diff, sink_logits=None), facts)
    if diff.sink_logits is None:
        return o, lse
    sinks = finite_sinks(diff.sink_logits.astype(lse.dtype))[:, None]
    joined, lse = finish(finished(o.astype(lse.dtype), lse), sinks)
    return joined.astype(o.dtype), lse


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _run(static: Static, diff: Diff, facts: Facts) -> tuple[Any, Any]:
    """(output, log-sum-exp) over the keys."""
    return BACKENDS[static.backend].forward(Call(static.options, diff, facts).alike(), static.target)


@_run.defjvp
def _run_jvp(static: Static, primals: Any, tangents: Any) -> Any:
    diff, facts = primals
    # what a derivative keeps are the named ones: a policy of jax.checkpoint that saves them runs no forward twice
    o, lse = map(checkpoint_name, _run(static, diff, facts), SAVED)
    return (o, lse), _bind(static, tangents[0], diff, facts, o, lse)


def plain(static: Static, diff: Diff, facts: Facts) -> tuple[Any, Any]:
    """(output, log-sum-exp) in ordinary JAX, a block of query rows at a time, recomputed when differentiated."""
    call, o = Call(static.options, diff, facts), static.options
    d = call.dims
    rows = min(PLAIN_ROWS, d.T)
    blocks = -(-d.T // rows)

    def padded(x: Any, axis: int) -> Any:
        """Whole blocks along a query axis; None and broadcast axes stay."""
        if x is None or (x.shape[axis] == 1 and d.T > 1):
            return x
        return jnp.pad(x, [(0, (blocks * rows - d.T) * (a == axis)) for a in range(x.ndim)])

    def cut(x: Any, axis: int, i: Any) -> Any:
        return x if x is None or x.shape[axis] == 1 else lax.dynamic_slice_in_dim(x, i * rows, rows, axis)

    q, bias, mask = padded(call.q, 1), padded(call.bias, 2), padded(call.mask, 2)
    col = positions(d.S)

    @jax.checkpoint
    def block(i: Any) -> tuple[Any, Any]:
        row, some = i * rows + positions(rows), dataclasses.replace(diff.score, bias=cut(bias, 2, i))
        return reference.attention(
            cut(q, 1, i),
            call.k,
            call.v,
            call.seen(row, col, cut(mask, 2, i), some.bias) & (row < d.T)[None, None, :, None],
            scale=o.rule.scale,
            rule=lambda dots: call.scores(dots, row, col, some),
            dropout=call.dropout(row, col, compute_dtype(call.q, call.k, call.v)),
            precision=o.precision,
        )

    out, lse = lax.map(block, positions(blocks))
    out = jnp.moveaxis(out, 0, 1).reshape(d.B, blocks * rows, d.N, d.h)
    return out[:, : d.T], jnp.moveaxis(lse, 0, 1).reshape(d.B, blocks * rows, d.N)[:, : d.T]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def pullback(static: Static, closed: bool, diff: Diff, facts: Facts, o: Any, lse: Any, d_o: Any, d_lse: Any) -> Diff:
    """Cotangents of diff by the backend's backward; differentiable again through the plain form.

    Those of the floats that score_fn closes over only if `closed`, else 0.
    """
    looks = ~jnp.isneginf(lse)
    q, d_o, d_lse = (_cleared(x, looks) for x in (diff.q, d_o, d_lse))
    call = Call(static.options, dataclasses.replace(diff, q=q), facts)
    if closed and any(call.varies - axes_of(x) for x in diff.score.closed):
        # score_fn as it was traced sums their derivative over the mesh, which only plain JAX does in the right places
        return summed_as(_plain_pullback(static, call.diff, facts, d_o, d_lse), diff)
    call = call if closed else call.with_closed_as_facts()
    found = derivatives_of(static.backend).backward(call.alike(), static.target, o, lse, d_o, d_lse)
    if not closed:
        zeros = jax.tree.map(jnp.zeros_like, diff.score.closed)
        found = dataclasses.replace(found, score=dataclasses.replace(found.score, closed=zeros))
    return summed_as(found, diff)


def _plain_pullback(static: Static, diff: Diff, facts: Facts, d_o: Any, d_lse: Any) -> Diff:
    return jax.vjp(lambda d: plain(static, d, facts), diff)[1]((d_o, d_lse))[0]


def _cleared(x: Any, looks: Any) -> Any:
    """Rows [B, T, N, ...] with 0 where a query sees no key: what stands there (NaN, say) counts for nothing."""
    return jnp.where(looks.reshape(looks.shape + (1,) * (x.ndim - 3)), x, jnp.zeros_like(x))


@pullback.defjvp
def _pullback_jvp(static: Static, closed: bool, primals: Any, tangents: Any) -> Any:
    diff, facts, o, lse, d_o, d_lse = primals
    t_diff, _, _, _, t_o, t_lse = tangents  # o and lse follow from diff: their share is in the plain form

    def again(diff: Diff, d_o: Any, d_lse: Any) -> Diff:
        return _plain_pullback(static, diff, facts, d_o, d_lse)

    _, tangent = jax.jvp(again, (diff, d_o, d_lse), (t_diff, t_o, t_lse))
    return pullback(static, closed, diff, facts, o, lse, d_o, d_lse), tangent


# -- the tangent primitive: its operands are the leaves of (tangents, diff, facts, o, lse) -------------------

tangent_p = Primitive("attnjax_tangent")
tangent_p.multiple_results = True


def _bind(static: Static, along: Diff, diff: Diff, facts: Facts, o: Any, lse: Any) -> tuple[Any, Any]:
    leaves, tree = jax.tree.flatten((along, diff, facts, o, lse))
    return tuple(tangent_p.bind(*leaves, static=static, tree=tree))


def _tangent(*args: Any, static: Static, tree: Any) -> list[Any]:
    along, diff, facts, o, lse = tree.unflatten(args)
    looks = ~jnp.isneginf(lse)
    diff, along = (dataclasses.replace(x, q=_cleared(x.q, looks)) for x in (diff, along))
    call = Call(static.options, diff, facts)
    return list(derivatives_of(static.backend).tangent(call.alike(), static.target, o, lse, call.varied(along)))


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
        t_diff = jax.tree.unflatten(jax.tree.structure(diff), map(ad.instantiate_zeros, t_diff))

        def along_diff(diff: Diff) -> Any:
            return jax.jvp(lambda d: plain(static, d, facts), (diff,), (along,))[1]

        parts.append(jax.jvp(along_diff, (diff,), (t_diff,))[1])
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


def _tangent_batch(args: Any, axes: Any, *, static: Static, tree: Any) -> Any:
    """The mapped axis joins the batch axis, and the primitive is bound again."""
    size = next(x.shape[a] for x, a in zip(args, axes, strict=True) if a is not None)
    args = [x if a is None else jnp.moveaxis(x, a, 0) for x, a in zip(args, axes, strict=True)]
    names = _names(tree)
    if any(a is not None and name in WITHOUT_BATCH for name, a in zip(names, axes, strict=True)):
        # these have no batch axis to join: one element after the other
        mapped = [x for x, a in zip(args, axes, strict=True) if a is not None]

        def one(values: Any) -> Any:
            values = iter(values)
            full = [x if a is None else next(values) for x, a in zip(args, axes, strict=True)]
            return tangent_p.bind(*full, static=static, tree=tree)

        return lax.map(one, mapped), [0, 0]
    B = args[-1].shape[0 if axes[-1] is None else 1]  # of lse
    spread = {name for name, a in zip(names, axes, strict=True) if a is not None}  # tangents spread with their arrays

    def join(x: Any, axis: Any, name: str) -> Any:
        if axis is None:
            if name in WITHOUT_BATCH or (name in BROADCASTING and x.shape[0] == 1 and name not in spread):
                return x
            x = jnp.broadcast_to(x[None], (size, *x.shape))
        return jnp.broadcast_to(x, (size, B, *x.shape[2:])).reshape(size * B, *x.shape[2:])

    joined = [join(x, a, name) for x, a, name in zip(args, axes, names, strict=True)]
    out = tangent_p.bind(*joined, static=static, tree=tree)
    return [x.reshape(size, B, *x.shape[1:]) for x in out], [0, 0]


def _names(tree: Any) -> list[str]:
    """For each operand the field that holds it ('o' and 'lse' for the last two)."""
    along, diff, facts, _, _ = tree.unflatten(range(tree.num_leaves))
    paths = [path for part in (along, diff, facts) for path, _ in jax.tree_util.tree_leaves_with_path(part)]
    return [path[path[0].name == "score"].name for path in paths] + ["o", "lse"]


tangent_p.def_impl(jax.jit(_tangent, static_argnames=("static", "tree")))
tangent_p.def_abstract_eval(lambda *args, static, tree: list(args[-2:]))
ad.primitive_jvps[tangent_p] = _tangent_jvp
ad.primitive_transposes[tangent_p] = _tangent_transpose
batching.primitive_batchers[tangent_p] = _tangent_batch
mlir.register_lowering(tangent_p, mlir.lower_fun(_tangent, multiple_results=True))
