"""Rows chosen by hand, their options side by side, on every path, small tiles among them.

The quick look at every option, shape and way of calling is test_pairs.py.
"""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attnjax as aj
from tests.support.budget import assert_within
from tests.support.paired import limits, sample, wide
from tests.support.table import (
    PATHS,
    ROWS,
    Row,
    alibi,
    caller,
    data,
    dropout_factors,
    on_device,
    value_and_gradients,
)

on_every_path = pytest.mark.parametrize("path", PATHS)


@on_every_path
@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_values_and_gradients(row, path):
    with jax.enable_x64(row.dtype == "float64"):
        inputs, _, d_o, d_lse = on_device(data(row)._replace(options={}))
        jitted = jax.jit(functools.partial(value_and_gradients, caller(row, path)))
        got, again = jitted(inputs, d_o, d_lse), jitted(inputs, d_o, d_lse)
        assert got["o"].dtype == row.dtype and got["lse"].dtype == wide(row)
        assert set(got) == {"o", "lse", *(f"d_{name}" for name in inputs)}
        for name, (exact, limit) in limits(sample(row), got).items():
            assert_within(got[name], exact, limit, f"{name} of {row.name}")
            assert np.array_equal(got[name], again[name]), f"{name} differs between two runs"


@pytest.mark.cross
@on_every_path
def test_traced_offsets_share_one_trace(path):
    row = Row(aj.Window(4) | aj.Sink(1), T=3, S=20, q_offset=0)
    inputs = on_device(data(row).inputs)
    jitted = jax.jit(chex.assert_max_traces(lambda x, at: caller(row, path, {"q_offset": at})(x), n=1))
    for offset in (0, 5, 17):
        static = caller(row, path, {"q_offset": offset})(inputs)
        for a, b in zip(jitted(inputs, jnp.int32(offset)), static, strict=True):
            assert np.allclose(a, b, rtol=1e-6, atol=1e-6)
    chex.clear_trace_counter()


def test_every_path_drops_the_same_scores():
    row = Row(aj.Full(), T=21, h=21, K=4, rate=0.5)
    inputs, options, *_ = data(row)
    eye = np.broadcast_to(np.eye(21, dtype=np.float32)[:, None], (2, 21, 4, 21))
    inputs = on_device(inputs | {"v": eye})
    zero = [np.asarray(caller(row, path, options)(inputs)[0] == 0).swapaxes(1, 2) for path in PATHS]
    assert all(np.array_equal(zero[0], z) for z in zero[1:])
    assert np.array_equal(zero[0], dropout_factors(row) == 0)
    assert abs(zero[0].mean() - 0.5) < 5 * (0.25 / zero[0].size) ** 0.5


@on_every_path
@pytest.mark.slow
@pytest.mark.parametrize("axes", [(0, 0, 0), (1, None, 3), (None, 2, 0), (4, 4, None)])
def test_vmap_of_values_and_of_gradients(axes, path):
    row = Row(aj.Window(6) | aj.Sink(1), T=11, bias="BN", mask="S", sinks=True, rate=0.2)
    inputs, _, d_o, _ = on_device(data(row)._replace(options={}))
    call = caller(row, path)
    qkv = [inputs[n] for n in "qkv"]
    stacked = [x if a is None else jnp.stack([x, 2 * x, x - 1], a) for x, a in zip(qkv, axes, strict=True)]
    each = [[x if a is None else jnp.take(x, i, a) for x, a in zip(stacked, axes, strict=True)] for i in range(3)]

    def loss(q, k, v):
        o, lse = call(inputs | {"q": q, "k": k, "v": v})
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
@pytest.mark.parametrize("name", ["bias", "sink_logits", "score_params", "mask"])
def test_vmap_over_what_is_not_a_query(name, path):
    row = Row(aj.Causal(), T=11, bias="NTS", mask="BS", sinks=True, alibi=True)
    inputs, options, d_o, _ = on_device(data(row)._replace(options={}))
    options = on_device({"mask": data(row).options["mask"]}) | {"score_fn": alibi}
    source = options if name == "mask" else inputs
    axis = source[name].ndim - 1
    stacked = jnp.stack([source[name], ~source[name] if name == "mask" else source[name] * 2], axis)

    def loss(x):
        given = {name: x}
        call = caller(row, path, options | given if name == "mask" else options)
        return jnp.sum(call(inputs if name == "mask" else inputs | given)[0] * d_o)

    if name == "mask":
        mapped = jax.vmap(loss, axis)(stacked)
        each = jnp.stack([loss(jnp.take(stacked, i, axis)) for i in range(2)])
        chex.assert_trees_all_close(mapped, each, rtol=2e-5, atol=2e-5)
        return
    each = jnp.stack([jax.grad(loss)(jnp.take(stacked, i, axis)) for i in range(2)])
    chex.assert_trees_all_close(jax.vmap(jax.grad(loss), axis)(stacked), each, rtol=2e-5, atol=2e-5)
    total = jax.grad(lambda x: jnp.sum(jax.vmap(loss, axis)(x)))(stacked)
    chex.assert_trees_all_close(total, jnp.moveaxis(each, 0, axis), rtol=2e-5, atol=2e-5)


SECOND_ORDER = (
    Row(aj.Window(5) | aj.Sink(1), B=1, T=10, N=2, K=1, H=3, h=2, dtype="float64", soft_cap=2.0, bias="NS", mask="TS"),
    Row(aj.Causal() & ~aj.Window(2), B=1, T=10, N=2, K=1, H=3, h=2, dtype="float64"),
    Row(aj.Causal(), B=1, T=10, N=2, K=1, H=3, h=2, dtype="float64", sinks=True, alibi=True, rate=0.2, segments="packed"),
)


@on_every_path
@pytest.mark.slow
@pytest.mark.parametrize("row", SECOND_ORDER, ids=lambda row: row.name)
def test_forward_mode_and_second_order(row, path):
    with jax.enable_x64(True):
        inputs, _, d_o, d_lse = on_device(data(row)._replace(options={}))
        along = on_device(data(row, seed=1).inputs)
        inputs, along = (jax.tree.map(lambda x: jnp.where(jnp.isneginf(x), 0.5, x), t) for t in (inputs, along))
        call = caller(row, path)

        def loss(x):
            o, lse = call(x)
            return jnp.sum(jnp.sin(o) * d_o) + jnp.sum(jnp.where(jnp.isneginf(lse), 0, lse) ** 2 * d_lse)

        def dot(a, b):
            return sum(jnp.sum(x * y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))

        def differences(f, step=1e-5):
            moved = lambda s: f(jax.tree.map(lambda x, t: x + s * t, inputs, along))
            return jax.tree.map(lambda a, b: (a - b) / (2 * step), moved(step), moved(-step))

        gradient = jax.jit(jax.grad(loss))
        slope = jax.jvp(loss, (inputs,), (along,))[1]
        chex.assert_trees_all_close(slope, differences(loss), rtol=1e-6)
        chex.assert_trees_all_close(slope, dot(gradient(inputs), along))
        forward_over_reverse = jax.jvp(gradient, (inputs,), (along,))[1]
        chex.assert_trees_all_close(forward_over_reverse, differences(gradient), rtol=1e-5, atol=1e-7)
        reverse_over_forward = jax.grad(lambda x: jax.jvp(loss, (x,), (along,))[1])(inputs)
        chex.assert_trees_all_close(reverse_over_forward, forward_over_reverse, rtol=1e-9, atol=1e-10)
        reverse_over_reverse = jax.grad(lambda x: dot(jax.grad(loss)(x), along))(inputs)
        chex.assert_trees_all_close(reverse_over_reverse, forward_over_reverse, rtol=1e-9, atol=1e-10)
        chex.assert_trees_all_close(jax.linearize(loss, inputs)[1](along), slope)


@on_every_path
@pytest.mark.parametrize("filler", [np.nan, np.inf])
def test_what_nobody_sees_changes_nothing(path, filler):
    """Case N11: hidden keys and values may hold NaN; values and gradients do not notice."""
    row = Row(aj.Window(4), T=6, S=20, q_offset=9, mask="BS")
    inputs, options, d_o, d_lse = data(row)
    options["mask"][..., 7] = False
    hidden = ~(row.seen & options["mask"]).any(axis=(1, 2))  # [B, S]
    assert hidden.any() and not hidden.all()
    spoiled = {n: np.where(hidden[:, :, None, None], np.float32(filler), inputs[n]) for n in "kv"}
    run = functools.partial(value_and_gradients, caller(row, path, options))
    clean, dirty = (run(on_device(inputs | x), d_o, d_lse) for x in ({}, spoiled))
    for name in clean:
        assert np.array_equal(clean[name], dirty[name]), name
