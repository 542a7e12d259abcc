"""RMSNorm, SwiGLU, Embedding and Head: values by hand, dtypes, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attnjax import nn
from tests.nn import by_hand
from tests.support.budget import assert_within, budget


def sample(*shape):
    return np.random.default_rng(0).standard_normal(shape)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rms_norm_as_by_hand(dtype):
    x = jnp.asarray(sample(2, 3, 8) * 100, dtype)
    norm = nn.RMSNorm(8, eps=1e-3, dtype=dtype)
    norm.scale[...] = jnp.linspace(0.5, 2.0, 8)
    exact, honest = (
        by_hand.rms_norm(np.asarray(x, t), np.linspace(0.5, 2.0, 8, dtype=t), 1e-3) for t in (np.float64, np.float32)
    )
    assert_within(norm(x), exact, budget(jnp.asarray(honest, dtype), exact, dtype))


def test_rms_norm_is_computed_in_float32_inside():
    # The squares of 300 overflow float16, and the mean of 1 + tiny squares vanishes in bfloat16.
    x = jnp.full((1, 64), 300.0, jnp.float16)
    np.testing.assert_allclose(nn.RMSNorm(64, dtype=jnp.float16)(x), 1.0)


def test_swiglu_as_by_hand():
    layer = nn.SwiGLU(6, 10, rngs=nnx.Rngs(0))
    x = sample(2, 3, 6)
    exact, honest = (by_hand.swiglu(x.astype(t), by_hand.parameters(layer, t), "") for t in (np.float64, np.float32))
    assert_within(layer(jnp.asarray(x, jnp.float32)), exact, budget(honest, exact, "float32"))


def test_embedding_looks_up_and_its_logits_are_the_transpose():
    table = nn.Embedding(7, 4, rngs=nnx.Rngs(0))
    weights = np.asarray(table.table[...])
    tokens = np.array([[0, 6, 3]], np.uint8)
    np.testing.assert_array_equal(table(tokens), weights[tokens])
    x = sample(1, 3, 4)
    exact, honest = (x.astype(t) @ weights.astype(t).T for t in (np.float64, np.float32))
    assert_within(table.logits(jnp.asarray(x, jnp.float32)), exact, budget(honest, exact, "float32"))


@pytest.mark.parametrize("bad, shown", [(7, 7), (-1, -1), (2**32, 2**32)])
def test_a_token_outside_the_vocabulary_is_named_and_never_clamped(bad, shown):
    table = nn.Embedding(7, 4, rngs=nnx.Rngs(0))
    tokens = np.array([[1, bad]])
    with pytest.raises(ValueError, match=f"token {shown} is not in the vocabulary: ids are 0 to .* 6"):
        table(tokens)


@pytest.mark.parametrize("bad", [7, -1])
def test_inside_jit_such_a_token_gives_nan(bad):
    table = nn.Embedding(7, 4, rngs=nnx.Rngs(0))
    rows = jax.jit(lambda tokens: table(tokens))(jnp.array([1, bad, 6]))
    np.testing.assert_array_equal(np.isnan(rows).any(1), [False, True, False])


def test_tokens_must_be_integers():
    with pytest.raises(TypeError, match="tokens have dtype float32"):
        nn.Embedding(7, 4, rngs=nnx.Rngs(0))(jnp.ones((1, 2)))


@pytest.mark.parametrize("dtype, param_dtype", [("bfloat16", "float32"), ("float32", "bfloat16")])
def test_n13_parameters_follow_param_dtype_and_outputs_dtype(dtype, param_dtype):
    options = dict(dtype=dtype, param_dtype=param_dtype)
    x, tokens = jnp.ones((1, 2, 4), dtype), jnp.array([[1]])

    def run():
        norm, mlp = nn.RMSNorm(4, **options), nn.SwiGLU(4, 6, use_bias=True, rngs=nnx.Rngs(0), **options)
        embedding, head = nn.Embedding(5, 4, rngs=nnx.Rngs(0), **options), nn.Head(4, 5, rngs=nnx.Rngs(0), **options)
        parameters = [nnx.state(layer) for layer in (norm, mlp, embedding, head)]
        return parameters, (norm(x), mlp(x), embedding(tokens)), (embedding.logits(x), head.logits(x))

    for leaves, expected in zip(jax.eval_shape(run), (param_dtype, dtype, "float32"), strict=True):
        assert {leaf.dtype for leaf in jax.tree.leaves(leaves)} == {jnp.dtype(expected)}


@pytest.mark.parametrize(
    "error, match, make",
    [
        (ValueError, "dim=0 is too small", lambda: nn.RMSNorm(0)),
        (ValueError, r"x\(2, 3\) does not end in this norm's dim=4", lambda: nn.RMSNorm(4)(jnp.ones((2, 3)))),
        (TypeError, "d_ff='big' is a str", lambda: nn.SwiGLU(4, "big", rngs=nnx.Rngs(0))),
        (ValueError, r"x\(2, 3\) .* d_model=4", lambda: nn.SwiGLU(4, 8, rngs=nnx.Rngs(0))(jnp.ones((2, 3)))),
        (ValueError, "vocab_size=0", lambda: nn.Embedding(0, 4, rngs=nnx.Rngs(0))),
        (ValueError, "d_model=0", lambda: nn.Head(0, 4, rngs=nnx.Rngs(0))),
        (ValueError, "d_model=8, but mlp has 4", lambda: nn.Block(_attention(8), nn.SwiGLU(4, 8, rngs=nnx.Rngs(0)))),
    ],
)
def test_wrong_arguments_are_named(error, match, make):
    with pytest.raises(error, match=match):
        make()


def _attention(d_model):
    from attnjax.patterns import Causal

    return nn.Attention(d_model, 2, pattern=Causal(), rngs=nnx.Rngs(0))
