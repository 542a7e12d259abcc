"""Each score against its formula, query by query in float64; blocks of rows; what is refused and why."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnjax import heads
from tests.heads import by_hand

PERIOD = 3
PLAIN = {  # score -> (ours on weights, by hand on one head's)
    "previous_token": (heads.previous_token, by_hand.previous_token),
    "induction": (lambda w: heads.induction(w, PERIOD), lambda w: by_hand.induction(w, PERIOD)),
    "first_token": (heads.first_token, by_hand.first_token),
    "entropy": (heads.entropy, by_hand.entropy),
    "normalized": (lambda w: heads.entropy(w, normalized=True), lambda w: by_hand.entropy(w, normalized=True)),
    "mean_distance": (heads.mean_distance, by_hand.mean_distance),
    "learned_sink": (heads.learned_sink, by_hand.learned_sink),
}


def causal_weights(rng, *lead, T, share=1.0, hidden=0.3):
    """Random causal rows that sum to `share`, some keys with exactly 0."""
    w = rng.random((*lead, T, T)) * np.tri(T) * (rng.random((*lead, T, T)) > hidden)
    w += 1e-3 * np.eye(T)
    return share * w / w.sum(-1, keepdims=True)


def each(by_hand_score, w, *more):
    """by_hand_score of every head; `more` are arrays with the same leading axes."""
    lead = w.shape[:-2]
    return np.array([by_hand_score(w[at], *(x[at] for x in more)) for at in np.ndindex(lead)]).reshape(lead)


@pytest.mark.parametrize("share", [1.0, 0.6], ids=["full", "with a sink"])
@pytest.mark.parametrize("name", PLAIN)
def test_as_by_hand(name, share):
    ours, truth = PLAIN[name]
    w = causal_weights(np.random.default_rng(0), 2, 3, T=9, share=share)
    exact = each(truth, w)
    found = ours(w)
    assert isinstance(found, np.ndarray) and found.dtype == np.float64 and found.shape == (2, 3)
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-14)
    in_jax = ours(jnp.asarray(w, jnp.float32))
    assert isinstance(in_jax, jax.Array) and in_jax.dtype == jnp.float32
    np.testing.assert_allclose(in_jax, exact, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.integers(2, 10), st.integers(2, 4), st.integers(0, 10**6))
def test_scores_by_tokens_as_by_hand(T, vocab, seed):
    rng = np.random.default_rng(seed)
    w, tokens = causal_weights(rng, 2, 3, T=T), rng.integers(0, vocab, (2, T))
    tokens[:, -1] = tokens[:, 0]  # one token stands twice, whatever is drawn
    shared = np.broadcast_to(tokens[:, None], (2, 3, T))
    logits = rng.normal(size=(2, 3, T, vocab + 2))
    for ours, truth, x in by_tokens(w, logits):
        exact = each(lambda one, t, truth=truth: truth(one, t.tolist()), x, shared)
        np.testing.assert_allclose(ours(x, tokens), exact, rtol=0, atol=1e-12)
        # tokens [S] beside heads [N, T, S]
        np.testing.assert_allclose(ours(x[1], tokens[1]), exact[1], rtol=0, atol=1e-12)


def by_tokens(w, logits):
    """(ours, by hand, what they take besides tokens)"""
    return (
        (heads.duplicate_token, by_hand.duplicate_token, w),
        (heads.prefix_matching, by_hand.prefix_matching, w),
        (heads.copying, by_hand.copying, logits),
    )


@pytest.mark.slow
def test_scores_by_tokens_in_jax_as_in_numpy():
    rng = np.random.default_rng(7)
    w, tokens, logits = causal_weights(rng, 2, 3, T=9), rng.integers(0, 4, (2, 9)), rng.normal(size=(2, 3, 9, 6))
    for ours, _, x in by_tokens(w, logits):
        found = ours(jnp.asarray(x, jnp.float32), jnp.asarray(tokens))
        assert isinstance(found, jax.Array) and found.shape == (2, 3)
        np.testing.assert_allclose(found, ours(x, tokens), rtol=1e-4, atol=1e-6)


def test_perfect_heads_score_one_and_their_opposites_nothing():
    T, n = 9, 4
    tokens = np.array([7, *range(n), *range(n)])  # a beginning, and two copies
    previous, induction, duplicate = np.eye(T, k=-1), np.eye(T, k=1 - n), np.eye(T, k=-n)
    assert heads.previous_token(previous) == heads.induction(induction, n) == 1
    assert heads.prefix_matching(induction, tokens) == heads.duplicate_token(duplicate, tokens) == 1
    for score, w in ((heads.prefix_matching, duplicate), (heads.duplicate_token, induction)):
        assert score(w, tokens) == 0
    assert heads.induction(duplicate, n) == heads.first_token(previous[2:], q_offset=2) == 0
    own = np.eye(9)[tokens]
    assert heads.copying(own, tokens) == 1 and heads.copying(-own, tokens) == heads.copying(0 * own, tokens) == -1
    even = np.where(np.arange(9) < n, 1.0, 0.0) * np.ones((T, 1))  # raises all n tokens of the round alike
    assert heads.copying(even[1:], tokens[1:]) == 2 / n - 1


def test_prefix_matching_is_induction_where_the_tokens_of_a_round_differ():
    w = causal_weights(np.random.default_rng(1), 3, T=17)
    round_ = np.random.default_rng(1).permutation(20)[:8]
    tokens = np.concatenate([[21], round_, round_])
    np.testing.assert_allclose(heads.prefix_matching(w, tokens), heads.induction(w, 8), atol=1e-15)


def test_sink_rate_counts_heads_and_the_first_query():
    rng = np.random.default_rng(2)
    w = causal_weights(rng, 2, 3, 4, T=6)
    for threshold in (0.0, 0.3, 0.45):
        exact = each(lambda one, t=threshold: by_hand.above(one, t), w).mean()
        assert heads.sink_rate(w, threshold) == pytest.approx(exact, abs=1e-12)
        assert float(heads.sink_rate(jnp.asarray(w, jnp.float32), threshold)) == pytest.approx(exact, abs=1e-6)
    # The first query alone is 1/4 of the mean here; without it the rate would be 0.
    w = np.eye(4)
    assert heads.sink_rate(w, 0.2) == 1 and heads.first_token(w) == 0


@pytest.mark.parametrize("name", PLAIN)
def test_blocks_of_rows_add_up(name):
    """A score of some rows is the mean over them: blocks, weighed by what counts in them, give the whole."""
    T, at = 9, 4
    w = causal_weights(np.random.default_rng(3), 2, T=T)
    score = {"induction": lambda w, **o: heads.induction(w, PERIOD, **o),
             "normalized": lambda w, **o: heads.entropy(w, normalized=True, **o)}.get(name, PLAIN[name][0])  # fmt: skip
    blocks = [(score(w[:, a:b], q_offset=a), a, b) for a, b in ((at, 7), (7, T))]
    counts = {"mean_distance": w.sum(-1), "induction": np.arange(T) >= T - PERIOD}.get(name, np.ones((2, T)))
    counts = np.broadcast_to(counts, (2, T))
    whole = sum(s * counts[:, a:b].sum(-1) for s, a, b in blocks) / counts[:, at:].sum(-1)
    np.testing.assert_allclose(score(w[:, at:], q_offset=at), whole, atol=1e-12)


@pytest.mark.slow
def test_under_jit():
    w, tokens = jnp.asarray(causal_weights(np.random.default_rng(4), 2, T=6), jnp.float32), jnp.array([3, 4, 5] * 2)
    for score in (heads.previous_token, lambda w: heads.prefix_matching(w, tokens), lambda w: heads.induction(w, 3)):
        np.testing.assert_allclose(jax.jit(score)(w), score(w), atol=1e-6)


EYE = np.eye(4)


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda: heads.previous_token([[1.0]]), TypeError, "weights is a list"),
        (lambda: heads.previous_token(np.eye(4, dtype=int)), TypeError, "weights has dtype int64"),
        (lambda: heads.entropy(np.ones(4) / 4), ValueError, r"weights\(4,\) must be \[.., T, S\]"),
        (lambda: heads.entropy(np.ones((0, 4))), ValueError, "none empty"),
        (lambda: heads.first_token(EYE[2:]), ValueError, "T=2 queries and S=4 keys.*q_offset=2 if the last"),
        (lambda: heads.first_token(EYE[2:], q_offset=3), ValueError, "q_offset=3 puts the last of T=2 .* S=4"),
        (lambda: heads.first_token(EYE, q_offset=1.0), TypeError, "q_offset=1.0 is a float"),
        (lambda: heads.previous_token(1.01 * EYE), ValueError, "a row of weights sums to 1.0100"),
        (lambda: heads.previous_token(EYE - 0.1), ValueError, "weights hold -0.1; .* after the softmax"),
        (lambda: heads.previous_token(EYE * np.nan), ValueError, "weights hold nan"),
        (lambda: heads.previous_token(np.eye(1)), ValueError, "nothing to take the mean of"),
        (lambda: heads.mean_distance(0 * EYE), ValueError, "nothing to take the mean of"),
        (lambda: heads.induction(EYE, 3), ValueError, "S=4 tokens do not hold two copies of period=3: they take 6"),
        (lambda: heads.induction(EYE, 0), ValueError, "period=0 is too small"),
        (lambda: heads.induction(EYE, 2.0), TypeError, "period=2.0 is a float"),
        (lambda: heads.duplicate_token(EYE, np.arange(4)), ValueError, "no token stands twice"),
        (lambda: heads.duplicate_token(EYE, np.arange(5)), ValueError, r"got tokens\(5,\) weights\(4, 4\)"),
        (lambda: heads.duplicate_token(EYE[None], np.zeros((2, 4), int)), ValueError, r"tokens\(2, 4\) weights\(1, 4, 4\)"),
        (lambda: heads.prefix_matching(EYE, np.arange(4.0)), TypeError, "tokens are dtype float64"),
        (lambda: heads.prefix_matching(EYE, [0, 1, 0, 1]), TypeError, "tokens are a list"),
        (lambda: heads.copying(np.ones((3, 5)), np.arange(4)), ValueError, r"logits \[b, .., S, V\]; got tokens\(4,\) logits\(3, 5\)"),
        (lambda: heads.copying(np.ones(4), np.arange(4)), ValueError, r"logits\(4,\) must be \[.., S, V\]"),
        (lambda: heads.copying(np.ones((4, 3)), np.arange(4)), ValueError, "tokens are 0 to 3, but logits have V=3"),
        (lambda: heads.copying(np.ones((4, 5), int), np.arange(4)), TypeError, "logits has dtype int64"),
        (lambda: heads.copying(np.ones((4, 5)), [0, 1, 2, 3]), TypeError, "tokens are a list"),
        (lambda: heads.sink_rate(EYE, 1.0), ValueError, r"threshold=1.0 must be in \[0, 1\)"),
        (lambda: heads.sink_rate(EYE, "0.3"), TypeError, "threshold='0.3' is a str"),
    ],
)  # fmt: skip
def test_refused_with_the_numbers(call, error, text):
    with pytest.raises(error, match=text):
        call()
