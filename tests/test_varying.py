"""Calls inside `jax.shard_map`, which gives every array a type that says along which mesh axes it varies.

Types do not depend on how many devices there are, so one is enough for most of it; values on several are in
`test_several_devices`.
"""

import functools
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

import attnjax as aj

P, T = PartitionSpec, 40
PATTERNS = aj.Causal(), aj.Window(6) | aj.Sink(2), aj.Window(6) | aj.Strided(8), aj.Chunked(8) & aj.Where(lambda i, j: i != 9)


def draw(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


Q, K, V = draw(2, T, 4, 8), draw(2, T, 2, 8, seed=1), draw(2, T, 2, 8, seed=2)


def sharded(f, inputs, outputs):
    mesh = jax.make_mesh((1,), ("d",), axis_types=(AxisType.Auto,))
    return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=inputs, out_specs=outputs))


def close(found, right):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(a, b, atol=3e-5, rtol=3e-5)


def total(**options):
    return lambda q, k, v: jnp.sum(jnp.sin(aj.attend(q, k, v, **options)))


@pytest.mark.cross
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize("backend", ["dense", "tiled"])
def test_gradients_with_keys_that_all_devices_share(pattern, backend):
    f = total(pattern=pattern, backend=backend)
    whole = lambda q, k, v: jax.lax.psum(f(q, k, v), "d")
    found = sharded(lambda *x: jax.grad(whole, (0, 1, 2))(*x), (P("d"), P(), P()), (P("d"), P(), P()))(Q, K, V)
    close(found, jax.grad(total(pattern=pattern, backend="dense"), (0, 1, 2))(Q, K, V))


@pytest.mark.parametrize("backend", ["dense", "tiled"])
def test_an_offset_that_varies(backend):
    def loss(q, k, v):
        offset = jax.lax.axis_index("d") * T
        o = aj.attend(q, k, v, aj.Window(6) | aj.Sink(2), q_offset=offset, backend=backend)
        return jax.lax.psum(jnp.sum(jnp.sin(o)), "d")

    found = sharded(lambda *x: jax.grad(loss, (0, 1, 2))(*x), (P(None, "d"), P(), P()), (P(None, "d"), P(), P()))(Q, K, V)
    close(found, jax.grad(total(pattern=aj.Window(6) | aj.Sink(2), backend="dense"), (0, 1, 2))(Q, K, V))


@pytest.mark.cross
@pytest.mark.parametrize("backend", ["dense", "tiled"])
def test_every_option_and_every_mode(backend):
    arrays = {
        "bias": draw(4, T, T, seed=3), "mask": draw(T, T, seed=4) > -1, "sink_logits": draw(4, seed=5), "slopes": draw(4, seed=6)
    }  # fmt: skip
    ids = jnp.asarray(np.arange(T) // 15)

    def loss(q, x, ids):
        rescore = lambda s, i, j, head, p: s + p[head] * (j - i).astype(s.dtype) / T
        more = {n: x[n] for n in ("bias", "mask", "sink_logits")}
        o = aj.attend(
            q, K[:1], V[:1], aj.Causal() & aj.Where(lambda i, j: ids[i] == ids[j]), segments=aj.Segments(ids), dropout_rate=0.2,
            dropout_key=jax.random.key(1), score_fn=rescore, score_params=x["slopes"], backend=backend, **more,
        )  # fmt: skip
        return jnp.sum(jnp.sin(o))

    floats = lambda x: {n: a for n, a in x.items() if n != "mask"}

    def modes(q, x, ids):
        f = lambda q, y: jax.lax.psum(loss(q, y | {"mask": x["mask"]}, ids), "d")
        slopes = jax.grad(f, (0, 1))(q, floats(x))
        along = jax.jvp(f, (q, floats(x)), (q, floats(x)))[1]
        curved = jax.grad(lambda q: jnp.sum(jax.grad(f)(q, floats(x)) * q))(q)
        return slopes, along, curved

    q = Q[:1]
    found = sharded(modes, (P("d"), P(), P()), ((P("d"), P()), P(), P("d")))(q, arrays, ids)
    f = lambda q, y: loss(q, y | {"mask": arrays["mask"]}, ids)
    right = (
        jax.grad(f, (0, 1))(q, floats(arrays)), jax.jvp(f, (q, floats(arrays)), (q, floats(arrays)))[1],
        jax.grad(lambda q: jnp.sum(jax.grad(f)(q, floats(arrays)) * q))(q),
    )  # fmt: skip
    close(found, right)


@pytest.mark.parametrize("spec", [P(), P("d")], ids=["shared", "sharded"])
def test_derivatives_of_and_beside_arrays_that_score_fn_closes_over(spec):
    wide, fixed = draw(T, seed=7), draw(T, seed=8)

    def loss(q, wide, backend="tiled"):
        rescore = lambda s, i, j, h, p: s + wide[j] * fixed[i]
        return jnp.sum(jnp.sin(aj.attend(q, q, q, aj.Causal(), score_fn=rescore, backend=backend)))

    def modes(loss, q, wide):
        beside = jax.grad(loss)
        return (
            beside(q, wide), jax.grad(loss, 1)(q, wide), jax.jvp(loss, (q, wide), (q, wide))[1],
            jax.grad(lambda q: jnp.sum(beside(q, wide) * q))(q), jax.grad(lambda w: jnp.sum(beside(q, w) * q))(wide),
        )  # fmt: skip

    whole = lambda q, wide: jax.lax.psum(loss(q, wide), "d")
    found = sharded(lambda q, w: modes(whole, q, w), (P("d"), spec), (P("d"), spec, P(), P("d"), spec))(Q, wide)
    close(found, modes(functools.partial(loss, backend="dense"), Q, wide))


@pytest.mark.slow
def test_several_devices():
    """Batch and sequence over four devices, values and gradients, in a process that has four."""
    program = pathlib.Path(__file__).parent / "support" / "four_devices.py"
    env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4", "PYTHONPATH": str(program.parents[2])}
    run = subprocess.run([sys.executable, "-W", "error", program], env=env, capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["16", "agree"]
