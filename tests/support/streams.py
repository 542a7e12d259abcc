"""Feeding a text to a cache in chunks, and what each query then saw."""

import jax.numpy as jnp
import numpy as np

import attnjax as aj


def arrays(B=2, T=40, N=4, K=2, H=8, h=6, seed=0):
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal(shape).astype(np.float32) for shape in ((B, T, N, H), (B, T, K, H), (B, T, K, h)))


def empty(pattern, k, v, **options):
    """A cache for texts like k and v."""
    sizes = dict(batch=k.shape[0], num_kv_heads=k.shape[2], head_dim=k.shape[3], value_dim=v.shape[3], max_length=k.shape[1])
    return aj.Cache.create(pattern, **sizes | options)


def feed(cache, q, k, v, chunks, **options):
    """(outputs of all tokens, the cache afterwards)."""
    outs, first = [], 0
    for n in chunks:
        o, cache = cache.step(*(x[:, first : first + n] for x in (q, k, v)), **options)
        outs.append(o)
        first += n
    assert first == q.shape[1]
    return jnp.concatenate(outs, axis=1), cache


def seen(pattern, T, chunks, heads=1):
    """Which tokens each query saw, bool [N, T, T]: with zero queries and one-hot values, weights show it."""
    q, k, v = np.zeros((1, T, heads, 4), np.float32), np.zeros((1, T, 1, 4), np.float32), np.eye(T, dtype=np.float32)[None, :, None]
    o, cache = feed(empty(pattern, k, v), q, k, v, chunks)
    return np.moveaxis(np.asarray(o[0]), 1, 0) > 0, cache
