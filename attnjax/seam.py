"""The one derivative seam around backends that bring their own backward.

`run` is a custom_jvp whose tangent is one primitive of ours, `tangent_p`, linear in the tangents. Its
transpose is the backend's backward, so reverse mode costs what a hand-written one costs; its lowering is the
backend's tangent, so forward mode works too. Derivatives of the tangent and of the backward (second order)
are those of `plain`, the same attention row block by row block in ordinary JAX: any order, O(T) memory.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from attnjax import reference
from attnjax.backends import BACKENDS
from attnjax.call import Call, Options
from attnjax.visible import positions, visible_at

PLAIN_ROWS = 128  # queries that the plain form takes at once


class Static(NamedTuple):
    """What a trace depends on beside shapes."""

    options: Options
    backend: str


def _call(static: Static, diff: tuple[Any, ...], mask: Any) -> Call:
    """diff is (q, k, v) or (q, k, v, bias)."""
    return Call(static.options, *diff[:3], bias=diff[3] if len(diff) > 3 else None, mask=mask)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def run(static: Static, diff: tuple[Any, ...], mask: Any) -> tuple[Any, Any]:
    """(output, log-sum-exp) of the named backend, differentiable in every mode."""
    return BACKENDS[static.backend].forward(_call(static, diff, mask))


@run.defjvp
def _run_jvp(static: Static, primals: Any, tangents: Any) -> Any:
    diff, mask = primals
    o, lse = run(static, diff, mask)
    rest = () if mask is None else (mask,)
    d_o, d_lse = tangent_p.bind(*tangents[0], *diff, *rest, o, lse, static=static, n=len(diff))
    return (o, lse), (d_o, d_lse)


def plain(static: Static, diff: tuple[Any, ...], mask: Any) -> tuple[Any, Any]:
    """(output, log-sum-exp) in ordinary JAX, a block of query rows at a time, recomputed when differentiated."""
    call, o = _call(static, diff, mask), static.options
    d = call.dims
    rows = min(PLAIN_ROWS, d.T)
    blocks = -(-d.T // rows)

    def padded(x: Any, axis: int) -> Any:
        """Whole blocks along a query axis; None and broadcast axes stay."""
        if x is None or x.shape[axis] == 1 and d.T > 1:
            return x
        return jnp.pad(x, [(0, (blocks * rows - d.T) * (a == axis)) for a in range(x.ndim)])

    def cut(x: Any, axis: int, i: Any) -> Any:
        return x if x is None or x.shape[axis] == 1 else lax.dynamic_slice_in_dim(x, i * rows, rows, axis)

    q, bias, hidden = padded(call.q, 1), padded(call.bias, 2), padded(call.mask, 2)

    @jax.checkpoint
    def block(i: Any) -> tuple[Any, Any]:
        row = i * rows + positions(rows)
        seen = visible_at(o.pattern, o.q_offset + row, positions(d.S)) & (row < d.T)[None, None, :, None]
        seen = seen if hidden is None else seen & cut(hidden, 2, i)
        return reference.attention(
            cut(q, 1, i), call.k, call.v, seen, scale=o.scale, soft_cap=o.soft_cap, bias=cut(bias, 2, i),
            precision=o.precision,
        )

    out, lse = lax.map(block, positions(blocks))
    out = jnp.moveaxis(out, 0, 1).reshape(d.B, blocks * rows, d.N, d.h)
    return out[:, : d.T], jnp.moveaxis(lse, 0, 1).reshape(d.B, blocks * rows, d.N)[:, : d.T]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def pullback(static: Static, diff: Any, mask: Any, o: Any, lse: Any, d_o: Any, d_lse: Any) -> tuple[Any, ...]:
    """Cotangents of diff by the backend's backward; differentiable again through the plain form."""
    return BACKENDS[static.backend].backward(_call(static, diff, mask), o, lse, d_o, d_lse)


@pullback.defjvp
def _pullback_jvp(static: Static, primals: Any, tangents: Any) -> Any:
    diff, mask, o, lse, d_o, d_lse = primals
    t_diff, _, _, _, t_o, t_lse = tangents  # o and lse follow from diff: their share is in the plain form

    def plain_pullback(diff: Any, d_o: Any, d_lse: Any) -> Any:
        return jax.vjp(lambda *d: plain(static, d, mask), *diff)[1]((d_o, d_lse))

    _, tangent = jax.jvp(plain_pullback, (diff, d_o, d_lse), (t_diff, t_o, t_lse))
    return pullback(static, diff, mask, o, lse, d_o, d_lse), tangent


# -- the tangent primitive: operands are n tangents, n differentiable arrays, maybe a mask, o and lse ---------

tangent_p = Primitive("attnjax_tangent")
tangent_p.multiple_results = True


def _parts(args: Any, n: int) -> tuple[Any, Any, Any, Any, Any]:
    """(tangents, diff, mask or None, o, lse)."""
    mask, o, lse = args[2 * n :] if len(args) == 2 * n + 3 else (None, *args[2 * n :])
    return tuple(args[:n]), tuple(args[n : 2 * n]), mask, o, lse


def _tangent(*args: Any, static: Static, n: int) -> list[Any]:
    tangents, diff, mask, o, lse = _parts(args, n)
    d_bias = tangents[3] if n > 3 else None
    return list(BACKENDS[static.backend].tangent(_call(static, diff, mask), o, lse, *tangents[:3], d_bias))


def _tangent_jvp(primals: Any, tangents: Any, *, static: Static, n: int) -> Any:
    """Linear in the tangents; through the other operands, the derivative of the plain form."""
    out = tangent_p.bind(*primals, static=static, n=n)
    lin, diff, mask, _, _ = _parts(primals, n)
    t_lin, t_diff, *_ = _parts(tangents, n)
    parts = []
    if not all(isinstance(t, ad.Zero) for t in t_lin):
        t_lin = [ad.instantiate_zeros(t) for t in t_lin]
        parts.append(tangent_p.bind(*t_lin, *primals[n:], static=static, n=n))
    if not all(isinstance(t, ad.Zero) for t in t_diff):

        def along(*diff: Any) -> Any:
            return jax.jvp(lambda *d: plain(static, d, mask), diff, lin)[1]

        parts.append(list(jax.jvp(along, diff, tuple(ad.instantiate_zeros(t) for t in t_diff))[1]))
    return out, [sum(p[1:], p[0]) for p in zip(*parts, strict=True)]


def _tangent_transpose(cts: Any, *args: Any, static: Static, n: int) -> list[Any]:
    tangents, diff, mask, o, lse = _parts(args, n)
    if all(isinstance(ct, ad.Zero) for ct in cts):
        return [None] * len(args)
    d_o, d_lse = (ad.instantiate_zeros(ct) for ct in cts)
    found = pullback(static, diff, mask, o, lse, d_o, d_lse)
    wanted = [ct if ad.is_undefined_primal(t) else None for ct, t in zip(found, tangents, strict=True)]
    return [*wanted, *[None] * (len(args) - n)]


def _tangent_batch(args: Any, axes: Any, *, static: Static, n: int) -> Any:
    """The mapped axis joins the batch axis, and the primitive is bound again."""
    size = next(x.shape[a] for x, a in zip(args, axes, strict=True) if a is not None)
    B = args[n].shape[0] if axes[n] is None else args[n].shape[1 if axes[n] == 0 else 0]
    spread = {n - 1, 2 * n - 1} if n > 3 and (axes[n - 1], axes[2 * n - 1]) != (None, None) else set()

    def join(position: int, x: Any, axis: Any) -> Any:
        broadcasts = position in (3, n + 3) and n > 3 or len(args) == 2 * n + 3 and position == 2 * n
        if axis is None:
            if broadcasts and x.shape[0] == 1 and position not in spread:
                return x
            x = jnp.broadcast_to(x, (size, *x.shape))
        else:
            x = jnp.moveaxis(x, axis, 0)
        x = jnp.broadcast_to(x, (size, B, *x.shape[2:]))
        return x.reshape(size * B, *x.shape[2:])

    joined = [join(i, x, axis) for i, (x, axis) in enumerate(zip(args, axes, strict=True))]
    out = tangent_p.bind(*joined, static=static, n=n)
    return [x.reshape(size, B, *x.shape[1:]) for x in out], [0, 0]


tangent_p.def_impl(jax.jit(_tangent, static_argnames=("static", "n")))
tangent_p.def_abstract_eval(lambda *args, static, n: list(args[-2:]))
ad.primitive_jvps[tangent_p] = _tangent_jvp
ad.primitive_transposes[tangent_p] = _tangent_transpose
batching.primitive_batchers[tangent_p] = _tangent_batch
mlir.register_lowering(tangent_p, mlir.lower_fun(_tangent, multiple_results=True))
