"""Every row of the shared table on every path: values, gradients, transformations."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attnjax as aj
from tests.support import oracle
from tests.support.budget import assert_within, budget
from tests.support.table import PATHS, ROWS, Row, arrays, caller, value_and_gradients

NAMES = ("o", "lse", "d_q", "d_k", "d_v", "d_bias")
on_every_path = pytest.mark.parametrize("path", PATHS)


@functools.cache
def truth(row):
    """(exact results, honest results): the oracle in float64, and in the arithmetic that the backends claim."""
    q, k, v, bias, mask, d_o, d_lse = arrays(row)
    seen = row.seen if mask is None else row.seen & mask
    rules = {"scale": row.H**-0.5 if row.scale is None else row.scale, "soft_cap": row.soft_cap, "bias": bias}
    d_lse = np.where(np.isneginf(oracle.attention(q, k, v, seen, **rules).lse), 0, d_lse)
    rules |= {"d_o": d_o, "d_lse": d_lse}
    honest = {"dtype": np.float64 if row.dtype == "float64" else np.float32, "store": jnp.dtype(row.dtype)}
    return oracle.attention(q, k, v, seen, **rules), oracle.attention(q, k, v, seen, **rules, **honest)


@on_every_path
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_values_and_gradients(row, path):
    with jax.enable_x64(row.dtype == "float64"):
        exact, honest = truth(row)
        inputs = [None if x is None else jnp.asarray(x) for x in arrays(row)]
        jitted = jax.jit(lambda *a: value_and_gradients(caller(row, path), *a))
        got, again = jitted(*inputs), jitted(*inputs)
        assert got[0].dtype == row.dtype and got[1].dtype == (jnp.float64 if row.dtype == "float64" else jnp.float32)
        largest = max(np.abs(g).max() for g in exact[2:6] if g is not None)
        for name, x, same, fair, want in zip(NAMES, got, again, honest, exact, strict=False):
            limit = budget(fair, want, x.dtype, largest if name.startswith("d_") else None)
            assert_within(x, want, limit, f"{name} of {row.name}")
            assert np.array_equal(np.asarray(x), np.asarray(same)), f"{name} differs between two runs"


FEW = [row for row in ROWS if row.name in (
    "causal()&~window(3) mask=BS", "band(3,4) soft_cap=3.0 bias=S", "window(6) T=9 S=30 q_offset=21 mask=TS",
)]  # fmt: skip


def test_the_few_rows_are_there():
    assert len(FEW) == 3


@on_every_path
@pytest.mark.parametrize("row", FEW, ids=lambda row: row.name)
def test_jit_is_eager_and_traces_once(row, path):
    q, k, v, bias, mask, _, _ = (None if x is None else jnp.asarray(x) for x in arrays(row))
    call = caller(row, path)
    eager = call(q, k, v, bias, mask)
    jitted = jax.jit(chex.assert_max_traces(lambda *a: call(*a), n=1))
    for _ in range(3):
        for a, b in zip(eager, jitted(q, k, v, bias, mask), strict=True):
            assert np.array_equal(a, b)
    chex.clear_trace_counter()


@on_every_path
@pytest.mark.slow
@pytest.mark.parametrize("axes", [(0, 0, 0), (1, None, 3), (None, 2, 0), (4, 4, None)])
def test_vmap_of_values_and_of_gradients(axes, path):
    row = Row(aj.Window(6) | aj.Sink(1), T=11, bias="BN", mask="S")
    q, k, v, bias, mask, d_o, _ = (None if x is None else jnp.asarray(x) for x in arrays(row))
    call = caller(row, path)
    stacked = [x if a is None else jnp.stack([x, 2 * x, x - 1], a) for x, a in zip((q, k, v), axes, strict=True)]
    each = [[x if a is None else jnp.take(x, i, a) for x, a in zip(stacked, axes, strict=True)] for i in range(3)]

    def loss(q, k, v):
        o, lse = call(q, k, v, bias, mask)
        return jnp.sum(o * d_o) + jnp.sum(lse)

    both = jax.value_and_grad(loss, (0, 1, 2))
    mapped = jax.jit(jax.vmap(both, in_axes=axes))(*stacked)
    single = jax.tree.map(lambda *x: jnp.stack(x), *[jax.jit(both)(*x) for x in each])
    chex.assert_trees_all_close(mapped, single, rtol=2e-5, atol=2e-5)

    total = jax.jit(jax.grad(lambda *x: jnp.sum(jax.vmap(loss, in_axes=axes)(*x)), (0, 1, 2)))(*stacked)
    for got, one, axis in zip(total, single[1], axes, strict=True):
        want = jnp.sum(one, axis=0) if axis is None else jnp.moveaxis(one, 0, axis)
        chex.assert_trees_all_close(got, want, rtol=2e-5, atol=2e-5)


@on_every_path
@pytest.mark.slow
def test_vmap_over_bias_and_mask(path):
    row = Row(aj.Causal(), T=11, bias="NTS", mask="BS")
    q, k, v, bias, mask, d_o, _ = (jnp.asarray(x) for x in arrays(row))
    call = caller(row, path)
    biases, masks = jnp.stack([bias, bias * 2], 1), jnp.stack([mask, ~mask], 4)

    def gradient(bias, mask):
        return jax.grad(lambda b: jnp.sum(call(q, k, v, b, mask)[0] * d_o))(bias)

    mapped = jax.vmap(gradient, in_axes=(1, 4))(biases, masks)
    each = jnp.stack([gradient(biases[:, i], masks[..., i]) for i in range(2)])
    chex.assert_trees_all_close(mapped, each, rtol=2e-5, atol=2e-5)
    total = jax.grad(lambda b: jnp.sum(jax.vmap(lambda b, m: call(q, k, v, b, m)[0], (1, 4))(b, masks) * d_o[None]))
    chex.assert_trees_all_close(total(biases), jnp.moveaxis(each, 0, 1), rtol=2e-5, atol=2e-5)


@on_every_path
@pytest.mark.slow
@pytest.mark.parametrize("pattern", [aj.Window(5) | aj.Sink(1), aj.Causal() & ~aj.Window(2)], ids=str)
def test_forward_mode_and_second_order(pattern, path):
    with jax.enable_x64(True):
        row = Row(pattern, B=1, T=10, N=2, K=1, H=3, h=2, dtype="float64", soft_cap=2.0, bias="NS", mask="TS")
        q, k, v, bias, mask, d_o, d_lse = (jnp.asarray(x) for x in arrays(row))
        bias = jnp.where(jnp.isneginf(bias), 0.5, bias)
        inputs, along = (q, k, v, bias), tuple(jnp.asarray(x) for x in arrays(row, seed=1)[:4])
        along = (*along[:3], jnp.where(jnp.isneginf(along[3]), 0.5, along[3]))
        call = caller(row, path)

        def loss(*x):
            o, lse = call(*x, mask)
            return jnp.sum(jnp.sin(o) * d_o) + jnp.sum(jnp.where(jnp.isneginf(lse), 0, lse) ** 2 * d_lse)

        step = 1e-5
        shifted = lambda f, s: f(*(x + s * t for x, t in zip(inputs, along, strict=True)))  # noqa: E731  # shorthand
        differences = lambda f: jax.tree.map(lambda a, b: (a - b) / (2 * step), shifted(f, step), shifted(f, -step))  # noqa: E731
        gradient = jax.jit(jax.grad(loss, (0, 1, 2, 3)))
        slope = jax.jvp(loss, inputs, along)[1]
        chex.assert_trees_all_close(slope, differences(loss), rtol=1e-7)
        chex.assert_trees_all_close(slope, sum(jnp.sum(g * t) for g, t in zip(gradient(*inputs), along, strict=True)))
        forward_over_reverse = jax.jvp(gradient, inputs, along)[1]
        chex.assert_trees_all_close(forward_over_reverse, differences(gradient), rtol=1e-6, atol=1e-7)
        reverse_over_forward = jax.grad(lambda *x: jax.jvp(loss, x, along)[1], (0, 1, 2, 3))(*inputs)
        chex.assert_trees_all_close(reverse_over_forward, forward_over_reverse, rtol=1e-9, atol=1e-10)
        twice = jax.grad(lambda *x: sum(jnp.sum(g * t) for g, t in zip(jax.grad(loss, (0, 1, 2, 3))(*x), along, strict=True)), (0, 1, 2, 3))
        chex.assert_trees_all_close(twice(*inputs), forward_over_reverse, rtol=1e-9, atol=1e-10)
        linear = jax.linearize(loss, *inputs)[1]
        chex.assert_trees_all_close(linear(*along), slope)


@on_every_path
@pytest.mark.slow
def test_inside_remat_and_scan(path):
    row = Row(aj.Window(4), T=12)
    q, k, v, *_ = (None if x is None else jnp.asarray(x) for x in arrays(row))
    call = caller(row, path)

    def layer(x, _):
        return x + call(x, k, v)[0], None

    def deep(q):
        return jnp.sum(jax.lax.scan(jax.checkpoint(layer), q, None, length=3)[0] ** 2)

    def flat(q):
        for _ in range(3):
            q = layer(q, None)[0]
        return jnp.sum(q**2)

    chex.assert_trees_all_close(jax.jit(jax.grad(deep))(q), jax.jit(jax.grad(flat))(q), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("path", ["dense", "tiled 8x4"])
def test_derivatives_of_every_kind_on_a_small_call(path):
    """The quick look at what the slow tests cover: vmap of grad, jvp, jvp of grad against the dense reference."""
    row = Row(aj.Window(3) | aj.Sink(1), B=1, T=9, N=2, K=1, H=2, h=2)
    q, k, v, _, _, d_o, _ = (None if x is None else jnp.asarray(x) for x in arrays(row))

    def derivatives(call):
        loss = lambda q: jnp.sum(jnp.sin(call(q, k, v)[0]) * d_o)  # noqa: E731  # a local shorthand
        slope, curve = jax.jvp(jax.grad(loss), (q,), (d_o,))
        return jax.vmap(jax.grad(loss))(jnp.stack([q, 2 * q])), jax.jvp(loss, (q,), (d_o,)), slope, curve

    got, want = (jax.jit(lambda p=p: derivatives(caller(row, p)))() for p in (path, "dense"))
    chex.assert_trees_all_close(got, want, rtol=1e-5, atol=1e-5)


@on_every_path
@pytest.mark.slow
def test_jacobians_agree(path):
    row = Row(aj.Window(3) | aj.Sink(1), B=1, T=4, N=2, K=1, H=2, h=2)
    q, k, v, *_ = (None if x is None else jnp.asarray(x) for x in arrays(row))
    f = lambda q: caller(row, path)(q, k, v)[0]  # noqa: E731  # a local shorthand
    chex.assert_trees_all_close(jax.jacrev(f)(q), jax.jacfwd(f)(q), rtol=1e-5, atol=1e-6)


@on_every_path
@pytest.mark.parametrize("filler", [np.nan, np.inf])
def test_what_nobody_sees_changes_nothing(path, filler):
    """Case N11: hidden keys and values may hold NaN; values and gradients do not notice."""
    row = Row(aj.Window(4), T=6, S=20, q_offset=9, mask="BS")
    q, k, v, _, mask, d_o, d_lse = (None if x is None else np.array(x) for x in arrays(row))
    mask[..., 7] = False
    hidden = ~(row.seen & mask).any(axis=(1, 2))  # [B, S]
    assert hidden.any() and not hidden.all()
    bad_k, bad_v = (np.where(hidden[:, :, None, None], filler, x).astype(np.float32) for x in (k, v))
    clean = value_and_gradients(caller(row, path), *map(jnp.asarray, (q, k, v)), None, jnp.asarray(mask), d_o, d_lse)
    dirty = value_and_gradients(
        caller(row, path), *map(jnp.asarray, (q, bad_k, bad_v)), None, jnp.asarray(mask), d_o, d_lse
    )
    for a, b in zip(clean, dirty, strict=True):
        assert np.array_equal(a, b)
