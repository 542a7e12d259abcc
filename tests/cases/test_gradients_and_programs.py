"""Faults that people reported of other attention libraries: gradients, dropout, memory, compiled programs."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attnjax as aj
from tests.cases.test_masks_and_numbers import attend as attend
from tests.cases.test_masks_and_numbers import close, random


def draw(*shape, seed=0, dtype=jnp.float32):
    return jnp.asarray(random(*shape, seed=seed), dtype)


@pytest.mark.cross
def test_G05_integer_arguments_do_not_break_gradients(attend):
    q, k, v = (draw(4, 2, 3, seed=i) for i in range(3))
    ids = jnp.array([0, 0, 1, 1])

    def total(q, k, v, ids):
        return jnp.sum(attend(q, k, v, aj.Causal(), segments=aj.Segments(ids)))

    grads = jax.grad(total, (0, 1, 2))(q, k, v, ids)
    dense = jax.grad(
        lambda q, k, v: jnp.sum(aj.attend(q, k, v, aj.Causal(), segments=aj.Segments(ids), backend="dense")), (0, 1, 2)
    )(q, k, v)
    for a, b in zip(grads, dense, strict=True):
        assert np.isfinite(a).all() and close(a, b, 1e-4)
    cotangents = jax.vjp(total, q, k, v, ids)[1](jnp.float32(1))
    assert cotangents[3].dtype == jax.dtypes.float0


@pytest.mark.cross
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=str)
def test_G06_cotangents_keep_structure_and_dtype(attend, dtype):
    q, k, v = (draw(2, 8, 1, 4, seed=i, dtype=dtype) for i in range(3))

    def loss(q, k, v):
        return jnp.sum(attend(q, k, v, aj.Causal()).astype(jnp.float32) ** 2)

    values, grads = jax.jit(jax.vmap(jax.value_and_grad(loss, (0, 1, 2))))(q, k, v)
    assert values.shape == (2,) and all(g.dtype == dtype and g.shape == q.shape for g in grads)
    want = jax.vmap(jax.grad(lambda q, k, v: jnp.sum(
        aj.attend(q, k, v, aj.Causal(), backend="dense").astype(jnp.float32) ** 2), (0, 1, 2)))(q, k, v)  # fmt: skip
    for a, b in zip(grads, want, strict=True):
        assert close(a, b, 1e-4 if dtype == jnp.float32 else 0.2)


@pytest.mark.slow
def test_G07_forward_mode_and_hessians(attend):
    with jax.enable_x64(True):
        q, k, v = (jnp.asarray(np.random.default_rng(i).standard_normal((3, 1, 2))) for i in range(3))
        f = lambda q: attend(q, k, v, aj.Causal())
        along = jnp.cos(jnp.arange(6.0)).reshape(3, 1, 2)
        slope = jax.jvp(f, (q,), (along,))[1]
        assert close(slope, (f(q + 1e-5 * along) - f(q - 1e-5 * along)) / 2e-5, 1e-4)
        h = jax.hessian(lambda q: jnp.sum(f(q) ** 2))(q).reshape(6, 6)
        assert close(h, h.T, 1e-8) and np.abs(h).max() > 1e-3


@pytest.mark.cross
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=str)
def test_G08_odd_lengths_with_a_bias(attend, dtype):
    q, k, v = (draw(9, 1, 4, seed=i, dtype=dtype) for i in range(3))
    bias = (jnp.arange(9)[:, None] - jnp.arange(9)[None]).astype(dtype)

    def grads(f):
        return jax.grad(lambda *x: jnp.sum(f(*x, aj.Causal(), bias=bias).astype(jnp.float32)), (0, 1, 2))(q, k, v)

    want = grads(lambda *x, **o: aj.attend(*x, backend="dense", **o))
    for a, b in zip(grads(attend), want, strict=True):
        assert np.isfinite(np.asarray(a, np.float32)).all() and close(a, b, 1e-4 if dtype == jnp.float32 else 5e-2)


@pytest.mark.parametrize("rate", [-0.1, float("nan"), 1.0, 1.5])
def test_D02_bad_rates_are_refused(rate):
    x = jnp.zeros((4, 1, 8))
    with pytest.raises(ValueError, match=f"dropout_rate={rate} must be at least 0 and below 1"):
        aj.attend(x, x, x, aj.Causal(), dropout_rate=rate, dropout_key=jax.random.key(0))


def test_D02_a_rate_needs_a_key():
    x = jnp.ones((4, 1, 8))
    with pytest.raises(ValueError, match="needs dropout_key= .an rng key"):
        aj.attend(x, x, x, aj.Causal(), dropout_rate=0.1)
    assert aj.attend(x, x, x, aj.Causal(), dropout_rate=0.0).shape == x.shape
    with pytest.raises(TypeError, match="is no single JAX key"):
        aj.attend(x, x, x, aj.Causal(), dropout_rate=0.1, dropout_key=3)


def test_D04_every_row_head_and_batch_drops_on_its_own(attend):
    zeros, v = jnp.zeros((2, 8, 2, 8)), jnp.broadcast_to(jnp.eye(8)[:, None], (2, 8, 2, 8))
    zero = np.asarray(attend(zeros, zeros, v, aj.Full(), dropout_rate=0.5, dropout_key=jax.random.key(0)) == 0)
    assert (zero[0, 0] != zero[0, 1]).any() and (zero[0, :, 0] != zero[0, :, 1]).any() and (zero[0] != zero[1]).any()


@pytest.mark.cross
def test_D05_the_key_decides(attend):
    q, k, v = (draw(6, 2, 4, seed=i) for i in range(3))
    f = lambda key: attend(q, k, v, aj.Causal(), dropout_rate=0.3, dropout_key=key)
    assert np.array_equal(f(jax.random.key(0)), f(jax.random.key(0)))
    assert close(jax.jit(f)(jax.random.key(0)), f(jax.random.key(0)), 1e-6)
    assert not np.array_equal(f(jax.random.key(0)), f(jax.random.key(1)))
    assert np.array_equal(f(jax.random.key(7)), f(jax.random.PRNGKey(7)))


@pytest.mark.slow
def test_D05_the_same_bits_in_another_process():
    program = (
        "import jax, jax.numpy as jnp, attnjax as aj\n"
        "x = jnp.sin(jnp.arange(64.0)).reshape(8, 2, 4)\n"
        "o = aj.attend(x, x, x, aj.Causal(), dropout_rate=0.3, dropout_key=jax.random.key(5))\n"
        "print(jax.device_get(o).tobytes().hex())"
    )
    runs = [subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True) for _ in "ab"]
    assert runs[0].stdout == runs[1].stdout and len(runs[0].stdout) > 500


@pytest.mark.cross
def test_D06_the_gradient_of_dropout_is_that_of_its_value(attend):
    with jax.enable_x64(True):
        q, k, v = (jnp.asarray(np.random.default_rng(i).standard_normal((4, 1, 2))) for i in range(3))
        along = jnp.cos(jnp.arange(8.0)).reshape(4, 1, 2)
        f = jax.jit(lambda v, q: jnp.sum(
            attend(q, k, v, aj.Full(), dropout_rate=0.3, dropout_key=jax.random.key(2)) ** 2))  # fmt: skip
        for argument, moved in ((0, lambda s: (v + s * along, q)), (1, lambda s: (v, q + s * along))):
            slope = jnp.sum(jax.grad(f, argument)(v, q) * along)
            assert close(slope, (f(*moved(1e-5)) - f(*moved(-1e-5))) / 2e-5, 1e-5) and abs(slope) > 1e-3


def test_B02_segments_make_no_square_array():
    S = 8192
    x, ids = jax.ShapeDtypeStruct((S, 1, 16), jnp.float32), jax.ShapeDtypeStruct((S,), jnp.int32)
    f = lambda q, k, v, ids: aj.attend(q, k, v, aj.Causal(), segments=aj.Segments(ids))
    memory = jax.jit(f).lower(x, x, x, ids).compile().memory_analysis()
    assert memory.temp_size_in_bytes < S * S / 4


@pytest.mark.slow
def test_R10_nothing_is_remembered_between_traces():
    def run(T):
        x = jnp.ones((T, 2, 8))
        return aj.attend(aj.rope(x, jnp.arange(T)), aj.rope(x, jnp.arange(T)), x, aj.Window(3))

    with jax.checking_leaks():
        for T, how in ((8, jax.jit(run, static_argnums=0)), (8, run), (16, jax.jit(run, static_argnums=0))):
            assert how(T).shape == (T, 2, 8)
        assert jax.eval_shape(lambda: run(8)).shape == (8, 2, 8)


@pytest.mark.slow
def test_H02_heads_on_two_devices_need_no_gather():
    program = """
import jax, jax.numpy as jnp, numpy as np, attnjax as aj
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((2,), ("heads",), axis_types=(jax.sharding.AxisType.Auto,))
q, k, v = (jax.random.normal(jax.random.key(i), (1, 64, n, 8)) for i, n in enumerate((4, 2, 2)))
for backend in ("dense", "tiled"):
    f = jax.jit(lambda q, k, v: aj.attend(q, k, v, aj.Window(9), backend=backend))
    want = f(q, k, v)
    put = lambda x: jax.device_put(x, NamedSharding(mesh, P(None, None, "heads")))
    text = f.lower(*map(put, (q, k, v))).compile().as_text()
    assert "all-gather" not in text, backend
    assert np.allclose(f(*map(put, (q, k, v))), want, atol=1e-6), backend
    one = (put(q), *(jax.device_put(x[:, :, :1], NamedSharding(mesh, P())) for x in (k, v)))
    assert np.allclose(f(*one), f(q, k[:, :, :1], v[:, :, :1]), atol=1e-6), backend
print("fine")
"""
    import os

    env = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env)
    assert done.returncode == 0 and "fine" in done.stdout, done.stderr[-2000:]
