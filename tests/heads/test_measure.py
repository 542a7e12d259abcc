"""measure against the scores by hand on the weights that the model itself returns; blocks, memory, refusals."""

import dataclasses
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attnjax import heads, models
from attnjax.patterns import Causal, PerHead, Sink, Window
from tests.heads import by_hand

module = importlib.import_module("attnjax.heads.measure")  # the package has the function under this name
PERIOD, VOCAB = 8, 24
TWICE = np.concatenate([[[0], [5]], *[np.array([[3, 1, 4, 15, 9, 2, 6, 7], [11, 12, 7, 8, 3, 2, 1, 0]])] * 2], axis=1)
PLAIN = models.Config(vocab_size=VOCAB, d_model=16, num_layers=2, num_heads=2)
RICH = models.Config(
    vocab_size=VOCAB, d_model=16, num_layers=5, num_heads=4, num_kv_heads=2, head_dim=6, layout="LP", soft_cap=5.0,
    legend={"L": "window(5) | sink(1)", "P": PerHead((Causal(), Window(2), Causal(), Window(4) | Sink(2)))},
    qk_norm=True, learned_sinks=True, tie_embeddings=True, post_norms=True, embedding_scale=4.0, logits_soft_cap=30.0,
    use_bias=True,
)  # fmt: skip


def decoder(config):
    """Random weights, with norms and sinks that are not at rest."""
    model = models.Decoder(config, rngs=nnx.Rngs(0))
    rng = np.random.default_rng(0)
    for path, leaf in nnx.to_flat_state(nnx.state(model, nnx.Param)):
        if path[-1] in ("scale", "sinks"):
            leaf[...] = jnp.asarray(1 + 0.5 * rng.normal(size=leaf[...].shape), jnp.float32)
        elif "query" in path or "key" in path:
            leaf[...] = 3 * leaf[...]  # weights that are far from even
    return model


def by_the_models_weights(model, tokens):
    """The scores by hand, [layers, heads], from what the model returns under return_weights."""
    weights = [np.asarray(w, np.float64) for w in model(jnp.asarray(tokens), return_weights=True).weights]
    one = {
        "previous_token": by_hand.previous_token, "first_token": by_hand.first_token, "sink_rate": by_hand.above,
        "entropy": by_hand.entropy, "learned_sink": by_hand.learned_sink,
        "induction": lambda w: by_hand.induction(w, PERIOD),
    }  # fmt: skip
    rows = [[[w[b, n] for b in range(len(tokens))] for n in range(w.shape[1])] for w in weights]
    found = {name: [[np.mean([score(w) for w in head]) for head in layer] for layer in rows] for name, score in one.items()}
    for name in ("duplicate_token", "prefix_matching"):
        score = getattr(by_hand, name)
        found[name] = [[np.mean([score(w, t) for w, t in zip(head, tokens, strict=True)]) for head in layer] for layer in rows]
    far = np.abs(np.subtract.outer(*[np.arange(tokens.shape[1])] * 2))
    found["mean_distance"] = [[sum((w * far).sum() for w in head) / sum(w.sum() for w in head) for head in layer] for layer in rows]
    found["copying"] = copying(model, tokens)
    return {name: np.array(score) for name, score in found.items()}


def copying(model, tokens):
    """Olsson's score over the last copy: each value by itself, through out, the norms' gains and the head."""
    config, x = model.config, model.embedding(jnp.asarray(tokens))
    last = range(tokens.shape[1] - PERIOD, tokens.shape[1])
    unembed = model.embedding.table[...].T if config.tie_embeddings else model.head.kernel[...]
    unembed = np.asarray(model.norm.scale[...], np.float64)[:, None] * np.asarray(unembed, np.float64)
    layers = []
    for i in range(config.num_layers):
        block = model.block(i)
        v = np.asarray(block.attention.project(block.attention_norm(x))[2], np.float64)
        out = np.asarray(block.attention.out.kernel[...], np.float64).reshape(config.num_heads, v.shape[-1], -1)
        if config.post_norms:
            out = out * np.asarray(block.attention_post_norm.scale[...], np.float64)
        of_kv = [n // (config.num_heads // v.shape[2]) for n in range(config.num_heads)]
        layers.append([
            np.mean([by_hand.copying(v[b, :, of_kv[n]] @ out[n] @ unembed, row, last)
                     for b, row in enumerate(tokens.tolist())])
            for n in range(config.num_heads)
        ])  # fmt: skip
        x = block(x)
    return layers


@pytest.mark.cross
@pytest.mark.parametrize(
    "config, rows",
    [
        pytest.param(PLAIN, None, id="plain"),
        pytest.param(RICH, None, id="hybrid, per head, grouped, sinks, capped"),
        pytest.param(RICH, 5, id="in blocks of 5 of 17 queries"),
        pytest.param(dataclasses.replace(RICH, scan=False, num_kv_heads=1, tie_embeddings=False), 1, id="one at a time"),
    ],
)
def test_as_by_hand(config, rows, monkeypatch):
    if rows is not None:
        monkeypatch.setattr(module, "BLOCK", 4 * TWICE.size * config.num_heads * rows)
    model = decoder(config)
    found, exact = heads.measure(model, TWICE, period=PERIOD), by_the_models_weights(model, TWICE)
    if not config.learned_sinks:
        del exact["learned_sink"]
    assert set(found) == set(exact)
    for name, score in exact.items():
        assert found[name].shape == (config.num_layers, config.num_heads)
        np.testing.assert_allclose(found[name], score, rtol=2e-5, atol=2e-5, err_msg=name)
    assert config.learned_sinks == bool(np.any(found.get("learned_sink", 0) > 0.05))


@pytest.mark.slow
def test_scores_that_need_repetition_are_left_out_without_it(caplog):
    caplog.set_level("INFO", "attnjax")
    model = models.Decoder(PLAIN, rngs=nnx.Rngs(0))
    always = {"previous_token", "first_token", "sink_rate", "entropy", "mean_distance"}
    assert set(heads.measure(model, np.arange(8)[None])) == always
    assert set(heads.measure(model, np.array([[1, 2, 1, 3]]))) == always | {"duplicate_token", "prefix_matching"}
    assert [text for text in caplog.messages if "layer" in text] == [
        f"measuring heads: layer {n} of 2, {tokens} tokens" for tokens in (8, 4) for n in (1, 2)
    ]


@pytest.mark.slow
def test_a_model_in_16_bits_is_measured_in_32():
    config = dataclasses.replace(RICH, dtype=jnp.bfloat16, param_dtype=jnp.bfloat16)
    found = heads.measure(models.Decoder(config, rngs=nnx.Rngs(0)), TWICE, period=PERIOD)
    assert all(np.isfinite(score).all() for score in found.values())


def test_weights_of_a_whole_layer_never_exist():
    """One layer of 8 heads on 4096 tokens has 512 MiB of weights; a few blocks of 32 MiB are held at a time."""
    T, N = 4096, 8
    q, kv, ids = (jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in (
        ((1, T, N, 16), jnp.float32), ((1, T, 2, 16), jnp.float32), ((1, T), jnp.int32)))  # fmt: skip
    rows = module.BLOCK // (4 * N * T)
    names = (*module.ALWAYS, "duplicate_token", "prefix_matching")
    sums = jax.jit(lambda *arrays: module._sums(*arrays, None, rows, names, None, Causal(), {"scale": 0.25}))
    compiled = sums.lower(q, kv, kv, ids).compile()
    assert 0 < compiled.memory_analysis().temp_size_in_bytes < 4 * N * T * T // 2


@pytest.mark.parametrize(
    "tokens, period, error, text",
    [
        (TWICE, 9, ValueError, "S=17 tokens do not hold two copies of period=9"),
        (TWICE, 7, ValueError, "period=7: the last 7 tokens of a row do not repeat those before them"),
        (TWICE, True, TypeError, "period=True is a bool"),
        (TWICE[0], None, ValueError, r"tokens\(17,\) must be \[B, T\]"),
        (TWICE[:0], None, ValueError, r"tokens\(0, 17\) .* B >= 1"),
        (TWICE * 1.0, None, TypeError, "tokens are dtype float64"),
        (TWICE + 30, None, ValueError, "is not in the vocabulary"),
    ],
)
def test_refused_with_the_numbers(tokens, period, error, text):
    with pytest.raises(error, match=text):
        heads.measure(models.Decoder(PLAIN, rngs=nnx.Rngs(0)), tokens, period=period)


def test_not_under_jit():
    model = models.Decoder(PLAIN, rngs=nnx.Rngs(0))
    with pytest.raises(TypeError, match="measured outside jax.jit"):
        jax.jit(lambda tokens: heads.measure(model, tokens))(jnp.asarray(TWICE))
