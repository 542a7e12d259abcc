"""Dynamic NTK counts a text by its own tokens: padding, other rows and other documents change nothing."""

import functools

import jax
import numpy as np
import pytest
from flax import nnx

from attnjax import nn
from attnjax.patterns import Causal, Full
from attnjax.segments import Segments

D, N = 8, 16  # 16 tokens, twice the original length: the base has grown
ROPE = nn.Rope(100.0, scaling=nn.DynamicScaling(4.0, original_max_position_embeddings=8))


def sample(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@functools.cache
def program(causal):
    layer = nn.Attention(D, 2, pattern=Causal() if causal else Full(), rope=ROPE, rngs=nnx.Rngs(0))
    return jax.jit(lambda x, kv, call: layer(x, kv, **call))


def run(x, kv=None, **call):
    return np.asarray(program(kv is None)(x, kv, call))


X, REST = sample(2, N, D), sample(2, 24, D, seed=1)
RIGHT, LEFT = np.concatenate([X, REST], axis=1), np.concatenate([REST, X], axis=1)
IDS = np.where(np.arange(N + 24) < N, 0, -1)
LENGTHS = np.array([N, N])


@pytest.mark.cross
@pytest.mark.parametrize(
    "segments",
    [
        Segments(IDS), Segments(IDS, IDS), Segments(np.stack([IDS, IDS * 3])), Segments(IDS, positions="segment"),
        Segments.from_lengths(q=LENGTHS), Segments.from_lengths(k=LENGTHS), Segments.from_lengths(q=LENGTHS, k=LENGTHS),
    ],
    ids=["ids", "both", "rows", "segment", "q", "k", "q and k"],
)  # fmt: skip
def test_padding_behind_does_not_count(segments):
    np.testing.assert_allclose(run(RIGHT, segments=segments)[:, :N], run(X), atol=1e-5)
    assert abs(run(RIGHT)[:, :N] - run(X)).max() > 1e-2, "unmarked, it is text"


@pytest.mark.cross
@pytest.mark.parametrize("positions", ["row", "segment"])
def test_padding_in_front_does_not_count(positions):
    segments = Segments(IDS[::-1].copy(), positions=positions)
    np.testing.assert_allclose(run(LEFT, segments=segments)[:, 24:], run(X), atol=1e-5)
    placed = np.maximum(np.arange(N + 24) - 24, 0)
    for where in (placed, placed[None].repeat(2, 0), placed.astype(np.float32)):
        np.testing.assert_allclose(run(LEFT, segments=segments, positions=where)[:, 24:], run(X), atol=1e-5)


def test_given_positions_of_padding_do_not_count():
    where = np.concatenate([np.arange(N) + 7, np.arange(24) + 1000])
    expected = run(X, positions=where[:N])
    np.testing.assert_allclose(run(RIGHT, positions=where, segments=Segments(IDS))[:, :N], expected, atol=1e-5)
    assert abs(expected - run(X)).max() > 1e-2, "7 tokens more"


@pytest.mark.slow
def test_rows_do_not_count_each_other():
    lengths = np.array([N, N + 24])
    for segments in (Segments.from_lengths(q=lengths), Segments(np.stack([IDS, 0 * IDS])), Segments(np.stack([IDS, 0 * IDS]), positions="segment")):
        y = run(RIGHT, segments=segments)
        np.testing.assert_allclose(y[:1, :N], run(X[:1]), atol=1e-5)
        np.testing.assert_allclose(y[1:], run(RIGHT[1:]), atol=1e-5)
    where = np.stack([np.arange(N), 3 * np.arange(N)])
    np.testing.assert_allclose(run(X, positions=where), np.concatenate([run(X[b : b + 1], positions=where[b]) for b in (0, 1)]), atol=1e-5)


def test_packed_documents_equal_separate_runs():
    ids = np.array([5] * N + [3] * 12 + [5] * 10 + [-1] * 2)  # an id that comes back is another document
    whole = run(RIGHT, segments=Segments(ids, positions="segment"))
    alone = run(RIGHT[0], segments=Segments(ids, positions="segment"))
    for first, last in ((0, N), (N, N + 12), (N + 12, N + 22)):
        np.testing.assert_allclose(whole[:, first:last], run(RIGHT[:, first:last]), atol=1e-5)
        np.testing.assert_allclose(alone[first:last], whole[0, first:last], atol=1e-5)
    restarted = np.concatenate([np.arange(n) for n in (N, 12, 12)])
    given = run(RIGHT, segments=Segments(ids, positions="segment"), positions=restarted)
    np.testing.assert_allclose(given[:, : N + 12], whole[:, : N + 12], atol=1e-5)


@pytest.mark.slow
def test_queries_and_keys_of_cross_attention_count_together():
    kv = sample(2, 30, D, seed=2)
    expected = run(X[:, :5], kv[:, :20])
    q_ids, k_ids = np.where(np.arange(N) < 5, 2, -1), np.where(np.arange(30) < 20, 2, -1)
    for segments in (
        Segments.from_lengths(q=np.array([5, 5]), k=np.array([20, 20])), Segments(q_ids, k_ids), Segments(q_ids, k_ids, positions="segment"),
    ):  # fmt: skip
        np.testing.assert_allclose(run(X, kv, segments=segments)[:, :5], expected, atol=1e-5)
    packed = Segments(np.array([4] * 5 + [7] * 11), np.array([7] * 10 + [4] * 20), positions="segment")
    y = run(X, kv, segments=packed)
    np.testing.assert_allclose(y[:, :5], run(X[:, :5], kv[:, 10:]), atol=1e-5)
    np.testing.assert_allclose(y[:, 5:], run(X[:, 5:], kv[:, :10]), atol=1e-5)
    far = np.arange(N) + 50
    np.testing.assert_allclose(
        run(X, kv, segments=Segments.from_lengths(k=np.array([20, 20])), positions=far), run(X, kv[:, :20], positions=far), atol=1e-5
    )


@pytest.mark.parametrize("positions", ["row", "segment"])
def test_nothing_but_padding_is_finite(positions):
    assert np.isfinite(run(RIGHT, segments=Segments(np.stack([IDS, 0 * IDS - 1]), positions=positions))).all()
    for empty in (RIGHT[:0], RIGHT[:, :0]):
        y = run(empty, segments=Segments(np.zeros(empty.shape[:2], int), positions=positions))
        assert y.shape == empty.shape


@pytest.mark.slow
def test_a_cache_counts_each_row_as_one_pass_does():
    layer = nn.Attention(D, 2, pattern=Causal(), rope=ROPE, rngs=nnx.Rngs(0))
    lengths = np.array([N, 9])
    y, cache = layer(X, cache=layer.init_cache(batch=2, max_length=40), segments=Segments.from_lengths(q=lengths))
    full = run(X, segments=Segments.from_lengths(q=lengths))
    token = sample(2, 1, D, seed=3)
    then = layer(token, cache=cache).y
    for row, n in enumerate(lengths):
        np.testing.assert_allclose(y[row, :n], full[row, :n], atol=1e-5)
        text = np.concatenate([X[row : row + 1, :n], token[row : row + 1]], axis=1)
        np.testing.assert_allclose(then[row, 0], run(text)[0, -1], atol=1e-5)
