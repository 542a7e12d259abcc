"""A sliding window with an attention sink in a model that you already have: plain functions, flax nnx, and our layer.

Nothing else of the model changes: the pattern is one argument.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import attnjax as aj
from attnjax import nn

PATTERN = aj.Window(8) | aj.Sink(1)
B, T, D, N, K = 2, 64, 32, 4, 2  # batch, tokens, width, query heads, key heads


# 1. Plain functions: your parameters, your projections, our attention in the middle.
def init(key):
    keys = jax.random.split(key, 4)
    shapes = {"q": (D, N, D // N), "k": (D, K, D // N), "v": (D, K, D // N), "o": (N, D // N, D)}
    return {name: jax.random.normal(k, shape) / D**0.5 for k, (name, shape) in zip(keys, shapes.items(), strict=True)}


@jax.jit
def attention(params, x):
    q, k, v = (jnp.einsum("btd,dnh->btnh", x, params[name]) for name in "qkv")
    return jnp.einsum("btnh,nhd->btd", aj.attend(q, k, v, PATTERN), params["o"])


# 2. flax's own module: it takes an attention function, and `nn.attention_fn` makes one of a pattern.
def flax_layer():
    return nnx.MultiHeadAttention(N, D, decode=False, rngs=nnx.Rngs(0), attention_fn=nn.attention_fn(PATTERN))


# 3. Our layer: grouped key heads, rotary embedding and a cache for decoding included.
def our_layer():
    return nn.Attention(D, N, num_kv_heads=K, pattern=PATTERN, rope=nn.Rope(10000.0), rngs=nnx.Rngs(0))


def reach(layer):
    """Which inputs the last output depends on, from its gradient: the pattern, seen from outside."""
    x = jax.random.normal(jax.random.key(1), (B, T, D))
    slope = jax.grad(lambda x: layer(x)[0, -1].sum())(x)[0]
    return np.nonzero(np.abs(slope).sum(-1))[0]


def main():
    params = init(jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (B, T, D))
    grads = jax.grad(lambda p: attention(p, x).sum())(params)
    assert {name: g.shape for name, g in grads.items()} == {name: p.shape for name, p in params.items()}

    expected = np.nonzero(PATTERN.mask(T)[-1])[0]
    layers = {"plain functions": lambda x: attention(params, x), "flax": flax_layer(), "ours": our_layer()}
    for name, layer in layers.items():
        assert (reach(layer) == expected).all()
        print(f"{name}: token {T - 1} depends on tokens {reach(layer).tolist()}")

    # Decoding keeps only what the pattern can still see: 9 slots here, however long the text becomes.
    layer = our_layer()
    cache = aj.Cache.create(PATTERN, batch=B, num_kv_heads=K, head_dim=D // N, max_length=T, dtype=jnp.float32)
    print(f"cache of {PATTERN}: {PATTERN.slots(T).size} slots for {T} tokens")
    step = jax.jit(lambda x, cache: layer(x, cache=cache))
    whole, steps = layer(x), []
    for t in range(T):
        y, cache = step(x[:, t : t + 1], cache)
        steps.append(y)
    print(f"token by token differs by at most {float(jnp.abs(jnp.concatenate(steps, 1) - whole).max()):.1e}")


if __name__ == "__main__":
    main()
