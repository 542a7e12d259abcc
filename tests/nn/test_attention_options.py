"""Sinks, dropout and segments through nn.Attention: the layer by hand, and the faults of other libraries."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attnjax import nn
from attnjax.attend import attend
from attnjax.patterns import Causal, Full, Sink, Window
from attnjax.segments import Segments
from tests.nn import by_hand
from tests.support.budget import assert_within, budget

B, T, D, N, K = 2, 9, 16, 4, 2
ROW, COL = np.arange(T)[:, None], np.arange(T)
CAUSAL = COL <= ROW
PACKED = np.array([[0, 0, 0, 0, 1, 1, 1, -1, -1], [3, 3, 5, 5, 5, 5, 5, 5, 5]])
RESTART = np.array([[0, 1, 2, 3, 0, 1, 2, 0, 1], [0, 1, 0, 1, 2, 3, 4, 5, 6]])
SAME = (PACKED[:, None, :, None] == PACKED[:, None, None, :]) & (PACKED[:, None, :, None] >= 0)
BACKENDS = ("dense", "tiled")


def sample(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def make(**options):
    defaults = dict(d_model=D, num_heads=N, num_kv_heads=K, pattern=Window(4) | Sink(1), rope=100.0)
    return nn.Attention(**(defaults | options), rngs=nnx.Rngs(0))


def with_sinks(**options):
    layer = make(learned_sinks=True, **options)
    layer.sinks[...] = jnp.asarray([0.5, -1.0, 2.0, 0.0], layer.sinks[...].dtype)
    return layer


def jitted(layer, x, backend="auto", return_weights=False, **call):
    """The layer in one compiled program; `call` holds arrays, segments and keys."""
    deterministic = "dropout_key" not in call
    options = dict(backend=backend, return_weights=return_weights, deterministic=deterministic)
    return jax.jit(lambda x, call: layer(x, **options, **call))(x, call)


def assert_as_by_hand(layer, x, seen, call, **by_hand_options):
    """y on every backend, and the weights, against float64."""
    exact, honest = (
        by_hand.attention(
            x.astype(t), by_hand.parameters(layer, t), seen, N=N, K=K, theta=layer.rope.theta, **by_hand_options
        )
        for t in (np.float64, np.float32)
    )
    x = jnp.asarray(x, jnp.float32)
    out = jitted(layer, x, return_weights=True, **call)
    assert_within(out.weights, exact[1], budget(honest[1], exact[1], "float32"))
    for y in (out.y, jitted(layer, x, backend="tiled", **call)):
        assert_within(y, exact[0], budget(honest[0], exact[0], "float32"))


WINDOW_SINK = CAUSAL & ((ROW - COL < 4) | (COL < 1))


@pytest.mark.slow
def test_sinks_segments_mask_and_dropout_together_as_by_hand():
    key, mask = jax.random.key(3), np.random.default_rng(1).random((B, 1, T, T)) < 0.8
    call = dict(
        segments=Segments(jnp.asarray(PACKED)), mask=jnp.asarray(mask), dropout_key=key
    )
    kept = by_hand.dropout(0.3, key, (B, N, T, T))
    assert_as_by_hand(with_sinks(dropout_rate=0.3), sample(B, T, D), WINDOW_SINK & SAME & mask, call, dropout=kept)


def test_segment_positions_restart_pattern_and_rope():
    where = RESTART[:, None]
    window = (where[..., :, None] - where[..., None, :] < 4) | (where[..., None, :] < 1)
    call = dict(segments=Segments(jnp.asarray(PACKED), positions="segment"))
    assert_as_by_hand(make(), sample(B, T, D), CAUSAL & window & SAME, call, positions=RESTART)


def test_project_turns_restarted_rows():
    # Scores inside a document depend on distances alone, so the restart is looked at before they are taken.
    x = jnp.asarray(sample(B, T, D), jnp.float32)
    turned = make().project(x, segments=Segments(jnp.asarray(PACKED), positions="segment"))
    plain = make(rope=None).project(x)
    for found, still in zip(turned[:2], plain[:2], strict=True):
        np.testing.assert_allclose(found, make().rope(still, jnp.asarray(RESTART)), atol=1e-6)
        assert abs(found - make().rope(still, jnp.arange(T))).max() > 0.1
    np.testing.assert_array_equal(turned[2], plain[2])


def test_given_positions_place_the_rows_of_rope_and_leave_the_restarted_pattern():
    where, positions = RESTART[:, None], np.arange(T) * 2 + 5
    window = (where[..., :, None] - where[..., None, :] < 4) | (where[..., None, :] < 1)
    call = dict(segments=Segments(jnp.asarray(PACKED), positions="segment"), positions=jnp.asarray(positions))
    assert_as_by_hand(make(), sample(B, T, D), CAUSAL & window & SAME, call, positions=positions)


def test_cross_attention_between_packed_rows_of_unequal_length():
    S = 5
    k_ids = np.array([[1, 1, 0, 0, -1], [5, 3, 3, 3, 9]])
    k_where = np.array([[0, 1, 0, 1, 0], [0, 0, 1, 2, 0]])
    seen = (PACKED[:, None, :, None] == k_ids[:, None, None, :]) & (PACKED[:, None, :, None] >= 0)
    seen = seen & (k_where[:, None, None, :] <= RESTART[:, None, :, None])
    layer, x, kv = make(pattern=Causal()), sample(B, T, D), sample(B, S, D, seed=1)
    exact, honest = (
        by_hand.attention(
            x.astype(t), by_hand.parameters(layer, t), seen, N=N, K=K, kv=kv.astype(t), theta=100.0,
            positions=RESTART, kv_positions=k_where,
        )
        for t in (np.float64, np.float32)
    )  # fmt: skip
    segments = Segments(jnp.asarray(PACKED), jnp.asarray(k_ids), positions="segment")
    for name in BACKENDS:
        y = jitted(layer, jnp.asarray(x, jnp.float32), name, kv=jnp.asarray(kv, jnp.float32), segments=segments)
        assert_within(y, exact[0], budget(honest[0], exact[0], "float32"))


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_packed_documents_equal_separate_runs_in_values_and_gradients(backend):
    with jax.enable_x64(True):
        layer = with_sinks(pattern=Window(3) | Sink(1), dtype="float64", param_dtype="float64", qk_norm=True)
        graph, params = nnx.split(layer, nnx.Param)
        ids = np.array([0, 0, 0, 0, 1, 1, -1, 2, 2])
        documents, segments = ([0, 4], [4, 6], [7, 9]), Segments(jnp.asarray(ids), positions="segment")
        real = jnp.asarray(ids >= 0)[:, None]

        def packed(params, x):
            return jnp.where(real, nnx.merge(graph, params)(x, segments=segments, backend=backend), 0)

        def separate(params, x):
            parts = [nnx.merge(graph, params)(x[a:b], backend=backend) for a, b in documents]
            return jnp.concatenate([parts[0], parts[1], jnp.zeros((1, D)), parts[2]])

        # One sequence without a batch axis; what stands in the padding must not matter.
        x = jnp.asarray(sample(T, D)).at[6].set(1e3)
        run = lambda f: jax.jit(jax.value_and_grad(lambda p, x: jnp.sum(jnp.sin(f(p, x))), argnums=(0, 1)))
        chex.assert_trees_all_close(run(packed)(params, x), run(separate)(params, x), rtol=1e-10, atol=1e-12)


def test_one_sequence_and_shared_ids_take_the_same_segments():
    layer = make()
    x = jnp.asarray(sample(B, T, D), jnp.float32)
    one = jitted(layer, x[0], segments=Segments(jnp.asarray(PACKED[0]), positions="segment"))
    shared = jitted(layer, x, segments=Segments(jnp.asarray(PACKED[0]), positions="segment"))
    np.testing.assert_allclose(one, shared[0], atol=1e-6)
    plain = jitted(layer, x)
    lengths = jnp.array([7, 9])
    right = jitted(layer, x, segments=Segments.from_lengths(q=lengths, k=lengths))
    np.testing.assert_allclose(right[0, :7], plain[0, :7], atol=1e-6)
    np.testing.assert_allclose(right[1], plain[1], atol=1e-6)


@pytest.mark.slow
def test_dynamic_scaling_gives_queries_and_keys_one_base():
    rule = nn.DynamicScaling(2.0, original_max_position_embeddings=4)
    layer = make(pattern=Full(), rope=nn.Rope(100.0, scaling=rule))
    x, kv = jnp.asarray(sample(1, 3, D), jnp.float32), jnp.asarray(sample(1, 8, D, seed=1), jnp.float32)
    q, k, _ = layer.project(x, kv)
    plain_q, plain_k, _ = make(pattern=Full(), rope=None).project(x, kv)
    for turned, plain, length in ((q, plain_q, 3), (k, plain_k, 8)):
        np.testing.assert_allclose(turned, layer.rope(plain, jnp.arange(length), 8), atol=1e-6)
    assert abs(q - layer.rope(plain_q, jnp.arange(3))).max() > 1e-3  # its own length would leave the base alone


@pytest.mark.cross
@pytest.mark.parametrize("backend", ["dense", pytest.param("tiled", marks=pytest.mark.slow)])
def test_gradients_reach_the_sinks_as_finite_differences_say(backend):
    with jax.enable_x64(True):
        layer = with_sinks(dtype="float64", param_dtype="float64")
        graph, sinks, rest = nnx.split(layer, nnx.PathContains("sinks"), ...)
        x = jnp.asarray(sample(1, 5, D))
        loss = jax.jit(lambda sinks: jnp.sum(jnp.sin(nnx.merge(graph, sinks, rest)(x, backend=backend))))
        (found,) = jax.tree.leaves(jax.jit(jax.grad(loss))(sinks))
        for n, way in enumerate(1e-5 * np.eye(N)):
            ends = [loss(jax.tree.map(lambda leaf, step=step: leaf + step, sinks)) for step in (way, -way)]
            assert abs(found[n] - (ends[0] - ends[1]) / 2e-5) < 1e-8
            assert abs(found[n]) > 1e-4


def test_sinks_start_at_zero_and_only_where_asked_for():
    assert make().sinks is None and not make(learned_sinks=True).sinks[...].any()
    layer = make(learned_sinks=True, pattern=Causal(), rope=None)
    weights = jitted(layer, jnp.zeros((1, 3, D)), return_weights=True).weights
    # All scores are 0 and so is the sink: row i shares 1 among i + 1 keys and the sink.
    np.testing.assert_allclose(weights[0, 0].sum(-1), [1 / 2, 2 / 3, 3 / 4], rtol=1e-6)


@pytest.mark.cross
@pytest.mark.parametrize("dtype, param_dtype", [("bfloat16", "float32"), ("float32", "bfloat16")])
def test_n13_sinks_follow_param_dtype_and_outputs_dtype(dtype, param_dtype):
    layer = with_sinks(dtype=dtype, param_dtype=param_dtype, dropout_rate=0.5)
    call = dict(deterministic=False, dropout_key=jax.random.key(0), segments=Segments(jnp.asarray(PACKED)))
    for backend in BACKENDS:
        y = jax.eval_shape(lambda x, b=backend: layer(x, backend=b, **call), jnp.ones((B, T, D), dtype))
        assert layer.sinks[...].dtype == param_dtype and y.dtype == dtype


def test_one_program_serves_every_key_and_every_packing():
    chex.clear_trace_counter()
    graph, params = nnx.split(with_sinks(dropout_rate=0.2), nnx.Param)
    x = jnp.asarray(sample(B, T, D), jnp.float32)

    @jax.jit
    @chex.assert_max_traces(n=1)
    def run(params, x, key, ids):
        call = dict(deterministic=False, dropout_key=key, segments=Segments(ids, positions="segment"))
        return nnx.merge(graph, params)(x, **call)

    found = [run(params, x, jax.random.key(seed), jnp.asarray(ids)) for seed in (0, 1) for ids in (PACKED, PACKED * 0)]
    assert all(abs(found[0] - other).max() > 1e-3 for other in found[1:])


# -- faults of other libraries ---------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [-0.1, float("nan"), 1.0, 1.5])
def test_d02_a_bad_rate_is_named(rate):
    with pytest.raises(ValueError, match=f"dropout_rate={rate} must be at least 0 and below 1"):
        make(dropout_rate=rate)
    q = jnp.ones((1, 2, 1, 2))
    for backend in BACKENDS:
        with pytest.raises(ValueError, match=f"dropout_rate={rate} must be at least 0 and below 1"):
            attend(q, q, q, Full(), dropout_rate=rate, dropout_key=jax.random.key(0), backend=backend)


def test_d02_a_missing_key_is_named_and_rate_0_needs_none():
    x = jnp.asarray(sample(B, T, D), jnp.float32)
    for backend in BACKENDS:
        with pytest.raises(ValueError, match="dropout_rate=0.1 needs dropout_key= .an rng key"):
            make(dropout_rate=0.1)(x, deterministic=False, backend=backend)
        np.testing.assert_array_equal(make()(x, deterministic=False, backend=backend), make()(x, backend=backend))


@pytest.mark.parametrize("backend", BACKENDS)
def test_d03_deterministic_at_the_call_decides(backend):
    x = jnp.asarray(sample(B, T, D), jnp.float32)
    dropping, plain = make(dropout_rate=0.5), make()
    np.testing.assert_array_equal(dropping(x, deterministic=True, backend=backend), plain(x, backend=backend))
    np.testing.assert_array_equal(
        dropping(x, deterministic=True, dropout_key=jax.random.key(0), backend=backend), plain(x, backend=backend)
    )
    dropped = dropping(x, deterministic=False, dropout_key=jax.random.key(0), backend=backend)
    assert abs(dropped - plain(x, backend=backend)).max() > 0.01
    weights = dropping(x, deterministic=False, dropout_key=jax.random.key(0), return_weights=True).weights
    assert np.any(np.asarray(weights)[:, :, WINDOW_SINK] == 0)


def shown_weights(backend, key, **options):
    """PROBE(8, 8) with two sequences and two heads: v is the identity, so the output rows are the weights."""
    q, v = jnp.zeros((2, 8, 2, 8)), jnp.broadcast_to(jnp.eye(8)[:, None], (2, 8, 2, 8))
    o = attend(q, q, v, Full(), dropout_rate=0.5, dropout_key=key, backend=backend, **options)
    return np.asarray(jnp.swapaxes(o, 1, 2))  # [B, N, T, S]


@pytest.mark.parametrize("backend", BACKENDS)
def test_d04_rows_heads_and_sequences_drop_independently_unless_shared(backend):
    key = jax.random.key(0)
    kept = shown_weights(backend, key) != 0
    assert np.any(kept[:, :, 0] != kept[:, :, 1])
    assert np.any(kept[:, 0] != kept[:, 1]) and np.any(kept[0] != kept[1])
    np.testing.assert_allclose(shown_weights(backend, key), by_hand.dropout(0.5, key, (2, 2, 8, 8)) / 8, rtol=1e-6)
    shared = shown_weights(backend, key, dropout_shared=True)
    np.testing.assert_allclose(shared, by_hand.dropout(0.5, key, (2, 2, 8, 8), shared=True) / 8, rtol=1e-6)
    assert np.any(shared[:, :, 0] != shared[:, :, 1])
    np.testing.assert_array_equal(shared, np.broadcast_to(shared[0, 0], shared.shape))


@pytest.mark.parametrize("backend", BACKENDS)
def test_d05_the_result_is_a_function_of_inputs_and_key(backend):
    graph, params = nnx.split(make(dropout_rate=0.5), nnx.Param)
    x = jnp.asarray(sample(B, T, D), jnp.float32)

    def run(key):
        return nnx.merge(graph, params)(x, deterministic=False, dropout_key=key, backend=backend)

    first = run(jax.random.key(0))
    np.testing.assert_array_equal(run(jax.random.key(0)), first)
    close = 16 * np.finfo(np.float32).eps  # sums in another order
    np.testing.assert_allclose(jax.jit(run)(jax.random.key(0)), first, rtol=close, atol=close)
    np.testing.assert_array_equal(run(jax.random.PRNGKey(0)), first)
    assert abs(run(jax.random.key(1)) - first).max() > 1e-3


@pytest.mark.cross
@pytest.mark.parametrize("backend", BACKENDS)
def test_d06_gradients_with_a_fixed_key_equal_finite_differences(backend):
    with jax.enable_x64(True):
        q, k, v = (sample(1, 4, 1, 2, seed=seed) for seed in range(3))
        options = dict(dropout_rate=0.3, dropout_key=jax.random.key(5), backend=backend)
        layer = nn.Attention(
            2, 1, pattern=Full(), dropout_rate=0.3, dtype="float64", param_dtype="float64", rngs=nnx.Rngs(0)
        )
        call = dict(deterministic=False, dropout_key=jax.random.key(5), backend=backend)
        losses = {
            "attend": (jax.jit(lambda x: jnp.sum(jnp.sin(attend(*x, Full(), **options)))), (q, k, v)),
            "layer": (jax.jit(lambda x: jnp.sum(jnp.sin(layer(x[0][:, :, 0], **call)))), (q,)),
        }
        for loss, at in losses.values():
            for a, grad in enumerate(map(np.asarray, jax.jit(jax.grad(loss))(at))):
                for way in 1e-5 * np.eye(grad.size).reshape(-1, *grad.shape):
                    ends = [loss((*at[:a], at[a] + step, *at[a + 1 :])) for step in (way, -way)]
                    assert abs(np.sum(grad * way) * 1e5 - (ends[0] - ends[1]) / 2e-5) < 1e-5


@pytest.mark.cross
@pytest.mark.parametrize("backend", ("auto", *BACKENDS))
@pytest.mark.parametrize("way", ["plain", "return_weights", "dropout off", "rank 3", "mask", "segments"])
def test_m05_causal_hides_the_future_in_every_mix_of_options(backend, way):
    # PROBE(5, 5) through a layer: zero queries and an identity elsewhere make y the attention rows.
    if way == "return_weights" and backend == "tiled":
        with pytest.raises(ValueError, match="'tiled' does not hold the weights"):
            make()(jnp.ones((1, 5, D)), return_weights=True, backend=backend)
        return
    layer = nn.Attention(5, 1, pattern=Causal(), dropout_rate=0.1 * (way == "dropout off"), rngs=nnx.Rngs(0))
    layer.query.kernel[...] = jnp.zeros((5, 5))
    layer.value.kernel[...] = layer.out.kernel[...] = jnp.eye(5)
    call = {
        "return_weights": dict(return_weights=True),
        "dropout off": dict(deterministic=True),
        "mask": dict(mask=jnp.ones((5, 5), bool)),
        "segments": dict(segments=Segments(jnp.zeros(5, jnp.int32))),
    }.get(way, {})
    out = layer(jnp.eye(5) if way == "rank 3" else jnp.eye(5)[None], backend=backend, **call)
    expected = np.tril(np.ones((5, 5))) / np.arange(1, 6)[:, None]
    for rows in (out.y[0], out.weights[0, 0]) if way == "return_weights" else (out if way == "rank 3" else out[0],):
        np.testing.assert_allclose(rows, expected, rtol=1e-5)
        assert not np.any(np.asarray(rows)[~np.tril(np.ones((5, 5), bool))])
