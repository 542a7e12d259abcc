"""Segments, positions, dropout, sinks and scaled rotation through the decoder, against the model by hand."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attnjax import nn
from attnjax.models import Config, Decoder
from attnjax.segments import Segments
from tests.nn import by_hand
from tests.support.budget import assert_within, budget

B, T, V = 2, 10, 17
ROW, COL = np.arange(T)[:, None], np.arange(T)
IDS = np.array([[0, 0, 0, 0, 1, 1, 1, 1, -1, -1], [2, 2, 2, 3, 3, 3, 3, 3, 3, 3]])
RESTART = np.array([[0, 1, 2, 3, 0, 1, 2, 3, 0, 1], [0, 1, 2, 0, 1, 2, 3, 4, 5, 6]])
SAME = (IDS[:, None, :, None] == IDS[:, None, None, :]) & (IDS[:, None, :, None] >= 0)
SEGMENTS = Segments(jnp.asarray(IDS), positions="segment")
TOKENS = np.random.default_rng(0).integers(0, V, (B, T))
KEY = jax.random.key(11)
CONFIG = Config(
    vocab_size=V, d_model=16, num_layers=5, num_heads=4, num_kv_heads=2, dropout_rate=0.25, learned_sinks=True,
    layout="LG", legend={"L": "window(3) | sink(1)", "G": "causal()"}, theta={"L": 100.0, "G": 1e4},
)  # fmt: skip
SHALLOW = dataclasses.replace(CONFIG, num_layers=2, layout="L")


def built(config, sinks=True):
    """The model with its sinks away from 0."""
    model = Decoder(config, rngs=nnx.Rngs(0))
    for path, leaf in nnx.to_flat_state(nnx.state(model)):
        if path[-1] == "sinks" and sinks:
            leaf[...] = jnp.broadcast_to(jnp.asarray([0.5, -1.0, 1.5, 0.0], leaf[...].dtype), leaf[...].shape)
    return model


def run(model, tokens=TOKENS, **call):
    """The model in one compiled program; `call` holds arrays, segments and keys."""
    fixed = dict(deterministic="dropout_key" not in call, return_weights=call.pop("return_weights", False))
    graph, state = nnx.split(model)
    return jax.jit(lambda state, tokens, call: nnx.merge(graph, state)(tokens, **fixed, **call))(state, tokens, call)


def parameters(model, dtype):
    """by_hand.parameters, with the layers unstacked."""
    found = {name: p for name, p in by_hand.parameters(model, dtype).items() if "blocks" not in name}
    for i in range(model.config.num_layers):
        found |= {f"rest.{i}.{name}": p for name, p in by_hand.parameters(model.block(i), dtype).items()}
    return found


def test_packed_dropped_and_sunk_as_by_hand():
    where = RESTART[:, None]
    causal = (COL <= ROW) & SAME
    local = causal & ((where[..., :, None] - where[..., None, :] < 3) | (where[..., None, :] < 1))
    model = built(dataclasses.replace(CONFIG, num_layers=2))
    kept = [by_hand.dropout(0.25, jax.random.fold_in(KEY, i), (B, 4, T, T)) for i in range(2)]
    options = dict(N=4, K=2, theta=[100.0, 1e4], positions=RESTART, dropout=kept)
    exact, honest = (
        by_hand.decoder(TOKENS, parameters(model, t), [local, causal], **options) for t in (np.float64, np.float32)
    )
    out = run(model, segments=SEGMENTS, dropout_key=KEY, return_weights=True)
    assert_within(out.logits, exact, budget(honest, exact, "float32"))
    for weights, factor, seen in zip(out.weights, kept, [local, causal], strict=True):
        np.testing.assert_array_equal(np.asarray(weights) > 0, (factor > 0) & seen)


# Both have two whole periods; the larger one has two letters in each and a layer left over.
@pytest.mark.parametrize("config", [SHALLOW, pytest.param(CONFIG, marks=pytest.mark.slow)], ids=["L", "LG"])
def test_stacked_and_unrolled_layers_drop_alike_bit_for_bit(config):
    found = []
    for scan in (True, False):
        model = built(dataclasses.replace(config, scan=scan))
        assert (model.periods is not None) == scan
        found.append(run(model, segments=SEGMENTS, dropout_key=KEY, return_weights=True))
    chex.assert_trees_all_equal(*found)


@pytest.mark.slow
def test_remat_drops_alike_in_the_second_forward_pass():
    losses = []
    for remat in (False, True):
        graph, params = nnx.split(built(dataclasses.replace(SHALLOW, remat=remat)), nnx.Param)
        call = dict(deterministic=False, dropout_key=KEY)
        loss = lambda params, graph=graph, call=call: jnp.sum(jnp.sin(nnx.merge(graph, params)(TOKENS, **call)))
        losses.append(jax.jit(jax.value_and_grad(loss))(params))
    chex.assert_trees_all_close(*losses, rtol=1e-5, atol=1e-5)


def test_d05_layers_that_share_a_parent_key_drop_differently():
    config = dataclasses.replace(SHALLOW, legend={"L": "causal()"}, theta=None)
    weights = run(built(config), dropout_key=KEY, return_weights=True).weights
    lower = np.broadcast_to(COL <= ROW, weights[0].shape)
    dropped = [np.asarray(w)[lower] == 0 for w in weights]
    assert np.any(dropped[0] != dropped[1])
    for share in map(np.mean, dropped):
        assert abs(share - 0.25) < 5 * (0.25 * 0.75 / lower.sum()) ** 0.5  # five standard errors
    other = run(built(config), dropout_key=jax.random.key(12), return_weights=True).weights
    assert np.any((np.asarray(other[0])[lower] == 0) != dropped[0])


@pytest.mark.slow
def test_d02_d03_deterministic_needs_no_key_and_a_missing_key_is_named():
    model, plain = built(SHALLOW), built(dataclasses.replace(SHALLOW, dropout_rate=0.0))
    with pytest.raises(ValueError, match="dropout_rate=0.25 needs dropout_key= .an rng key"):
        model(TOKENS, deterministic=False)
    np.testing.assert_array_equal(run(model), run(plain))
    np.testing.assert_array_equal(plain(TOKENS, deterministic=False), plain(TOKENS))
    np.testing.assert_array_equal(model(TOKENS, dropout_key=KEY), model(TOKENS))
    assert abs(run(model, dropout_key=KEY) - run(model)).max() > 1e-3


@pytest.mark.slow
def test_packed_documents_equal_separate_runs_in_values_and_gradients():
    with jax.enable_x64(True):
        graph, params = nnx.split(
            built(dataclasses.replace(SHALLOW, dtype="float64", param_dtype="float64")), nnx.Param
        )

        def packed(params):
            logits = nnx.merge(graph, params)(TOKENS[:1], segments=Segments(IDS[:1], positions="segment"))
            return jnp.concatenate([logits[:, :4], logits[:, 4:8]])

        def separate(params):
            return nnx.merge(graph, params)(TOKENS[0, :8].reshape(2, 4))

        value = lambda f: jax.jit(jax.value_and_grad(lambda params: jnp.sum(jnp.sin(f(params)))))
        np.testing.assert_allclose(jax.jit(packed)(params), jax.jit(separate)(params), rtol=1e-9, atol=1e-11)
        chex.assert_trees_all_close(value(packed)(params), value(separate)(params), rtol=1e-9, atol=1e-11)


@pytest.mark.slow
def test_given_positions_replace_the_restarted_ones_of_the_rotation():
    config = dataclasses.replace(SHALLOW, layout="G")
    model = built(config)
    restarted = run(model, segments=SEGMENTS)
    np.testing.assert_allclose(run(model, segments=SEGMENTS, positions=jnp.asarray(RESTART)), restarted, atol=1e-5)
    # Only differences of positions inside a document count, so rows do as well as restarted positions ...
    rows = run(model, segments=SEGMENTS, positions=jnp.arange(T))
    np.testing.assert_allclose(rows[IDS >= 0], restarted[IDS >= 0], atol=1e-4)
    # ... and wider steps do not.
    assert abs(run(model, segments=SEGMENTS, positions=jnp.arange(T) * 3) - restarted)[IDS >= 0].max() > 1e-3


def test_scaled_rotation_equals_positions_divided_by_hand():
    linear = dataclasses.replace(SHALLOW, rope_scaling={"L": nn.LinearScaling(4.0)})
    assert built(linear).block(0).attention.rope == nn.Rope(100.0, scaling=nn.LinearScaling(4))
    slow = run(built(SHALLOW), positions=jnp.arange(T, dtype=jnp.float32) / 4)
    np.testing.assert_allclose(run(built(linear)), slow, atol=1e-5)
    assert abs(slow - run(built(SHALLOW))).max() > 1e-3


@pytest.mark.slow
def test_dynamic_ntk_does_not_count_padding():
    rule = nn.DynamicScaling(4.0, original_max_position_embeddings=4)
    model = built(dataclasses.replace(CONFIG, num_layers=4, rope_scaling=rule))
    alone = run(model, TOKENS[:1])
    padded = np.concatenate([TOKENS, np.zeros((B, 24), int)], axis=1)
    ids = np.where(np.arange(T + 24) < np.array([T, T + 24])[:, None], 0, -1)
    for segments in (Segments(ids), Segments.from_lengths(q=jnp.array([T, T + 24])), Segments(ids, positions="segment")):
        np.testing.assert_allclose(run(model, padded, segments=segments)[:1, :T], alone, atol=1e-5)
    assert abs(run(model, padded)[:1, :T] - alone).max() > 1e-2


def test_one_program_serves_every_key_and_every_packing():
    chex.clear_trace_counter()
    graph, params = nnx.split(built(SHALLOW), nnx.Param)

    @jax.jit
    @chex.assert_max_traces(n=1)
    def logits(params, key, ids):
        segments = Segments(ids, positions="segment")
        return nnx.merge(graph, params)(TOKENS, segments=segments, deterministic=False, dropout_key=key)

    found = [logits(params, jax.random.key(seed), jnp.asarray(ids)) for seed in (0, 1) for ids in (IDS, IDS * 0)]
    assert all(abs(found[0] - other).max() > 1e-3 for other in found[1:])


def test_n13_sinks_have_param_dtype_with_every_option_on():
    for dtype, param_dtype in (("bfloat16", "float32"), ("float32", "bfloat16")):
        config = dataclasses.replace(CONFIG, dtype=dtype, param_dtype=param_dtype)

        def build(config=config):
            model = Decoder(config, rngs=nnx.Rngs(0))
            call = dict(segments=SEGMENTS, deterministic=False, dropout_key=KEY)
            return nnx.state(model), model(jnp.asarray(TOKENS), **call)

        state, logits = jax.eval_shape(build)
        assert {leaf.dtype for leaf in jax.tree.leaves(state)} == {jnp.dtype(param_dtype)}
        assert logits.dtype == jnp.float32
