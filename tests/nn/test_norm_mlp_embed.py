"""RMSNorm, SwiGLU, Embedding and Head: values by hand, dtypes, errors."""

import math

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


ACTIVATIONS = {
    "silu": lambda x: x / (1 + math.exp(-x)),
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_each_activation_is_its_formula(name):
    layer = nn.SwiGLU(6, 10, activation=name, use_bias=True, rngs=nnx.Rngs(0))
    for part in (layer.gate, layer.up, layer.down):
        part.bias[...] = jnp.linspace(-1.0, 1.0, part.bias.shape[0])
    x = 3 * sample(2, 3, 6)

    def by_formula(dtype):
        p = by_hand.parameters(layer, dtype)
        gate, up = (x.astype(dtype) @ p[f"{part}.kernel"] + p[f"{part}.bias"] for part in ("gate", "up"))
        gate = np.vectorize(ACTIVATIONS[name], otypes=[dtype])(gate)
        return (gate * up) @ p["down.kernel"] + p["down.bias"]

    exact, honest = by_formula(np.float64), by_formula(np.float32)
    assert_within(layer(jnp.asarray(x, jnp.float32)), exact, budget(honest, exact, "float32"))


def test_a_block_with_post_norms_normalises_what_each_half_gives():
    rngs = nnx.Rngs(0)
    attention = _attention(8)
    block = nn.Block(attention, nn.SwiGLU(8, 12, rngs=rngs), norm_eps=1e-3, post_norms=True)
    norms = block.attention_norm, block.attention_post_norm, block.mlp_norm, block.mlp_post_norm
    for i, norm in enumerate(norms):
        norm.scale[...] = jnp.linspace(0.5 + i, 1.0 + i, 8)
    x = jnp.asarray(sample(1, 5, 8), jnp.float32)
    before, after, mlp_before, mlp_after = (
        lambda x, norm=norm: by_hand.rms_norm(x, np.asarray(norm.scale[...]), 1e-3) for norm in norms
    )
    y = x + after(np.asarray(attention(jnp.asarray(before(np.asarray(x))))))
    want = y + mlp_after(np.asarray(block.mlp(jnp.asarray(mlp_before(np.asarray(y))))))
    np.testing.assert_allclose(block(x), want, rtol=1e-5, atol=1e-5)
    assert nn.Block(attention, block.mlp).attention_post_norm is None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_factor_of_the_embedding_is_rounded_to_dtype_and_not_on_the_logits(dtype):
    plain = nn.Embedding(7, 4, dtype=dtype, rngs=nnx.Rngs(0))
    scaled = nn.Embedding(7, 4, scale=3072**0.5, dtype=dtype, rngs=nnx.Rngs(0))
    tokens, x = np.array([[0, 6, 3]]), jnp.ones((1, 1, 4))
    factor = jnp.asarray({"float32": 3072**0.5, "bfloat16": 55.5}[dtype], dtype)
    np.testing.assert_array_equal(scaled(tokens), plain(tokens) * factor)
    np.testing.assert_array_equal(scaled.logits(x), plain.logits(x))


def test_the_norms_of_heads_have_an_eps_of_their_own():
    from attnjax.patterns import Causal

    def heads(eps):
        layer = nn.Attention(4, 2, pattern=Causal(), qk_norm=True, qk_norm_eps=eps, rngs=nnx.Rngs(0))
        q, k, _ = layer.project(jnp.asarray(sample(1, 3, 4), jnp.float32))
        return np.asarray(q), np.asarray(k), layer

    q, k, layer = heads(0.25)
    for name, found in (("query", q), ("key", k)):
        plain = (sample(1, 3, 4) @ by_hand.parameters(layer)[f"{name}.kernel"]).reshape(1, 3, 2, 2)
        np.testing.assert_allclose(found, by_hand.rms_norm(plain, 1.0, 0.25), rtol=1e-5)
    assert np.abs(heads(1e-6)[0] - q).max() > 0.01


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
        (ValueError, "activation='relu' is not one of silu, gelu, gelu_tanh; did you mean", lambda: nn.SwiGLU(
            4, 8, activation="relu", rngs=nnx.Rngs(0))),
        (ValueError, "scale=inf must be finite", lambda: nn.Embedding(5, 4, scale=float("inf"), rngs=nnx.Rngs(0))),
        (TypeError, "scale='2' is a str", lambda: nn.Embedding(5, 4, scale="2", rngs=nnx.Rngs(0))),
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
