"""Published folders give the logits that transformers gives, and the comparison would notice a wrong weight."""

import functools
import hashlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attnjax import models
from attnjax.models import published
from tests.models.published import FAMILIES, GOLDEN, copied, edit_weights, golden
from tests.models.saved import SHAPES, bits

TOLERANCE = 1e-4  # of logits up to 25, in float32


@pytest.fixture(autouse=True)
def traced_once(monkeypatch):
    monkeypatch.setattr(published, "skeleton", SHAPES)


@functools.cache
def program(name):
    """(logits of (state, tokens) compiled once, state) of a golden model."""
    graph, state = nnx.split(models.load(GOLDEN / name))
    return jax.jit(lambda state, tokens: nnx.merge(graph, state)(tokens)), state


def error(found, wanted):
    return np.abs(np.asarray(found) - wanted).max()


def test_the_files_are_those_that_transformers_wrote():
    lines = [line.split("  ") for line in (GOLDEN / "SHA256SUMS").read_text().splitlines()]
    found = {path.relative_to(GOLDEN).as_posix() for path in GOLDEN.rglob("*") if path.is_file()}
    assert {name for _, name in lines} == found - {"SHA256SUMS"}
    for digest, name in lines:
        assert hashlib.sha256((GOLDEN / name).read_bytes()).hexdigest() == digest, name


@pytest.mark.cross
@pytest.mark.parametrize("name", FAMILIES)
def test_logits_are_those_of_transformers(name):
    wanted = golden(name)
    run, state = program(name)
    assert error(run(state, wanted["tokens"]), wanted["logits"]) < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_c04_c05_prompt_and_cache_past_the_window_too(name):
    wanted, model = golden(name), models.load(GOLDEN / name)
    graph, state = nnx.split(model)
    step = jax.jit(lambda state, tokens, cache: nnx.merge(graph, state)(tokens, cache=cache))
    B, T = wanted["tokens"].shape
    caches, found = model.init_cache(batch=B, max_length=T), []
    for start, stop in [(0, 7), *((i, i + 1) for i in range(7, T))]:  # a prompt longer than the window, then one by one
        logits, caches = step(state, wanted["tokens"][:, start:stop], caches)
        found.append(logits)
    assert error(jnp.concatenate(found, 1), wanted["logits"]) < TOLERANCE
    if "window" in str(model.config.legend):
        assert T > 3 * 5 and min(cache.slots.size for cache in caches) == 5


@pytest.mark.parametrize("name", FAMILIES)
def test_a_flipped_sign_in_any_weight_is_noticed(name):
    """Of every parameter, the largest number of the first layer that has it (of the table, of a token in the text)."""
    wanted = golden(name)
    run, state = program(name)
    paths, tree = jax.tree_util.tree_flatten_with_path(state)
    leaves = [leaf for _, leaf in paths]
    for i, (path, leaf) in enumerate(paths):
        numbers = np.array(leaf)
        first = wanted["tokens"][0, 0] if "table" in str(path) else 0
        part = numbers[first] if numbers.ndim > 1 else numbers
        part[np.unravel_index(np.abs(part).argmax(), part.shape)] *= -1
        flipped = jax.tree.unflatten(tree, [*leaves[:i], jnp.asarray(numbers), *leaves[i + 1 :]])
        assert error(run(flipped, wanted["tokens"]), wanted["logits"]) > 10 * TOLERANCE, path


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gemma3", "llama", "qwen2"])
def test_in_bfloat16_the_logits_are_near(name):
    wanted = golden(name)
    graph, state = nnx.split(models.load(GOLDEN / name, dtype="bfloat16", param_dtype="bfloat16"))
    found = jax.jit(lambda state, tokens: nnx.merge(graph, state)(tokens))(state, wanted["tokens"])
    assert found.dtype == jnp.float32
    # 8 bits: each of some dozen roundings is 0.4 % of what it rounds; a wrong term would show in whole units.
    spread = wanted["logits"].std()
    assert np.sqrt(np.mean((found - wanted["logits"]) ** 2)) < 0.1 * spread


def test_a_flipped_sign_in_the_file_is_noticed(tmp_path):
    folder, wanted = copied("gemma3", tmp_path), golden("gemma3")

    def flip(weights):
        weights["model.layers.7.self_attn.k_norm.weight"][3] *= -1

    edit_weights(folder, lambda weights: None)
    run, _ = program("gemma3")
    assert error(run(nnx.state(models.load(folder)), wanted["tokens"]), wanted["logits"]) < TOLERANCE
    edit_weights(folder, flip)
    assert error(run(nnx.state(models.load(folder)), wanted["tokens"]), wanted["logits"]) > 10 * TOLERANCE


@pytest.mark.cross
@pytest.mark.parametrize("layer", [0, 1])
def test_the_attention_of_gpt_oss(layer):
    wanted = golden("gpt_oss")
    attention = models.load_attention(GOLDEN / "gpt_oss", layer)
    assert str(attention.pattern) == ["window(5)", "causal()"][layer]
    x = wanted[f"in_{layer}"]
    assert error(attention(x), wanted[f"out_{layer}"]) < TOLERANCE
    sinks = attention.sinks[...]
    attention.sinks.set_value(sinks.at[1].set(-sinks[1]))
    assert error(attention(x), wanted[f"out_{layer}"]) > 10 * TOLERANCE


@pytest.mark.slow
def test_the_attention_of_gpt_oss_with_a_cache():
    wanted, attention = golden("gpt_oss"), models.load_attention(GOLDEN / "gpt_oss", 0)
    x, cache, found = wanted["in_0"], attention.init_cache(batch=2, max_length=24), []
    graph, state = nnx.split(attention)
    step = jax.jit(lambda state, x, cache: nnx.merge(graph, state)(x, cache=cache))
    for start, stop in [(0, 8), (8, 16), (16, 24)]:
        y, cache = step(state, x[:, start:stop], cache)
        found.append(y)
    assert error(jnp.concatenate(found, 1), wanted["out_0"]) < TOLERANCE


@pytest.mark.parametrize("name", FAMILIES)
def test_one_layers_attention_is_that_of_the_whole_model(name):
    model = models.load(GOLDEN / name)
    layer = model.config.num_layers - 1
    alone, inside = models.load_attention(GOLDEN / name, layer), model.block(layer).attention
    assert nnx.split(alone)[0] == nnx.split(inside)[0]
    for one, other in zip(jax.tree.leaves(nnx.state(alone)), jax.tree.leaves(nnx.state(inside)), strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


def test_one_layer_is_read_without_the_rest(tmp_path):
    folder = copied("gpt_oss", tmp_path)
    wanted = models.load_attention(folder, 1)
    edit_weights(folder, lambda weights: [weights.pop(name) for name in list(weights) if ".1.self_attn." not in name])
    alone = models.load_attention(folder, 1)
    np.testing.assert_array_equal(alone.sinks[...], wanted.sinks[...])
    with pytest.raises(ValueError, match=r"weight 'model.layers.0.self_attn.*' is missing \(9 of 9 are\)"):
        models.load_attention(folder, 0)
    with pytest.raises(IndexError, match="layer 2 of 2"):
        models.load_attention(folder, 2)
    for wrong in ("1", 1.0, True, None):
        with pytest.raises(TypeError, match=f"layer={wrong!r} is a"):
            models.load_attention(folder, wrong)


def test_a_whole_gpt_oss_is_refused_and_the_way_out_named():
    with pytest.raises(ValueError, match=r"is a gpt_oss: its MLP is a mixture of experts.*models.load_attention\(path"):
        models.load(GOLDEN / "gpt_oss")


def test_a_saved_folder_has_no_published_layers(tmp_path):
    models.save(models.load(GOLDEN / "smollm2"), tmp_path / "saved")
    with pytest.raises(ValueError, match=r"was written by models.save: take load\(path\).block\(1\).attention"):
        models.load_attention(tmp_path / "saved", 1)


@pytest.mark.parametrize("name", FAMILIES)
def test_saved_again_it_is_bit_equal(name, tmp_path):
    model = models.load(GOLDEN / name)
    models.save(model, tmp_path)
    again = models.load(tmp_path)
    assert again.config == model.config and bits(again) == bits(model)


def test_pattern_and_dtypes_are_as_asked():
    model = models.load(GOLDEN / "gemma3", "window(3) | sink(1)", dtype="bfloat16", param_dtype=jnp.bfloat16)
    assert {str(model.block(i).attention.pattern) for i in range(8)} == {"window(3) | sink(1)"}
    assert (model.config.dtype, model.config.param_dtype) == (jnp.bfloat16, jnp.bfloat16)
    assert model.block(5).attention.rope.theta == 10000.0 and model.block(6).attention.rope.theta == 100.0
    plain = models.load(GOLDEN / "smollm2")  # stored in bfloat16
    assert (plain.config.dtype, plain.config.param_dtype) == (jnp.float32, jnp.float32)
    attention = models.load_attention(GOLDEN / "gemma3", 0, "window(3)", param_dtype="bfloat16")
    assert str(attention.pattern) == "window(3)" and attention.query.kernel.dtype == jnp.bfloat16


@pytest.mark.parametrize("name, layout", [("qwen2", "GGLLL"), ("gemma2", "LG"), ("gemma3", "LLLLLG"), ("mistral", "L")])
def test_layer_types_become_the_shortest_layout(name, layout):
    assert models.load(GOLDEN / name).config.layout == layout
