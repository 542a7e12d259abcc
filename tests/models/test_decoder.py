"""Decoder against the whole model written out in float64 NumPy; scan, remat, flax's modes, training."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attnjax.models import Config, Decoder
from attnjax.models.decoder import scan_periods
from attnjax.patterns import Causal
from tests.nn import by_hand
from tests.support.budget import assert_within, budget

B, T, V = 2, 10, 17
ROW, COL = np.arange(T)[:, None], np.arange(T)
LOCAL = (COL <= ROW) & (ROW - COL < 3)  # window(3) by hand
CONFIG = Config(
    vocab_size=V, d_model=16, num_layers=5, num_heads=4, num_kv_heads=2,
    layout="LG", legend={"L": "window(3)", "G": "causal()"}, theta={"L": 100.0, "G": 1e4},
)  # fmt: skip
UNROLLED = dataclasses.replace(CONFIG, scan=False)
SHALLOW = dataclasses.replace(CONFIG, num_layers=2, layout="L")
TOKENS = np.random.default_rng(0).integers(0, V, (B, T))


def logits_of(model, **options):
    """The jitted model on the shared tokens."""
    graph, state = nnx.split(model)
    return jax.jit(lambda state, tokens: nnx.merge(graph, state)(tokens, **options))(state, TOKENS)


def loss_of(graph, tokens=TOKENS):
    """Mean next-token loss as a function of the parameters."""

    def loss(params):
        picked = jnp.take_along_axis(
            jax.nn.log_softmax(nnx.merge(graph, params)(tokens[:, :-1])), jnp.asarray(tokens)[:, 1:, None], -1
        )
        return -jnp.mean(picked)

    return loss


@pytest.mark.cross
@pytest.mark.parametrize("scan", [False, True], ids=["unrolled", "scan"])
def test_logits_and_weights_as_by_hand(scan):
    # Two periods of LG and one L left over; the scanned model has the options that the unrolled one lacks.
    model = Decoder(dataclasses.replace(CONFIG, scan=scan, tie_embeddings=scan, qk_norm=scan), rngs=nnx.Rngs(0))
    assert (model.periods is not None) == scan and len(model.rest) == (1 if scan else 5)
    seen, theta = [LOCAL, COL <= ROW] * 2 + [LOCAL], [100.0, 1e4] * 2 + [100.0]
    exact, honest = (
        by_hand.decoder(TOKENS, parameters(model, t), seen, N=4, K=2, theta=theta) for t in (np.float64, np.float32)
    )
    out = logits_of(model, return_weights=True)
    assert out.logits.dtype == jnp.float32
    assert_within(out.logits, exact, budget(honest, exact, "float32"))
    for weights, mask in zip(out.weights, seen, strict=True):
        np.testing.assert_array_equal(np.asarray(weights) > 0, np.broadcast_to(mask, (B, 4, T, T)))


def parameters(model, dtype):
    """by_hand.parameters, with the layers unstacked."""
    found = {name: p for name, p in by_hand.parameters(model, dtype).items() if "blocks" not in name}
    for i in range(model.config.num_layers):
        found |= {f"rest.{i}.{name}": p for name, p in by_hand.parameters(model.block(i), dtype).items()}
    return found


def test_stacked_and_unrolled_layers_start_alike():
    scanned, unrolled = (Decoder(config, rngs=nnx.Rngs(0)) for config in (CONFIG, UNROLLED))
    for i in range(CONFIG.num_layers):
        one, other = scanned.block(i), unrolled.block(i)
        chex.assert_trees_all_equal(nnx.state(one), nnx.state(other))
        assert one.attention.pattern == other.attention.pattern == CONFIG.legend[CONFIG.letters[i]]


@pytest.mark.slow
def test_stacked_unrolled_and_remat_give_the_same_logits_and_gradients():
    found = []
    for scan, remat in ((False, False), (True, False), (True, True), (False, True)):
        config = dataclasses.replace(CONFIG, scan=scan, remat=remat)
        graph, params = nnx.split(Decoder(config, rngs=nnx.Rngs(0)), nnx.Param)
        grads = jax.jit(jax.grad(loss_of(graph)))(params)
        chex.assert_tree_all_finite(grads)
        layers = parameters(nnx.merge(graph, grads), np.float32)
        found.append((logits_of(nnx.merge(graph, params), return_weights=True), layers))
    for other in found[1:]:
        chex.assert_trees_all_close(other, found[0], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_gradients_match_finite_differences():
    with jax.enable_x64(True):
        config = dataclasses.replace(SHALLOW, dtype="float64", param_dtype="float64")
        graph, params = nnx.split(Decoder(config, rngs=nnx.Rngs(0)), nnx.Param)
        loss = jax.jit(loss_of(graph))
        rng = np.random.default_rng(1)
        way = jax.tree.map(lambda p: jnp.asarray(rng.standard_normal(p.shape)), params)
        at = [loss(jax.tree.map(lambda p, d, h=h: p + h * d, params, way)) for h in (-1e-5, 1e-5)]
        assert at[0].dtype == jnp.float64
        grads = jax.jit(jax.grad(loss))(params)
        along = sum(jnp.vdot(g, d) for g, d in zip(jax.tree.leaves(grads), jax.tree.leaves(way), strict=True))
        np.testing.assert_allclose(along, (at[1] - at[0]) / 2e-5, rtol=1e-6)


@pytest.mark.cross
@pytest.mark.parametrize(
    "graph_mode, scan, dtype",
    [
        (True, True, "float32"),
        (False, True, "bfloat16"),
        pytest.param(True, False, "bfloat16", marks=pytest.mark.slow),
        pytest.param(False, False, "float32", marks=pytest.mark.slow),
    ],
)
def test_steps_lower_the_loss_with_one_trace_in_both_modes_of_flax(graph_mode, scan, dtype):
    chex.clear_trace_counter()
    config = dataclasses.replace(SHALLOW, scan=scan, dtype=dtype)
    with nnx.set_graph_mode(graph_mode):
        graph, params = nnx.split(Decoder(config, rngs=nnx.Rngs(0)), nnx.Param)

        @jax.jit
        @chex.assert_max_traces(n=1)
        def step(params):
            value, grads = jax.value_and_grad(loss_of(graph))(params)
            return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

        losses = []
        for _ in range(4):
            value, params = step(params)
            losses.append(float(value))
        assert value.dtype == jnp.float32 and np.all(np.diff(losses) < -1e-3)
        assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}


def test_n13_every_parameter_has_param_dtype_and_logits_are_float32():
    for dtype, param_dtype in (("bfloat16", "float32"), ("float32", "bfloat16")):
        config = dataclasses.replace(CONFIG, dtype=dtype, param_dtype=param_dtype, qk_norm=True)
        state, logits = jax.eval_shape(lambda config=config: _built(config))
        assert {leaf.dtype for leaf in jax.tree.leaves(state)} == {jnp.dtype(param_dtype)}
        assert logits.dtype == jnp.float32 and logits.shape == (B, T, V)


def _built(config):
    model = Decoder(config, rngs=nnx.Rngs(0))
    return nnx.state(model), model(jnp.asarray(TOKENS))


@pytest.mark.slow
def test_r10_built_under_eval_shape_then_used():
    with jax.checking_leaks():
        shapes = jax.eval_shape(lambda: nnx.state(Decoder(SHALLOW, rngs=nnx.Rngs(0))))
        model = Decoder(SHALLOW, rngs=nnx.Rngs(0))
        chex.assert_trees_all_equal_shapes_and_dtypes(shapes, nnx.state(model))
        jax.jit(lambda tokens: model(tokens))(TOKENS)


def test_a_layer_draws_the_same_numbers_whatever_follows_it():
    deep, flat = (Decoder(dataclasses.replace(UNROLLED, num_layers=n), rngs=nnx.Rngs(0)) for n in (5, 2))
    kernels = [model.block(1).attention.query.kernel[...] for model in (deep, flat)]
    np.testing.assert_array_equal(*kernels)
    assert not np.array_equal(kernels[0], deep.block(2).attention.query.kernel[...])
    out = [model.block(1).attention.out.kernel[...] * np.float32((2 * n) ** 0.5) for model, n in ((deep, 5), (flat, 2))]
    np.testing.assert_allclose(*out, rtol=1e-6)  # 1 / sqrt(2 num_layers) into the residual stream


def test_positions_turn_every_rotated_layer_and_only_their_differences_count():
    graph, state = nnx.split(Decoder(SHALLOW, rngs=nnx.Rngs(0)))
    run = jax.jit(lambda positions: nnx.merge(graph, state)(TOKENS, positions=positions))
    rows = jnp.arange(T)
    plain, shifted = run(jnp.stack([rows, rows])), run(jnp.stack([rows + 7, rows]))
    spread = run(jnp.stack([rows, 3 * rows]))
    np.testing.assert_allclose(plain, shifted, atol=1e-4)
    np.testing.assert_allclose(plain[0], spread[0], atol=1e-5)
    assert abs(plain[1] - spread[1]).max() > 1e-3
    with pytest.raises(ValueError, match="positions= feeds the rotary embedding only"):
        Decoder(dataclasses.replace(SHALLOW, theta=None), rngs=nnx.Rngs(0))(TOKENS, positions=rows)


def test_the_future_does_not_reach_the_past():
    graph, state = nnx.split(Decoder(SHALLOW, rngs=nnx.Rngs(0)))
    run = jax.jit(lambda tokens: nnx.merge(graph, state)(tokens))
    changed = TOKENS.copy()
    changed[:, 6] = (changed[:, 6] + 1) % V
    one, other = run(TOKENS), run(changed)
    np.testing.assert_array_equal(one[:, :6], other[:, :6])
    assert np.all(np.any(one[:, 6:] != other[:, 6:], axis=-1))


@pytest.mark.parametrize("future", ["full()", "band(3, 1)", "~causal()", "prefix(2) | full()", "window(2) | ~sink(1)"])
def test_patterns_that_see_the_future_are_refused(future):
    config = dataclasses.replace(CONFIG, legend={"L": "causal()", "G": future})
    with pytest.raises(ValueError, match=r"legend\['G'\] = .* looks at tokens after the query.*allow_future=True"):
        jax.eval_shape(lambda: nnx.state(Decoder(config, rngs=nnx.Rngs(0))))
    jax.eval_shape(lambda: nnx.state(Decoder(config, rngs=nnx.Rngs(0), allow_future=True)))
    unused = dataclasses.replace(config, layout="L")
    jax.eval_shape(lambda: nnx.state(Decoder(unused, rngs=nnx.Rngs(0))))


@pytest.mark.slow
def test_prefix_is_accepted_and_shows_its_tokens_to_each_other():
    config = dataclasses.replace(CONFIG, num_layers=1, legend={"L": "prefix(3)", "G": Causal()})
    (weights,) = Decoder(config, rngs=nnx.Rngs(0))(TOKENS, return_weights=True).weights
    np.testing.assert_array_equal(weights[0, 0] > 0, (COL <= ROW) | ((ROW < 3) & (COL < 3)))


def test_wrong_calls_are_named():
    model = Decoder(UNROLLED, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match=f"token {V} is not in the vocabulary"):
        model(np.full((1, 3), V))
    with pytest.raises(ValueError, match=r"tokens\(10,\) must be \[B, T\].*tokens\[None\]"):
        model(TOKENS[0])
    with pytest.raises(TypeError, match="tokens have dtype float64"):
        model(TOKENS.astype(float))
    with pytest.raises(ValueError, match="backend='pallas' is unknown"):
        model(TOKENS, backend="pallas")
    with pytest.raises(IndexError, match="layer 5 of 5"):
        model.block(5)
    with pytest.raises(TypeError, match="config is a dict; give a Config"):
        Decoder({"d_model": 4}, rngs=nnx.Rngs(0))


def test_an_eager_call_equals_the_jitted_one_and_is_compiled_once():
    model = Decoder(dataclasses.replace(SHALLOW, norm_eps=1e-5), rngs=nnx.Rngs(0))  # compiled by no other test
    traces = [scan_periods._cache_size()]
    for _ in range(3):
        eager = model(TOKENS)
        traces.append(scan_periods._cache_size())
    assert np.diff(traces).tolist() == [1, 0, 0]
    np.testing.assert_allclose(eager, logits_of(model), atol=1e-5)
