"""attention_fn inside flax's own module, against flax's own attention with the same mask written out."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from flax.nnx.nn.attention import dot_product_attention_weights

from attnjax import nn
from attnjax.patterns import Causal, Full, PerHead, Sink, Window
from tests.nn import by_hand
from tests.support.budget import budget

T = 7
ROW, COL = np.arange(T)[:, None], np.arange(T)
WINDOW_SINK = ((COL <= ROW) & (ROW - COL < 3)) | ((COL < 1) & (COL <= ROW))  # window(3) | sink(1) by hand

pytestmark = pytest.mark.usefixtures("standard_promotion")  # flax's attention does not pass under strict promotion


def sample(*shape, dtype=np.float32, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def modules(pattern, **options):
    """The same flax module with our function and with flax's."""
    make = lambda **own: nnx.MultiHeadAttention(4, 8, decode=False, rngs=nnx.Rngs(0), **options, **own)
    return make(attention_fn=nn.attention_fn(pattern)), make()


def assert_same(got, flax, dtype="float32"):
    """Two computations of one formula: each may be a budget away from the exact result."""
    exact = np.asarray(flax, np.float64)
    limit = budget(exact, exact, dtype) * 4
    assert got.dtype == flax.dtype and got.shape == flax.shape
    assert abs(np.asarray(got, np.float64) - exact).max() <= limit


@pytest.mark.cross
@pytest.mark.parametrize(
    "lead, options",
    [((), dict()), ((2,), dict()), ((3, 2), dict()), ((2,), dict(num_kv_heads=2, normalize_qk=True))],
    ids=["rank3", "rank4", "rank5", "gqa"],
)
def test_equals_flax_with_the_same_mask(lead, options):
    ours, theirs = modules(Window(3) | Sink(1), **options)
    x = sample(*lead, T, 8)
    mask = jnp.asarray(np.broadcast_to(WINDOW_SINK, (*lead, 1, T, T)))
    # Flax's fast path (no sow) reshapes away the mask's leading axes of 1, so it is given in full for rank 5.
    assert_same(ours(x), theirs(x, mask=jnp.broadcast_to(mask, (*lead, 4, T, T)) if len(lead) == 2 else mask))


@pytest.mark.slow
def test_mask_and_is_causal_narrow_the_pattern():
    ours, theirs = modules(Full())
    x = sample(2, T, 8)
    padding = np.arange(T) < np.array([4, 7])[:, None]
    for mask in (padding[:, None, None, :], padding[:, None, None, :].astype(np.float32)):
        both = jnp.asarray((mask != 0) & (COL <= ROW))
        assert_same(ours(x, mask=jnp.asarray(mask), is_causal=True), theirs(x, mask=both))
        assert_same(ours(x, mask=jnp.asarray(mask)), theirs(x, mask=jnp.asarray((mask != 0) & (COL >= 0))))
    assert_same(ours(x, mask=nnx.make_causal_mask(x[..., 0])), theirs(x, mask=jnp.asarray(COL <= ROW)[None, None]))


@pytest.mark.cross
@pytest.mark.parametrize("lead", [(), (2,), (3, 2)])
def test_bias_and_masks_of_any_leading_axes(lead):
    q, k, v = (sample(*lead, T, 2, 4, seed=s) for s in range(3))
    fn = nn.attention_fn(Causal())
    bias = sample(*lead[:-1], *(1,) * len(lead[-1:]), 2, T, T)
    keep = (np.random.default_rng(9).random((*lead, 1, T, T)) < 0.8) | (COL == ROW)
    weights = dot_product_attention_weights(q, k, bias=bias, mask=jnp.asarray(keep & (COL <= ROW)))
    expected = jnp.einsum("...nts,...snh->...tnh", weights, v)
    assert_same(fn(q, k, v, bias=bias, mask=jnp.asarray(keep)), expected)


def test_per_head_patterns_under_is_causal():
    ours, theirs = modules(PerHead((Full(), Window(2), Full(), Full())))
    x = sample(1, T, 8)
    mask = np.broadcast_to(COL <= ROW, (1, 4, T, T)).copy()
    mask[:, 1] &= ROW - COL < 2
    assert_same(ours(x, is_causal=True), theirs(x, mask=jnp.asarray(mask)))


@pytest.mark.slow
def test_dtype_and_precision_pass_through():
    for dtype, param_dtype in (("bfloat16", "float32"), ("float32", "bfloat16")):
        ours, theirs = modules(Causal(), dtype=dtype, param_dtype=param_dtype, precision="highest")
        x = sample(2, T, 8)
        assert_same(ours(x), theirs(x, mask=jnp.asarray(COL <= ROW)[None, None]), dtype)
    with pytest.raises(ValueError, match="precision='hi' is unknown"):
        nn.attention_fn(Causal())(*(sample(1, T, 2, 4),) * 3, precision="hi")


def test_sow_weights_of_flax_sees_our_weights():
    ours, _ = modules(Window(3) | Sink(1))
    _, found = nnx.capture(ours, nnx.Intermediate)(sample(2, T, 8), sow_weights=True)
    (weights,) = jax.tree.leaves(found)
    assert weights.shape == (2, 4, T, T)
    np.testing.assert_array_equal(np.asarray(weights) > 0, np.broadcast_to(WINDOW_SINK, weights.shape))
    np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-6)


def test_cross_attention_with_full():
    ours, theirs = modules(Full())
    assert_same(ours(sample(2, T, 8), sample(2, 3, 8, seed=1)), theirs(sample(2, T, 8), sample(2, 3, 8, seed=1)))


def test_decode_and_unequal_lengths_name_the_way_out():
    layer = nnx.MultiHeadAttention(
        2, 8, decode=True, rngs=nnx.Rngs(0), attention_fn=nn.attention_fn(Window(4))
    )
    layer.init_cache((1, 5, 8))
    with pytest.raises(ValueError, match=r"1 queries and 5 keys: window\(4\) .* nn.Attention with a Cache"):
        layer(sample(1, 1, 8))
    ours, _ = modules(Causal())
    with pytest.raises(ValueError, match=r"7 queries and 3 keys: causal\(\).* Full\(\) with mask="):
        ours(sample(1, T, 8), sample(1, 3, 8))


@pytest.mark.parametrize("shared", [True, False])
def test_d04_dropout_of_flax_modules_drops_by_position(shared):
    # Flax shares what is dropped between sequences and heads unless broadcast_dropout=False, and so do we.
    options = dict(dropout_rate=0.5, broadcast_dropout=shared)
    ours, _ = modules(Causal(), **options)
    (plain, _), x = modules(Causal()), sample(2, T, 8)
    np.testing.assert_array_equal(ours(x, deterministic=True), plain(x))
    rngs = nnx.Rngs(dropout=7)
    _, found = nnx.capture(ours, nnx.Intermediate)(x, deterministic=False, rngs=rngs, sow_weights=True)
    kept = np.asarray(jax.tree.leaves(found)[0]) != 0
    factors = by_hand.dropout(0.5, nnx.Rngs(dropout=7).dropout(), kept.shape, shared)
    np.testing.assert_array_equal(kept, (factors > 0) & (COL <= ROW))
    assert np.all(kept == kept[0, 0]) == shared


def test_dropout_reaches_the_output_of_any_leading_axes():
    q, k, v = (sample(3, 2, T, 2, 4, seed=s) for s in range(3))
    options = dict(dropout_rate=0.4, dropout_rng=jax.random.key(1), broadcast_dropout=False)
    deep = nn.attention_fn(Causal())(q, k, v, **options)
    flat = nn.attention_fn(Causal())(*(x.reshape(6, T, 2, 4) for x in (q, k, v)), **options)
    np.testing.assert_allclose(deep.reshape(flat.shape), flat, atol=1e-6)
    assert abs(deep - nn.attention_fn(Causal())(q, k, v)).max() > 0.01


def test_what_it_cannot_honour_is_an_error():
    q = sample(1, T, 2, 4)
    with pytest.raises(ValueError, match="dropout_rate=0.3 needs dropout_key= .an rng key"):
        nn.attention_fn(Causal())(q, q, q, dropout_rate=0.3)
    with pytest.raises(ValueError, match="input_positions= is for a rope"):
        nn.attention_fn(Causal())(q, q, q, input_positions=jnp.arange(T))
    with pytest.raises(ValueError, match=r"mask\(2, 1, 7, 7\) does not broadcast .* \(1, 2, 7, 7\)"):
        nn.attention_fn(Causal())(q, q, q, mask=jnp.ones((2, 1, 7, 7), bool))
    with pytest.raises(TypeError, match="'causal' is not a pattern"):
        nn.attention_fn("causal")


@pytest.mark.parametrize(
    "error, match, shapes, options",
    [
        (ValueError, "the same leading axes; got query(2, 3, 4, 2, 8) key(3, 2, 4, 2, 8) value(3, 2, 4, 2, 8)",
         ((2, 3, 4, 2, 8), (3, 2, 4, 2, 8), (3, 2, 4, 2, 8)), {}),
        (ValueError, "the same leading axes; got query(2, 3, 4, 2, 8) key(2, 3, 4, 2, 8) value(3, 2, 4, 2, 8)",
         ((2, 3, 4, 2, 8), (2, 3, 4, 2, 8), (3, 2, 4, 2, 8)), {}),
        (ValueError, "the same leading axes; got query(2, 4, 2, 8) key(1, 4, 2, 8)", ((2, 4, 2, 8), (1, 4, 2, 8), (1, 4, 2, 8)), {}),
        (ValueError, "of one rank; got query(6, 4, 2, 8) key(2, 3, 4, 2, 8)", ((6, 4, 2, 8), (2, 3, 4, 2, 8), (2, 3, 4, 2, 8)), {}),
        (ValueError, "of one rank; got query(4, 8) key(4, 8) value(4, 8)", ((4, 8),) * 3, {}),
        (ValueError, "the same length; got query(3, 1, 4, 2, 8)", ((3, 1, 4, 2, 8), (3, 1, 4, 2, 8), (3, 1, 5, 2, 8)), {}),
        (ValueError, "key and value must have the same heads; got query(4, 2, 8) key(4, 2, 8) value(4, 1, 8)",
         ((4, 2, 8), (4, 2, 8), (4, 1, 8)), {}),
        (ValueError, "the same head size, at least 1; got query(3, 1, 4, 2, 8) key(3, 1, 4, 2, 7)",
         ((3, 1, 4, 2, 8), (3, 1, 4, 2, 7), (3, 1, 4, 2, 8)), {}),
        (ValueError, "the same head size, at least 1; got query(4, 2, 0)", ((4, 2, 0), (4, 2, 0), (4, 2, 8)), {}),
        (ValueError, "2 query heads cannot share 3 key/value heads", ((3, 1, 4, 2, 8), (3, 1, 4, 3, 8), (3, 1, 4, 3, 8)), {}),
        (ValueError, "got query(3, 1, 4, 2, 8) key(3, 1, 4, 3, 8)", ((3, 1, 4, 2, 8), (3, 1, 4, 3, 8), (3, 1, 4, 3, 8)), {}),
        (ValueError, "has 3 heads, but num_heads=2", ((3, 1, 4, 2, 8),) * 3, dict(pattern=PerHead((Causal(),) * 3))),
        (ValueError, "bias(3, 2, 1, 4, 4) does not broadcast to the scores [batch..., N, T, S] = (2, 3, 2, 4, 4)",
         ((2, 3, 4, 2, 8),) * 3, dict(bias=jnp.ones((3, 2, 1, 4, 4)))),
        (ValueError, "mask(6, 1, 4, 4) does not broadcast to the scores [batch..., N, T, S] = (2, 3, 2, 4, 4)",
         ((2, 3, 4, 2, 8),) * 3, dict(mask=jnp.ones((6, 1, 4, 4)))),
        (ValueError, "sow_weights=True would hold (2, 3, 2, 16384, 16384) weights", ((2, 3, 16384, 2, 8),) * 3, dict(module=nnx.Module())),
        (TypeError, "query has dtype complex64", ((2, 3, 4, 2, 8),) * 3, dict(dtype=jnp.complex64)),
    ],
    ids=lambda value: value[:60] if isinstance(value, str) else "",
)  # fmt: skip
def test_what_does_not_fit_is_named_as_it_came(error, match, shapes, options):
    fn = nn.attention_fn(options.get("pattern", Full()))
    options = {name: value for name, value in options.items() if name != "pattern"}
    arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    with pytest.raises(error, match=re.escape(match)):
        jax.eval_shape(lambda *arrays: fn(*arrays, **options), *arrays)


def test_sequences_of_a_flax_module_are_not_paired_across_leading_axes():
    ours, _ = modules(Full())
    with pytest.raises(ValueError, match=r"leading axes; got query\(2, 3, 7, 4, 2\) key\(3, 2, 7, 4, 2\)"):
        ours(sample(2, 3, T, 8), sample(3, 2, T, 8))


@pytest.mark.parametrize("lead, T", [((0,), 4), ((2, 0), 4), ((2, 3), 0)])
def test_empty_axes_give_empty_results(lead, T):
    q, options = sample(*lead, T, 2, 8), dict(bias=sample(*lead, 1, T, T), mask=jnp.ones((*lead, 1, T, T), bool))
    assert nn.attention_fn(Causal())(q, q, q, **options).shape == q.shape


def test_functions_of_equal_patterns_are_equal():
    assert nn.attention_fn(Window(3)) == nn.attention_fn(Window(3)) != nn.attention_fn(Window(4))
    assert hash(nn.attention_fn(Window(3))) == hash(nn.attention_fn(Window(3)))
    assert repr(nn.attention_fn(Window(3))) == "attention_fn(window(3))"


def test_under_jit_grad_and_vmap():
    ours, theirs = modules(Window(3) | Sink(1))
    graph, params = nnx.split(ours, nnx.Param)
    flax_graph, _ = nnx.split(theirs, nnx.Param)
    x, mask = sample(2, T, 8), jnp.asarray(WINDOW_SINK)[None, None]
    found = jax.jit(jax.grad(lambda p: jnp.sum(jnp.sin(nnx.merge(graph, p)(x)))))(params)
    flax = jax.jit(jax.grad(lambda p: jnp.sum(jnp.sin(nnx.merge(flax_graph, p)(x, mask=mask)))))(params)
    for ours_leaf, flax_leaf in zip(jax.tree.leaves(found), jax.tree.leaves(flax), strict=True):
        np.testing.assert_allclose(ours_leaf, flax_leaf, atol=1e-5)
    np.testing.assert_allclose(jax.vmap(nnx.merge(graph, params))(x), ours(x), atol=1e-6)
