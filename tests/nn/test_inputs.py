"""What a layer is called with: arrays of floats, token ids of integers; anything else is named, with the way out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attnjax import nn
from attnjax.models import Config, Decoder
from attnjax.patterns import Causal, Full

TRIL = np.tril(np.ones((1, 6, 6), bool))
X = np.ones((1, 6, 6), np.float32)


def attention():
    return nn.Attention(6, 2, pattern=Full(), rngs=nnx.Rngs(0))


@pytest.mark.parametrize("mask", [TRIL, jnp.asarray(TRIL), TRIL.astype(np.int32)], ids=["bool", "jax", "int"])
def test_a_mask_in_the_second_place_is_told_where_masks_go(mask):
    layer, match = attention(), r"kv has dtype (bool|int32); .* a mask is given by name: mask="
    cached = nn.Attention(6, 2, pattern=Causal(), rngs=nnx.Rngs(0))
    for call in (layer, layer.project, jax.jit(lambda x, kv: layer(x, kv))):
        with pytest.raises(TypeError, match=match):
            call(X, mask)
    with pytest.raises(TypeError, match=match):
        cached(X, mask, cache=cached.init_cache(batch=1, max_length=9))


LAYERS = {
    "attention": attention,
    "project": lambda: attention().project,
    "keys and values": lambda: lambda kv: attention()(X, kv),
    "block": lambda: nn.Block(attention(), nn.SwiGLU(6, 8, rngs=nnx.Rngs(0))),
    "mlp": lambda: nn.SwiGLU(6, 8, rngs=nnx.Rngs(0)),
    "norm": lambda: nn.RMSNorm(6),
    "head": lambda: nn.Head(6, 9, rngs=nnx.Rngs(0)).logits,
    "tied head": lambda: nn.Embedding(9, 6, rngs=nnx.Rngs(0)).logits,
}


@pytest.mark.cross
@pytest.mark.parametrize("name", LAYERS)
def test_vectors_are_floating_arrays(name):
    layer, arg = LAYERS[name](), "kv" if name == "keys and values" else "x"
    for wrong in (X.astype(np.int32), TRIL, jnp.asarray(TRIL), X.astype(np.complex64)):
        with pytest.raises(TypeError, match=f"{arg} has dtype {wrong.dtype}"):
            layer(wrong)
    for wrong in (X.tolist(), 1.0) if arg == "kv" else (X.tolist(), 1.0, None):
        with pytest.raises(TypeError, match=f"{arg} is a {type(wrong).__name__}, not an array; convert it"):
            layer(wrong)
    with pytest.raises(ValueError, match=rf"{arg}\(1, 6, 5\) .*=( d_model = )?6"):
        layer(X[..., :5])
    with pytest.raises(ValueError, match=rf"{arg}\(\)"):
        layer(np.float32(1))
    for right in (X, jnp.asarray(X), X.astype(np.float64)):
        assert all(np.isfinite(y).all() for y in jax.tree.leaves(layer(right)))


@pytest.mark.parametrize("cached", [False, True])
def test_tokens_are_arrays_of_integers(cached):
    table = nn.Embedding(9, 8, rngs=nnx.Rngs(0))
    model = Decoder(Config(vocab_size=9, d_model=8, num_layers=1, num_heads=2), rngs=nnx.Rngs(0))
    options = dict(cache=model.init_cache(batch=1, max_length=4)) if cached else {}
    for read in (table, lambda tokens: model(tokens, **options)):
        for wrong in ([[1]], 1, None, []):
            with pytest.raises(TypeError, match=rf"tokens is a {type(wrong).__name__}, not an array; write jnp.asarray\(tokens\)"):
                read(wrong)
        for dtype in (bool, np.float32):
            with pytest.raises(TypeError, match=f"tokens have dtype {np.dtype(dtype)}; token ids are integers"):
                read(np.ones((1, 2), dtype))


def test_positions_that_do_not_fit_are_shown_beside_x_as_it_came():
    layer = nn.Attention(8, 2, pattern=Causal(), rope=100.0, rngs=nnx.Rngs(0))
    x = jnp.ones((2, 6, 8))
    for wrong in (jnp.arange(4), jnp.zeros((3, 6), int), jnp.int32(1), list(range(4))):
        with pytest.raises(ValueError, match=r"do not fit x\(2, 6, 8\): they must be \[T\] = \(6,\) or one row per .*\(2, 6\)"):
            layer(x, positions=wrong)
    for wrong in (jnp.ones(6, bool), [True] * 6):
        with pytest.raises(TypeError, match="positions have dtype bool; give integers"):
            layer(x, positions=wrong)
    np.testing.assert_array_equal(layer(x, positions=list(range(6))), layer(x))


def test_a_chunk_of_another_batch_is_shown_as_it_came():
    layer = nn.Attention(6, 2, pattern=Causal(), rope=None, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match=r"x\(2, 6, 6\) has 2 rows, but the cache is of batch 1"):
        layer(jnp.ones((2, 6, 6)), cache=layer.init_cache(batch=1, max_length=9))
