"""Writing on: greedy equals full passes, draws follow their rule, rows and programs do not disturb each other."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attnjax.models import Config, Decoder, generate
from attnjax.models.sample import Rule, check_rule, pick

V = 17
CONFIG = Config(
    vocab_size=V, d_model=16, num_layers=3, num_heads=4, num_kv_heads=2, layout="LG", scan=False,
    legend={"L": "window(4) | sink(1)", "G": "causal()"}, theta=100.0,
)  # fmt: skip
PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6], [5], [8, 9, 7]]


@pytest.fixture(scope="module")
def model():
    return Decoder(CONFIG, rngs=nnx.Rngs(0))


def by_full_passes(model, prompt, max_new):
    """Greedy tokens and log-probabilities, each from one pass over the whole text so far (padded to one length)."""
    run = jax.jit(lambda tokens: jax.nn.log_softmax(model(tokens)))
    text, logprobs = list(prompt), []
    for _ in range(max_new):
        rows = np.asarray(run(np.array([text + [0] * (24 - len(text))])))[0, len(text) - 1]
        text.append(int(rows.argmax()))
        logprobs.append(rows.max())
    return text[len(prompt) :], logprobs


@pytest.mark.slow
def test_greedy_equals_full_passes_row_by_row(model):
    """15 new tokens: the ring of the local layers wraps more than three times."""
    found = generate(model, PROMPTS, max_new=15)
    assert found.tokens.shape == (3, 15) and found.lengths.tolist() == [15] * 3
    for row, prompt in enumerate(PROMPTS):
        tokens, logprobs = by_full_passes(model, prompt, 15)
        assert found.tokens[row].tolist() == tokens
        np.testing.assert_allclose(found.logprobs[row], logprobs, atol=2e-5)


@pytest.mark.slow
def test_a_stop_token_ends_its_row_alone(model):
    free = generate(model, PROMPTS, max_new=8)
    stop = int(free.tokens[0, 2])
    heard = []
    found = generate(model, PROMPTS, max_new=8, stop=stop, on_token=heard.append)
    for row, tokens in enumerate(np.asarray(free.tokens)):
        n = int(np.argmax(tokens == stop)) + 1 if stop in tokens else 8
        assert found.lengths[row] == n
        assert found.tokens[row].tolist() == [*tokens[:n], *[-1] * (8 - n)]
        assert not np.asarray(found.logprobs[row, n:]).any()
    np.testing.assert_array_equal(np.stack(heard, axis=1), found.tokens[:, : len(heard)])
    alone = generate(model, PROMPTS[:1], max_new=8, stop=[stop, stop])
    assert alone.tokens.shape == (1, 8) and alone.tokens[0].tolist() == found.tokens[0].tolist()
    steps = []
    generate(model, PROMPTS[:1], max_new=8, stop=stop, on_token=steps.append)
    assert len(steps) == int(alone.lengths[0]), "nothing is computed behind the last stop"


@pytest.mark.slow
def test_draws_repeat_and_do_not_depend_on_other_rows(model):
    options = dict(max_new=6, temperature=1.5, top_k=9, top_p=0.95)
    one, again = (generate(model, PROMPTS, key=jax.random.key(0), **options) for _ in range(2))
    np.testing.assert_array_equal(one.tokens, again.tokens)
    alone = generate(model, PROMPTS[:1], key=jax.random.key(0), **options)
    np.testing.assert_array_equal(one.tokens[0], alone.tokens[0])
    other = generate(model, PROMPTS, key=jax.random.key(1), **options)
    assert (one.tokens != other.tokens).any()


LOGITS = np.log(np.array([0.1, 0.4, 0.05, 0.3, 0.15], np.float32))


@pytest.mark.cross
@pytest.mark.parametrize(
    ("rule", "shares"),
    [
        (Rule(1.0, None, None), [0.1, 0.4, 0.05, 0.3, 0.15]),
        (Rule(0.5, None, None), np.array([1, 16, 0.25, 9, 2.25]) / 28.5),
        (Rule(1.0, 2, None), np.array([0, 4, 0, 3, 0]) / 7),
        (Rule(1.0, None, 0.7), np.array([0, 4, 0, 3, 0]) / 7),
        (Rule(1.0, None, 0.71), np.array([0, 40, 0, 30, 15]) / 85),
        (Rule(1.0, 2, 0.5), [0, 1, 0, 0, 0]),
        (Rule(1.0, None, 1e-6), [0, 1, 0, 0, 0]),
        (Rule(None, None, None), [0, 1, 0, 0, 0]),
    ],
    ids=str,
)
def test_draws_follow_their_rule(rule, shares):
    draws = 20000
    tokens, logprobs = jax.jit(pick, static_argnums=1)(jnp.tile(LOGITS, (draws, 1)), rule, jax.random.key(0))
    found = np.bincount(np.asarray(tokens), minlength=5) / draws
    shares = np.asarray(shares)
    assert (found[shares == 0] == 0).all()
    assert (np.abs(found - shares) <= 5 * np.sqrt(shares * (1 - shares) / draws)).all()
    np.testing.assert_allclose(logprobs, LOGITS[np.asarray(tokens)], atol=1e-6)


@pytest.mark.slow
def test_programs_are_shared_by_prompts_of_similar_length(model):
    from attnjax.models.generate import _step

    before = _step._cache_size()
    for prompts in ([[1, 2], [3]], [[1, 2, 3, 4, 5], [6, 7]]):
        generate(model, prompts, max_new=7, stop=16)
    assert _step._cache_size() - before == 2  # one for the prompts, one for all steps


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"prompts": []}, ValueError, "prompts is empty"),
        ({"prompts": [[1], []]}, ValueError, r"prompts\[1\] is empty"),
        ({"prompts": [1, 2]}, ValueError, r"prompts\[0\] has shape \(\).*a single prompt is \[prompt\]"),
        ({"prompts": [[1.5]]}, TypeError, r"prompts\[0\] has dtype float64"),
        ({"prompts": [[1, V]]}, ValueError, r"prompts\[0\]: token 17 is not in the vocabulary"),
        ({"prompts": [[-1]]}, ValueError, "token -1 is not in the vocabulary"),
        ({"max_new": 0}, ValueError, "max_new=0 is too small"),
        ({"temperature": 0}, ValueError, r"temperature=0.0 must be above 0; for the likeliest token leave it None"),
        ({"temperature": float("nan")}, ValueError, "temperature=nan must be finite"),
        ({"temperature": 1.0, "key": None}, ValueError, r"temperature=1.0 draws tokens, which needs key="),
        ({"temperature": 1e-40}, ValueError, r"temperature=1e-40 must be from 1e-06 to 1000000.0; for the likeliest"),
        ({"temperature": 1.0, "key": 0}, TypeError, "key=0 is no single JAX key; make one with"),
        ({"key": "junk"}, TypeError, "key='junk' is no single JAX key"),
        ({"temperature": 1.0, "key": jax.random.split(jax.random.key(0), 3)}, TypeError, "is no single JAX key"),
        ({"stop": [[1, 2], [3, 4]]}, ValueError, r"stop has shape \(2, 2\); it is one token id or a flat list"),
        ({"stop": [1, [2, 3]]}, ValueError, r"stop=\[1, \[2, 3\]\] is nested"),
        ({"prompts": 5}, TypeError, "prompts=5 must be one sequence of token ids for each row"),
        ({"prompts": [[1, [2]]]}, ValueError, r"prompts\[0\]=\[1, \[2\]\] is nested"),
        ({"temperature": "hot"}, TypeError, "temperature='hot' is a str"),
        ({"top_k": 3}, ValueError, "top_k=3 cuts what is drawn from, but without temperature= nothing is drawn"),
        ({"temperature": 1.0, "top_k": 0}, ValueError, "top_k=0"),
        ({"temperature": 1.0, "top_k": 18}, ValueError, "top_k=18 is more than the 17 tokens"),
        ({"temperature": 1.0, "top_p": 0}, ValueError, r"top_p=0.0 must be above 0 and at most 1"),
        ({"temperature": 1.0, "top_p": 1.5}, ValueError, "top_p=1.5"),
        ({"stop": V}, ValueError, "stop: token 17 is not in the vocabulary"),
        ({"stop": "."}, TypeError, "stop has dtype"),
        ({"on_token": 3}, TypeError, "on_token=3 cannot be called"),
        ({"model": CONFIG}, TypeError, "model is a Config; give a Decoder"),
    ],
)
def test_wrong_calls_are_named(model, change, error, message):
    arguments = dict(model=model, prompts=PROMPTS, max_new=4, key=jax.random.key(0)) | change
    with pytest.raises(error, match=message):
        generate(arguments.pop("model"), arguments.pop("prompts"), **arguments)


def test_a_prompt_shorter_than_a_prefix_is_refused():
    prefixed = Decoder(dataclasses.replace(CONFIG, num_layers=1, legend={"L": "prefix(3)"}, layout="L"), rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match=r"row 1 gets 1 tokens in its first chunk, but prefix\(3\)"):
        generate(prefixed, PROMPTS, max_new=4)


def test_the_rule_is_one_record():
    assert check_rule(1, 3, 1, jax.random.key(0), V) == Rule(1.0, 3, 1.0) and check_rule(None, None, None, None, V) == Rule(None, None, None)


def test_the_smallest_temperature_takes_the_likeliest():
    """Divided as they are, several large logits would be inf, and the first of them would win."""
    logits = jnp.asarray([[-5.0, 40.0, 60.0, 59.0], [3.0, 2.0, 1.0, 0.0]])
    for rule in (Rule(1e-6, None, None), Rule(1e-6, 3, 0.9)):
        assert pick(logits, rule, jax.random.key(0))[0].tolist() == [2, 0]
