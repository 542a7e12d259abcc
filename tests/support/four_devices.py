"""Run with four devices: attention under `jax.shard_map`, sharded over the batch and over the sequence, against one device."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, PartitionSpec

import attnjax as aj

P, T = PartitionSpec, 256
MESH = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Auto,))


def draw(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


Q, K, V = draw(0, 4, T, 4, 8), draw(1, 4, T, 2, 8), draw(2, 4, T, 2, 8)


def gradients(f, *specs):
    """(value, gradients) of the sum over all devices."""
    whole = lambda *x: jax.lax.psum(jnp.sum(jnp.sin(f(*x))), "d")
    both = lambda *x: (f(*x), jax.grad(whole, (0, 1, 2))(*x))
    return jax.jit(jax.shard_map(both, mesh=MESH, in_specs=specs, out_specs=(specs[0], specs)))(Q, K, V)


def by_sequence(pattern, backend):
    def f(q, k, v):
        return aj.attend(q, k, v, pattern, q_offset=jax.lax.axis_index("d") * q.shape[1], backend=backend)

    return gradients(f, P(None, "d"), P(), P())


def by_batch(pattern, backend):
    return gradients(lambda q, k, v: aj.attend(q, k, v, pattern, backend=backend), P("d"), P("d"), P("d"))


agree = 0
for pattern in (aj.Causal(), aj.Window(16) | aj.Sink(4), aj.Window(16) | aj.Strided(32), aj.Chunked(64)):
    one = lambda q, k, v, pattern=pattern: aj.attend(q, k, v, pattern, backend="dense")
    right = one(Q, K, V), jax.grad(lambda *x, one=one: jnp.sum(jnp.sin(one(*x))), (0, 1, 2))(Q, K, V)
    for backend in ("dense", "tiled"):
        for way in (by_batch, by_sequence):
            for a, b in zip(jax.tree.leaves(way(pattern, backend)), jax.tree.leaves(right), strict=True):
                np.testing.assert_allclose(a, b, atol=5e-5, rtol=5e-5)
            agree += 1
print(agree, "agree")
