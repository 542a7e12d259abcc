"""A real model: SmolLM2-135M from its GGUF file gives the losses that an independent implementation gave."""

import dataclasses
import functools
import pathlib

import jax
import numpy as np
import pytest
from flax import nnx

from attnjax import models, parse
from attnjax.models.weights import skeleton

ROOT = pathlib.Path(__file__).parents[2]
FILE = ROOT / "build/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"  # `make smollm2` puts it there
GOLDEN = np.load(ROOT / "tests/golden/smollm2_golden.npz")
TOLERANCE = 1e-3  # the losses are means over 49152 words of float32 numbers after 30 layers; 1e-4 is measured

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model():
    return models.load(FILE)


def with_pattern(model, pattern):
    """The model with another pattern in every layer."""
    config = dataclasses.replace(model.config, legend={"G": parse(pattern)})
    return nnx.merge(nnx.split(skeleton(config))[0], nnx.state(model))


@functools.partial(jax.jit, static_argnames="graph")
def full_pass(graph, state, tokens):
    return nnx.merge(graph, state)(tokens)[0]


@functools.partial(jax.jit, static_argnames="graph", donate_argnames="caches")
def step(graph, state, tokens, caches):
    logits, caches = nnx.merge(graph, state)(tokens, cache=caches)
    return logits[0], caches


def in_chunks(model, tokens, chunks, positions):
    """Logits of a stream through caches, so many tokens at a time."""
    caches = model.init_cache(batch=1, max_length=len(tokens), positions=positions)
    graph, state = nnx.split(model)
    found, last = [], np.cumsum(chunks)
    assert last[-1] == len(tokens)
    for first, chunk in zip(last - chunks, chunks, strict=True):
        logits, caches = step(graph, state, tokens[None, first : first + chunk], caches)
        found.append(np.asarray(logits))
    assert not caches.refused.any()
    return np.concatenate(found)


def losses(logits, tokens):
    """-log p of each token after the first, in float64."""
    logits = np.asarray(logits, np.float64)[:-1]
    top = logits.max(-1)
    total = top + np.log(np.exp(logits - top[:, None]).sum(-1))
    return total - logits[np.arange(len(logits)), tokens[1:]]


def check(logits, name):
    np.testing.assert_allclose(losses(logits, GOLDEN["token_ids"]), GOLDEN[f"nll_{name}"], atol=TOLERANCE, rtol=0)


def test_one_full_pass(model):
    logits = np.asarray(full_pass(*nnx.split(model), GOLDEN["token_ids"][None]))
    check(logits, "causal")
    np.testing.assert_allclose(logits[-1], GOLDEN["logits_causal_last"], atol=TOLERANCE, rtol=0)
    top = np.sort(logits, axis=-1)[:, ::-1]
    clear = np.abs(np.diff(top[:, :6], axis=-1)).min(-1) > 2 * TOLERANCE  # rows whose ranks no rounding can change
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(np.argsort(-logits, axis=-1)[clear, :5], GOLDEN["top5_causal"][clear])


@pytest.mark.parametrize(
    "pattern, name",
    [("window(64)", "window64"), ("window(63) | sink(1)", "window63_sink1"), ("window(60) | sink(4)", "window60_sink4")],
)
def test_patterns_in_one_pass_and_through_a_ring(model, pattern, name):
    model, tokens = with_pattern(model, pattern), GOLDEN["token_ids"]
    check(full_pass(*nnx.split(model), tokens[None]), name)
    check(in_chunks(model, tokens, [48] * 16, "text"), name)


def test_a_pattern_given_to_load():
    model = models.load(FILE, "window(64) | strided(64)")
    check(full_pass(*nnx.split(model), GOLDEN["token_ids"][None]), "window64_strided64")


@pytest.mark.parametrize("chunks", [[96] * 8, [320, 320, *[1] * 128]], ids=["96", "1"])
def test_positions_in_the_cache(model, chunks):
    model = with_pattern(model, "window(60) | sink(4)")
    check(in_chunks(model, GOLDEN["token_ids"], chunks, "cache"), "window60_sink4_cache_positions")


def test_the_published_perplexities(model):
    for name, perplexity in (("causal", 14.27), ("window64", 40.00), ("window63_sink1", 17.48), ("window60_sink4", 17.68)):
        assert np.exp(GOLDEN[f"nll_{name}"][128:].mean()) == pytest.approx(perplexity, abs=0.01)


def test_a_flipped_sign_fails(model):
    graph, state = nnx.split(model)
    state = jax.tree.map(lambda weight: weight, state)  # variables of its own: the model serves other tests
    kernel = state["rest"][15]["mlp"]["down"]["kernel"]
    largest = np.unravel_index(np.abs(np.asarray(kernel[...])).argmax(), kernel[...].shape)
    kernel[...] = kernel[...].at[largest].multiply(-1.0)
    with pytest.raises(AssertionError, match="Mismatched elements"):
        check(full_pass(graph, state, GOLDEN["token_ids"][None]), "causal")


def test_text_is_cut_as_it_was():
    tokenizer, tokens = models.tokenizer(FILE), GOLDEN["token_ids"].tolist()
    text = tokenizer.decode(tokens, skip_special_tokens=False)
    assert text.startswith("Execution model\n***************\n\n\nStructure of a program")
    assert tokenizer.encode(text).ids == tokens
    assert tokenizer.encode("<|im_start|>user\n1234<|im_end|>").tokens[:3] == ["<|im_start|>", "user", "Ċ"]


def test_generate_takes_the_likeliest_token_of_a_full_pass(model):
    prompt = GOLDEN["token_ids"][:100]
    found = models.generate(model, [prompt], max_new=12)
    whole = np.concatenate([prompt, found.tokens[0]])
    logits = np.asarray(full_pass(*nnx.split(model), whole[None]))
    np.testing.assert_array_equal(logits[99:-1].argmax(-1), found.tokens[0])
    np.testing.assert_allclose(-found.logprobs[0], losses(logits, whole)[99:], atol=TOLERANCE, rtol=0)
