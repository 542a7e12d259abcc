"""What a layer does with scores: bias and mask with each call, precision and score_fn from the start, and a score_fn
that is a module, whose parameters learn."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import attnjax as aj
from attnjax import heads, models, nn
from attnjax.attend import attend, run
from tests.nn import by_hand
from tests.support.budget import assert_within, budget
from tests.support.table import alibi

B, T, D, N, K = 2, 9, 16, 4, 2
ROW, COL = np.arange(T)[:, None], np.arange(T)
BACKENDS = ("dense", "tiled")
SLOPES = np.array([-0.1, -0.3, 0.2, 0.0], np.float32)


class Slopes(nnx.Module):
    """ALiBi with slopes that learn."""

    def __init__(self, slopes=SLOPES):
        self.slope = nnx.Param(jnp.asarray(slopes))

    def __call__(self, s, q_pos, k_pos, head, params):
        assert params is None
        return alibi(s, q_pos, k_pos, head, self.slope[...])


def make(**options):
    return nn.Attention(D, N, K, **dict(pattern=aj.Window(5), rngs=nnx.Rngs(0)) | options)


def text(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape or (B, T, D)), jnp.float32)


def slopes(layer):
    return np.asarray(layer.score_module.slope[...])


@pytest.mark.parametrize("backend", BACKENDS)
def test_bias_and_mask_of_a_call_as_by_hand(backend):
    layer, x = make(), text()
    mask, bias = np.asarray(text(B, 1, T, T, seed=1)) > 0.5, np.array(text(N, T, T, seed=2))
    bias[1, 4, 3] = -np.inf
    seen = (COL <= ROW) & (ROW - COL < 5) & mask & ~np.isneginf(bias)
    assert seen.any(-1).sum() < seen.any(-1).size, "some row shall see nothing"
    added = np.where(np.isneginf(bias), 0, bias)
    exact, honest = (
        by_hand.attention(
            np.asarray(x).astype(t), by_hand.parameters(layer, t), seen, N=N, K=K, bias=added.astype(t)
        )
        for t in (np.float64, np.float32)
    )
    call = dict(mask=jnp.asarray(mask), bias=jnp.asarray(bias))
    y = jax.jit(lambda x, call: layer(x, backend=backend, **call))(x, call)
    assert_within(y, exact[0], budget(honest[0], exact[0], "float32"))
    weights = layer(x, return_weights=True, **call).weights
    assert_within(weights, exact[1], budget(honest[1], exact[1], "float32"))


def test_gradients_reach_a_bias_that_is_given_with_each_call():
    layer, x, bias = make(), text(), text(N, T, T, seed=2)
    found = [jax.grad(lambda b, name=name: jnp.sum(jnp.sin(layer(x, bias=b, backend=name))))(bias) for name in BACKENDS]
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)
    assert (np.abs(found[0]) > 1e-6).any() and not found[0][:, COL > ROW].any()


def test_a_bias_and_score_params_and_sinks_go_through_a_block():
    layer = make(score_fn=alibi)
    block, x, bias = nn.Block(layer, nn.SwiGLU(D, 24, rngs=nnx.Rngs(1))), text(), text(T, T, seed=2)
    call = dict(bias=bias, mask=COL != 3, score_params=jnp.asarray(SLOPES), sink_logits=jnp.ones(N))
    call["mask"] = jnp.asarray(call["mask"])
    half = x + layer(block.attention_norm(x), **call)
    np.testing.assert_allclose(block(x, **call), half + block.mlp(block.mlp_norm(half)), atol=1e-6)
    assert abs(block(x, **call) - block(x, score_params=jnp.zeros(N))).max() > 1e-2


@pytest.mark.parametrize("precision", ["default", "high", "highest"])
def test_precision_of_a_layer_is_that_of_its_attention(precision):
    layer, x = make(precision=precision), text()
    q, k, v = layer.project(x)
    for name in BACKENDS:
        given = {name: str(jax.make_jaxpr(f)(*arrays)) for name, f, arrays in (
            ("attend", lambda q, k, v, name=name: attend(q, k, v, layer.pattern, precision=precision, backend=name), (q, k, v)),
            ("layer", lambda x, name=name: layer(x, backend=name), (x,)),
        )}  # fmt: skip
        wanted = f"Precision.{precision.upper()}"
        assert given["attend"].count(wanted) == given["layer"].count(wanted) > 0
    with pytest.raises(ValueError, match="precision='fast' is unknown; use None, 'default'"):
        make(precision="fast")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_function_as_score_fn_takes_its_params_with_each_call(backend):
    layer, x, params = make(score_fn=alibi), text(), jnp.asarray(SLOPES)
    q, k, v = layer.project(x)
    right = attend(q, k, v, layer.pattern, score_fn=alibi, score_params=params, backend="dense").reshape(B, T, -1)
    np.testing.assert_allclose(layer(x, score_params=params, backend=backend), layer.out(right), atol=1e-5)
    gradient = jax.grad(lambda p: jnp.sum(jnp.sin(layer(x, score_params=p, backend=backend))))(params)
    assert np.abs(gradient[:N]).min() > 1e-4


def test_what_a_layer_has_as_parameters_is_refused_with_a_call():
    x = text()
    for layer, name in ((make(score_fn=Slopes()), "score_params"), (make(learned_sinks=True), "sink_logits")):
        with pytest.raises(ValueError, match=f"this layer has {name} of its own, which learn; leave {name}= out"):
            layer(x, **{name: jnp.ones(N)})
        layer(x, **{name: None})
    with pytest.raises(ValueError, match="score_params are given but score_fn is None"):
        make()(x, score_params=jnp.ones(N))
    with pytest.raises(TypeError, match="score_fn=3 cannot be called"):
        make(score_fn=3)


def test_a_bias_beside_a_cache_says_what_to_write_instead():
    layer = make()
    with pytest.raises(ValueError, match="bias= and cache= exclude each other: .*write it as a score_fn of positions"):
        layer(text(), bias=jnp.zeros((T, T)), cache=layer.init_cache(batch=B, max_length=T))


# -- a module as score_fn --------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_module_gives_what_its_function_gives_and_gets_its_gradient(backend):
    layer, plain, x = make(score_fn=Slopes()), make(score_fn=alibi), text()
    loss = lambda y: jnp.sum(jnp.sin(y))
    right, wanted = jax.value_and_grad(lambda p: loss(plain(x, score_params=p, backend="dense")))(jnp.asarray(SLOPES))
    value, found = nnx.value_and_grad(lambda layer: loss(layer(x, backend=backend)))(layer)
    np.testing.assert_allclose(value, right, rtol=1e-5)
    np.testing.assert_allclose(found["score_module"]["slope"][...], wanted, rtol=1e-4, atol=1e-5)
    assert np.abs(wanted).min() > 1e-3


@pytest.mark.cross
@pytest.mark.parametrize("graph_mode", [True, False], ids=["graph", "tree"])
def test_a_module_learns_in_one_trace(graph_mode):
    """A layer with slopes of 0 learns those of another one, which nothing else could teach it."""
    chex.clear_trace_counter()
    with nnx.set_graph_mode(graph_mode):
        layer, x = make(score_fn=Slopes(np.zeros(N, np.float32)), pattern=aj.Causal()), text()
        target = make(score_fn=Slopes(), pattern=aj.Causal())(x)
        graph, own, rest = nnx.split(layer, nnx.PathContains("score_module"), ...)

        @jax.jit
        @chex.assert_max_traces(n=1)
        def step(own):
            error = lambda own: jnp.mean(jnp.square(nnx.merge(graph, own, rest)(x) - target))
            value, grads = jax.value_and_grad(error)(own)
            return value, jax.tree.map(lambda p, g: p - 8 * g, own, grads)

        first, own = step(own)
        for _ in range(300):
            last, own = step(own)
        assert last < 1e-4 * first
        np.testing.assert_allclose(jax.tree.leaves(own)[0], SLOPES, atol=0.01)


def test_layers_with_modules_of_one_kind_share_a_program():
    layers, x = [make(score_fn=Slopes(SLOPES * i)) for i in range(4)], text()
    found = [layers[0](x)]
    programs = run._cache_size()
    found += [layer(x) for layer in layers[1:]]
    assert run._cache_size() == programs
    assert all(abs(found[0] - other).max() > 1e-3 for other in found[1:])


def test_a_module_that_two_layers_share_is_one():
    shared = Slopes()
    pair = nnx.List([make(score_fn=shared), make(score_fn=shared)])
    found = nnx.grad(lambda pair: jnp.sum(jnp.sin(pair[1](pair[0](text())))))(pair)
    alone = nnx.List([make(score_fn=Slopes()), make(score_fn=Slopes())])
    each = nnx.grad(lambda pair: jnp.sum(jnp.sin(pair[1](pair[0](text())))))(alone)
    total = sum(each[i]["score_module"]["slope"][...] for i in range(2))
    np.testing.assert_allclose(found[0]["score_module"]["slope"][...], total, rtol=1e-4, atol=1e-5)


def test_a_module_reaches_the_weights():
    layer, x = make(score_fn=Slopes(), pattern=aj.Causal()), text()
    q, k, _ = layer.project(x)
    s = np.asarray(aj.scores(q, k), np.float64) + SLOPES[:, None, None] * (COL - ROW)
    w = np.where(COL <= ROW, np.exp(s), 0)
    np.testing.assert_allclose(layer(x, return_weights=True).weights, w / w.sum(-1, keepdims=True), atol=1e-5)


@pytest.mark.cross
@pytest.mark.parametrize("pattern", [aj.Causal(), aj.Window(4) | aj.Sink(1)], ids=str)
@pytest.mark.parametrize("backend", ["auto", *BACKENDS])
def test_a_module_decodes_as_in_one_pass(pattern, backend):
    layer, x = make(score_fn=Slopes(), pattern=pattern, rope=100.0, precision="highest"), text()
    cache, outs = layer.init_cache(batch=B, max_length=T), []
    for first, last in ((0, 5), (5, 6), (6, 9)):
        y, cache = layer(x[:, first:last], cache=cache, backend=backend)
        outs.append(y)
    np.testing.assert_allclose(jnp.concatenate(outs, axis=1), layer(x), atol=5e-6)
    both = layer(x[:, :1], cache=layer.init_cache(batch=B, max_length=T), return_weights=True)
    np.testing.assert_allclose(np.asarray(both.weights).sum(-1), 1, atol=1e-6)


def test_params_of_a_call_reach_a_step_of_the_cache():
    layer, x, params = make(score_fn=alibi, pattern=aj.Causal()), text(), jnp.asarray(SLOPES)
    y, cache = layer(x[:, :5], cache=layer.init_cache(batch=B, max_length=T), score_params=params)
    more, _ = layer(x[:, 5:], cache=cache, score_params=params)
    np.testing.assert_allclose(jnp.concatenate([y, more], axis=1), layer(x, score_params=params), atol=5e-6)


# -- a decoder whose layers have one -----------------------------------------------------------------------------


def decoder(**options):
    """Two layers, each with slopes of its own, stacked under `scan` as all parameters are."""
    config = models.Config(vocab_size=11, d_model=D, num_layers=2, num_heads=N, num_kv_heads=K, theta=None, **options)
    model = models.Decoder(config, rngs=nnx.Rngs(0))
    if model.periods is None:
        for i, block in enumerate(model.rest):
            block.attention.score_module = nnx.data(Slopes(SLOPES * (i + 1)))
    else:
        model.periods.blocks[0].attention.score_module = nnx.data(Slopes(np.stack([SLOPES, 2 * SLOPES])))
    return model


TOKENS = jnp.asarray(np.random.default_rng(3).integers(0, 11, (B, T)))


def losses(model):
    """(loss, gradients of the slopes of both layers)."""
    graph, params = nnx.split(model, nnx.Param)
    loss = lambda params: jnp.mean(jnp.sin(nnx.merge(graph, params)(TOKENS)))
    value, found = jax.jit(jax.value_and_grad(loss))(params)
    slopes = [x for path, x in jax.tree_util.tree_leaves_with_path(found) if "slope" in jax.tree_util.keystr(path)]
    return value, np.concatenate([np.reshape(x, (-1, N)) for x in slopes])


@pytest.mark.slow
def test_layers_of_a_decoder_get_gradients_unrolled_scanned_and_recomputed():
    value, wanted = losses(decoder(scan=False))
    assert np.abs(wanted).min() > 1e-6 and wanted.shape == (2, N)
    for options in (dict(scan=True), dict(scan=True, remat=True), dict(scan=False, remat=True)):
        found, slopes = losses(decoder(**options))
        np.testing.assert_allclose(found, value, rtol=1e-5)
        np.testing.assert_allclose(slopes, wanted, rtol=1e-3, atol=1e-7)


@pytest.mark.slow
def test_a_decoder_with_modules_decodes_as_in_one_pass():
    model = decoder(scan=True)
    right = model(TOKENS)
    first, cache = model(TOKENS[:, :6], cache=model.init_cache(batch=B, max_length=T))
    rest, _ = model(TOKENS[:, 6:], cache=cache)
    np.testing.assert_allclose(jnp.concatenate([first, rest], axis=1), right, atol=2e-5)


def test_heads_are_measured_with_the_scores_that_their_layer_makes():
    model = decoder(scan=False)
    found = heads.measure(model, TOKENS)
    weights = model(TOKENS, return_weights=True).weights
    for i, w in enumerate(weights):
        np.testing.assert_allclose(found["previous_token"][i], heads.previous_token(w).mean(axis=0), atol=1e-5)
    assert np.abs(found["previous_token"] - heads.measure(models.Decoder(model.config, rngs=nnx.Rngs(0)), TOKENS)["previous_token"]).max() > 1e-3
