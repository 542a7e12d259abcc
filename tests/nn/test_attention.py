"""nn.Attention against the whole layer written out in float64 NumPy, and what it refuses."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attnjax import nn
from attnjax.attend import attend
from attnjax.patterns import Causal, Full, PerHead, Sink, Window
from tests.nn import by_hand
from tests.support.budget import assert_within, budget

B, T, D = 2, 9, 16
ROW, COL = np.arange(T)[:, None], np.arange(T)
WINDOW_SINK = ((COL <= ROW) & (ROW - COL < 3)) | ((COL < 1) & (COL <= ROW))  # window(3) | sink(1) by hand


def sample(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def filled(layer):
    """The layer with biases and norm scales away from their first values, so that a missing one shows."""
    for path, leaf in nnx.to_flat_state(nnx.state(layer)):
        if path[-1] in ("bias", "scale"):
            noise = sample(*leaf.shape, seed=len(path[0]))
            leaf[...] = leaf[...] + jnp.asarray(0.3 * noise, leaf.dtype)
    return layer


@pytest.mark.cross
@pytest.mark.parametrize(
    "heads",
    [dict(), dict(num_kv_heads=2), dict(num_kv_heads=1), dict(num_heads=3, head_dim=6)],
    ids=["mha", "gqa", "mqa", "head_dim"],
)
@pytest.mark.parametrize(
    "options",
    [
        dict(),
        dict(rope=500.0, qk_norm=True, use_bias=True),
        dict(soft_cap=0.7, use_bias=True, out_bias=False),
    ],
    ids=["plain", "rope-norm-bias", "cap"],
)
def test_layer_and_weights_as_by_hand(heads, options):
    heads = dict(num_heads=4) | heads
    N = heads["num_heads"]
    layer = filled(nn.Attention(D, pattern=Window(3) | Sink(1), rngs=nnx.Rngs(0), **heads, **options))
    assert (layer.out.bias is not None) == options.get("out_bias", options.get("use_bias", False))
    x = sample(B, T, D)
    exact, honest = (
        by_hand.attention(
            x.astype(t), by_hand.parameters(layer, t), WINDOW_SINK, N=N, K=heads.get("num_kv_heads", N),
            theta=options.get("rope"), soft_cap=options.get("soft_cap"),
        )
        for t in (np.float64, np.float32)
    )  # fmt: skip
    x = jnp.asarray(x, jnp.float32)
    assert_within(layer(x), exact[0], budget(honest[0], exact[0], "float32"))
    out = layer(x, return_weights=True)
    assert_within(out.y, exact[0], budget(honest[0], exact[0], "float32"))
    assert_within(out.weights, exact[1], budget(honest[1], exact[1], "float32"))
    assert not np.any(np.asarray(out.weights)[:, :, ~WINDOW_SINK])


@pytest.mark.slow
def test_one_sequence_without_batch_axis():
    layer = nn.Attention(D, 4, 2, pattern=Window(3), rope=1e4, rngs=nnx.Rngs(0))
    x = jnp.asarray(sample(T, D), jnp.float32)
    single, batched = layer(x, return_weights=True), layer(x[None], return_weights=True)
    chex.assert_trees_all_close(single, jax.tree.map(lambda a: a[0], batched), atol=1e-6)
    chex.assert_shape(single.weights, (4, T, T))


@pytest.mark.slow
def test_cross_attention_reads_kv_and_honours_the_mask():
    S = 5
    layer = filled(nn.Attention(D, 4, 2, pattern=Full(), use_bias=True, rope=100.0, rngs=nnx.Rngs(0)))
    x, kv = sample(B, T, D), sample(B, S, D, seed=1)
    mask = np.array([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1]], bool)[:, None, None, :]
    positions = np.arange(T) + 3
    exact, honest = (
        by_hand.attention(
            x.astype(t), by_hand.parameters(layer, t), mask, N=4, K=2, kv=kv.astype(t), positions=positions, theta=100.0
        )
        for t in (np.float64, np.float32)
    )
    options = dict(mask=jnp.asarray(mask), positions=jnp.asarray(positions))
    out = layer(jnp.asarray(x, jnp.float32), jnp.asarray(kv, jnp.float32), return_weights=True, **options)
    plain = layer(jnp.asarray(x, jnp.float32), jnp.asarray(kv, jnp.float32), **options)
    for y in (out.y, plain):
        assert_within(y, exact[0], budget(honest[0], exact[0], "float32"))
    assert_within(out.weights, exact[1], budget(honest[1], exact[1], "float32"))


@pytest.mark.slow
def test_positions_turn_queries_and_keys_and_leave_the_pattern_alone():
    layer = nn.Attention(D, 2, pattern=Window(2), rope=10.0, rngs=nnx.Rngs(0))
    x = jnp.asarray(sample(1, T, D), jnp.float32)
    positions = np.array([5, 5, 9, 0, 2, 2, 7, 1, 30])
    window = (COL <= ROW) & (ROW - COL < 2)
    options = dict(N=2, K=2, positions=positions, theta=10.0)
    exact, honest = (
        by_hand.attention(np.asarray(x, t), by_hand.parameters(layer, t), window, **options)
        for t in (np.float64, np.float32)
    )
    y = layer(x, positions=jnp.asarray(positions))
    assert_within(y, exact[0], budget(honest[0], exact[0], "float32"))
    assert abs(y - layer(x)).max() > 1e-3


def test_per_head_patterns_reach_their_heads():
    layer = nn.Attention(D, 2, pattern=PerHead((Causal(), Window(2))), rngs=nnx.Rngs(0))
    weights = layer(jnp.asarray(sample(1, T, D), jnp.float32), return_weights=True).weights
    np.testing.assert_array_equal(weights[0, 0] > 0, COL <= ROW)
    np.testing.assert_array_equal(weights[0, 1] > 0, (COL <= ROW) & (ROW - COL < 2))


@pytest.mark.parametrize("dtype, param_dtype", [("bfloat16", "float32"), ("float32", "bfloat16")])
def test_n13_parameters_follow_param_dtype_and_outputs_dtype(dtype, param_dtype):
    options = dict(rope=1e4, qk_norm=True, use_bias=True, dtype=dtype, param_dtype=param_dtype)

    def run(x):
        layer = nn.Attention(D, 4, 2, pattern=Causal(), rngs=nnx.Rngs(0), **options)
        return nnx.state(layer), layer(x, return_weights=True)

    for x_dtype in ("float32", "bfloat16"):
        parameters, out = jax.eval_shape(run, jnp.ones((1, T, D), x_dtype))
        assert {leaf.dtype for leaf in jax.tree.leaves(parameters)} == {jnp.dtype(param_dtype)}
        assert out.y.dtype == dtype and out.weights.dtype == jnp.float32


def test_bfloat16_stays_within_its_budget():
    pattern = Window(3) | Sink(1)
    layer = nn.Attention(D, 4, 2, pattern=pattern, rope=1e4, qk_norm=True, dtype="bfloat16", rngs=nnx.Rngs(0))
    x = sample(B, T, D)
    exact = by_hand.attention(x, by_hand.parameters(layer), WINDOW_SINK, N=4, K=2, theta=1e4)[0]
    # What rounding the input and every projection to bfloat16 costs, with float32 between them.
    rounded = {k: np.asarray(jnp.asarray(p, "bfloat16"), np.float32) for k, p in by_hand.parameters(layer).items()}
    low_x = np.asarray(jnp.asarray(x, "bfloat16"), np.float32)
    honest = by_hand.attention(low_x, rounded, WINDOW_SINK, N=4, K=2, theta=1e4)[0]
    assert_within(layer(jnp.asarray(x, jnp.float32)), exact, budget(honest, exact, "bfloat16"))


def test_s01_head_counts_that_do_not_divide_name_both_numbers():
    for heads in ((6, 4), (2, 4)):
        with pytest.raises(ValueError, match=f"num_heads={heads[0]} .* multiple of num_kv_heads={heads[1]}"):
            nn.Attention(24, *heads, pattern=Causal(), rngs=nnx.Rngs(0))
    x = jnp.ones((1, 4, 24))
    for K in (1, 2, 3, 6):
        y = jax.eval_shape(lambda x, K=K: nn.Attention(24, 6, K, pattern=Causal(), rngs=nnx.Rngs(0))(x), x)
        assert y.shape == x.shape


@pytest.mark.slow
def test_s02_query_head_n_uses_key_head_n_over_group():
    # One token, so each head returns its value head: kv head 0 gives 10, head 1 gives 20.
    for K, expected in ((2, [10, 10, 20, 20]), (1, [10, 10, 10, 10])):
        layer = nn.Attention(4, 4, K, pattern=Causal(), head_dim=1, use_bias=True, out_bias=False, rngs=nnx.Rngs(0))
        layer.value.kernel[...] = jnp.zeros((4, K))
        layer.value.bias[...] = jnp.array([10.0, 20.0])[:K]
        layer.out.kernel[...] = jnp.eye(4)
        np.testing.assert_array_equal(layer(jnp.ones((1, 1, 4)))[0, 0], expected)


def test_project_gives_what_attend_needs():
    layer = nn.Attention(D, 4, 2, pattern=Window(3), rope=1e4, rngs=nnx.Rngs(0))
    x = jnp.asarray(sample(B, T, D), jnp.float32)
    o = attend(*layer.project(x), Window(3))
    np.testing.assert_allclose(layer.out(o.reshape(B, T, D)), layer(x), atol=1e-6)


@pytest.mark.slow
def test_gradients_are_finite_and_match_finite_differences():
    with jax.enable_x64(True):
        layer = nn.Attention(
            6, 2, 1, head_dim=4, pattern=Window(2), rope=1e2, qk_norm=True, use_bias=True, soft_cap=2.0,
            dtype="float64", param_dtype="float64", rngs=nnx.Rngs(0),
        )  # fmt: skip
        graph, params = nnx.split(layer, nnx.Param)
        x = jnp.asarray(sample(1, 4, 6))

        @jax.jit
        def loss(params):
            return jnp.sum(jnp.sin(nnx.merge(graph, params)(x)))

        grads = jax.grad(loss)(params)
        chex.assert_tree_all_finite(grads)
        way = jax.tree.map(lambda p: jnp.asarray(sample(*p.shape, seed=p.size)), params)
        step = lambda h: loss(jax.tree.map(lambda p, d: p + h * d, params, way))
        slope = (step(1e-5) - step(-1e-5)) / 2e-5
        along = sum(jnp.vdot(g, d) for g, d in zip(jax.tree.leaves(grads), jax.tree.leaves(way), strict=True))
        np.testing.assert_allclose(along, slope, rtol=1e-7)


@pytest.mark.cross
@pytest.mark.parametrize("graph_mode", [True, False], ids=["graph", "tree"])
def test_split_jit_and_grad_in_both_modes_of_flax_with_one_trace(graph_mode):
    chex.clear_trace_counter()
    with nnx.set_graph_mode(graph_mode):
        layer = nn.Attention(D, 4, 2, pattern=Window(3), rope=1e4, qk_norm=True, rngs=nnx.Rngs(0))
        graph, params = nnx.split(layer, nnx.Param)
        x = jnp.asarray(sample(B, T, D), jnp.float32)

        @jax.jit
        @chex.assert_max_traces(n=1)
        def step(params, x):
            return jax.value_and_grad(lambda p: jnp.mean(jnp.square(nnx.merge(graph, p)(x))))(params)

        value, grads = step(params, x)
        step(jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), x + 1)
        np.testing.assert_allclose(value, jnp.mean(jnp.square(layer(x))), rtol=1e-5)
        chex.assert_tree_all_finite(grads)
        assert all(np.any(g) for g in jax.tree.leaves(grads))


def test_rope_takes_every_form():
    forms = [500.0, 500, nn.Rope(500.0), {"theta": 500.0}]
    layers = [nn.Attention(D, 2, pattern=Causal(), rope=form, rngs=nnx.Rngs(0)) for form in forms]
    assert all(layer.rope == nn.Rope(theta=500.0) for layer in layers)


def make(**change):
    return nn.Attention(**(dict(d_model=12, num_heads=2, pattern=Causal(), rngs=nnx.Rngs(0)) | change))


@pytest.mark.parametrize(
    "error, match, change",
    [
        (ValueError, "d_model=13 is not a multiple of num_heads=2; give head_dim=.*d_model=14", dict(d_model=13)),
        (TypeError, "num_heads=2.0 is a float", dict(num_heads=2.0)),
        (ValueError, "head_dim=0 is too small", dict(head_dim=0)),
        (TypeError, r"'window\(4\)'.*parse", dict(pattern="window(4)")),
        (ValueError, "has 3 heads, but num_heads=2", dict(pattern=PerHead((Causal(),) * 3))),
        (TypeError, "rope='yes' is a str; give None, nn.Rope", dict(rope="yes")),
        (TypeError, "rope=True is a bool", dict(rope=True)),
        (ValueError, "rope has no setting 'thetta'; did you mean 'theta'?", dict(rope={"thetta": 1e4})),
        (ValueError, "H=3 is odd", dict(head_dim=3, rope=1e4)),
        (ValueError, "rotary_dim=8 is larger than the head size H=6", dict(rope={"rotary_dim": 8})),
        (ValueError, "soft_cap=0.0", dict(soft_cap=0.0)),
        (ValueError, "soft_cap=-5.0", dict(soft_cap=-5.0)),
        (ValueError, "soft_cap=inf", dict(soft_cap=float("inf"))),
        (ValueError, "soft_cap=nan", dict(soft_cap=float("nan"))),
        (ValueError, "scale=inf", dict(scale=float("inf"))),
        (ValueError, "dropout_rate=1.5 must be at least 0 and below 1", dict(dropout_rate=1.5)),
        (ValueError, "dropout_rate=nan must be", dict(dropout_rate=float("nan"))),
    ],
)
def test_wrong_settings_are_named_at_construction(error, match, change):
    with pytest.raises(error, match=match):
        make(**change)


@pytest.mark.parametrize(
    "error, match, x, call",
    [
        (ValueError, r"x\(1, 4, 5\) must be .* D = d_model = 12", (1, 4, 5), dict()),
        (ValueError, r"kv\(1, 4, 5\) must be", (1, 4, 12), dict(kv=jnp.ones((1, 4, 5)))),
        (ValueError, r"x\(1, 4, 12\) and kv\(2, 4, 12\)", (1, 4, 12), dict(kv=jnp.ones((2, 4, 12)))),
        (ValueError, r"T=4 rows and kv S=6, but causal\(\) .* Full\(\)", (1, 4, 12), dict(kv=jnp.ones((1, 6, 12)))),
        (ValueError, "positions= feeds rope only", (1, 4, 12), dict(positions=jnp.arange(4))),
        (TypeError, r"segments is a ArrayImpl; write Segments\(ids\)", (1, 4, 12), dict(segments=jnp.zeros(4))),
        (TypeError, "pass it as bias=", (1, 4, 12), dict(mask=jnp.ones((4, 4)))),
        (ValueError, "'tiled' does not hold the weights", (1, 4, 12), dict(return_weights=True, backend="tiled")),
        (ValueError, "backend='dens' is unknown.*'dense'", (1, 4, 12), dict(backend="dens")),
    ],
)
def test_wrong_calls_are_named(error, match, x, call):
    with pytest.raises(error, match=match):
        make()(jnp.ones(x), **call)


def test_weights_over_two_gib_are_refused_before_they_are_made():
    layer = make()
    x = jax.ShapeDtypeStruct((2, 16385, 12), jnp.float32)
    with pytest.raises(ValueError, match=r"\(2, 2, 16385, 16385\) weights, 4.0 GiB; .* heads.report"):
        jax.eval_shape(lambda x: layer(x, return_weights=True), x)
    assert jax.eval_shape(layer, x).shape == (2, 16385, 12)
