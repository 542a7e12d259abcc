"""Prefill and decode equal one full pass, whatever the pattern, the heads and the chunks; slots and visible sets exactly."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnjax as aj
from attnjax.cache.columns import few
from tests.support import oracle
from tests.support.budget import assert_within, budget
from tests.support.rules import build, compositions
from tests.support.streams import arrays, empty, feed, seen

T = 26  # rings of up to 6 wrap more than three times
MIXED = [9, 1, 1, 9, 1, 1, 1, 1, 1, 1]
CHUNKS = [pytest.param(chunks, id=name, marks=marks) for name, chunks, marks in (
    ("mixed", MIXED, ()), ("one", [T], pytest.mark.slow), ("tokens", [1] * T, pytest.mark.slow), ("odd", [7, 1, 13, 2, 3], pytest.mark.slow),
)]  # fmt: skip


def odd_keys(q, k):
    return (k % 2 == 1) | (q == k)


PATTERNS = [
    aj.Window(5),
    aj.Window(4) | aj.Sink(2),
    aj.Window(1),
    aj.Sink(3),
    aj.Chunked(6),
    aj.Chunked(6) | aj.Sink(1),
    aj.Causal(),
    aj.Strided(4),
    aj.Window(3) | aj.Strided(6),
    aj.Window(6) & aj.Strided(2),
    aj.Causal() & ~aj.Window(3),
    aj.Prefix(4),
    aj.Window(6) & aj.Where(odd_keys, sees_future=False),
    aj.PerHead((aj.Window(3), aj.Window(5) | aj.Sink(1), aj.Window(2), aj.Sink(2))),
    aj.PerHead((aj.Window(3), aj.Strided(4), aj.Causal() & aj.Sink(2), aj.Strided(6))),
]


@pytest.mark.cross
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize("chunks", CHUNKS)
def test_every_chunking_sees_what_the_pattern_shows(pattern, chunks):
    chunks = [4, *[1] * (T - 4)] if chunks[0] < pattern.prefix_length else chunks
    heads = len(pattern.patterns) if isinstance(pattern, aj.PerHead) else 1
    found, cache = seen(pattern, T, chunks, heads)
    np.testing.assert_array_equal(found, np.broadcast_to(pattern.mask(T), found.shape))
    held = sorted(p for p in cache.positions[0].tolist() if p >= 0)
    ring = [*range(cache.slots.sinks), *range(max(cache.slots.sinks, T - cache.slots.ring), T)]
    assert held == ring and set(cache.slots.kept(T)) <= set(held)


@pytest.mark.cross
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize("K", [2, pytest.param(4, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.slow)])
def test_decode_equals_one_full_pass(pattern, K):
    q, k, v = arrays(T=T, K=K)
    exact, honest = (oracle.attention(q, k, v, pattern.mask(T), scale=8**-0.5, dtype=d).o for d in (np.float64, np.float32))
    o, _ = feed(empty(pattern, k, v), q, k, v, MIXED)
    assert_within(o, exact, budget(honest, exact, np.float32), str(pattern))


@pytest.mark.cross
@pytest.mark.parametrize("pattern", [aj.Window(4) | aj.Sink(2), aj.Strided(4), aj.Chunked(6)], ids=str)
@pytest.mark.parametrize("backend", ["dense", pytest.param("tiled", marks=pytest.mark.slow)])
def test_named_backends_and_options(pattern, backend):
    q, k, v = arrays(T=T)
    sinks = np.array([0.5, -1, 0, 2], np.float32)
    options = dict(scale=0.3, soft_cap=2.0, sink_logits=sinks)
    want = oracle.attention(q, k, v, pattern.mask(T), **options).o
    o, _ = feed(empty(pattern, k, v), q, k, v, MIXED, backend=backend, **options)
    np.testing.assert_allclose(o, want, atol=3e-6)


def alibi(s, q_pos, k_pos, head, slopes):
    return s - slopes[head] * (q_pos - k_pos).astype(s.dtype)


def test_a_score_function_gets_positions_in_the_text():
    q, k, v = arrays(T=T)
    slopes = np.array([0.5, 0.25, 0.1, 1], np.float32)
    options = dict(score_fn=alibi, score_params=slopes)
    want = aj.attend(q, k, v, aj.Window(4) | aj.Sink(2), **options)
    o, _ = feed(empty(aj.Window(4) | aj.Sink(2), k, v), q, k, v, MIXED, **options)
    np.testing.assert_allclose(o, want, atol=3e-6)


@pytest.mark.slow
def test_weights_stand_for_slots_and_new_tokens():
    q, k, v = arrays(B=1, T=9)
    cache = empty(aj.Window(3) | aj.Sink(1), k, v).append(k[:, :7], v[:, :7])
    o, after, weights = cache.step(q[:, 7:], k[:, 7:], v[:, 7:], return_weights=True)
    columns = np.concatenate([np.asarray(cache.positions[0]), [7, 8]])
    dense = aj.weights(aj.scores(q, k), aj.visible(aj.Window(3) | aj.Sink(1), 9))[:, :, 7:]
    np.testing.assert_allclose(weights, dense[..., columns], atol=1e-6)
    np.testing.assert_allclose(o, cache.step(q[:, 7:], k[:, 7:], v[:, 7:])[0], atol=1e-6)
    assert after.length.tolist() == [9]


@pytest.mark.slow
def test_append_keeps_what_step_keeps():
    q, k, v = arrays(T=T)
    for pattern in (aj.Window(4) | aj.Sink(2), aj.Causal()):
        cache = empty(pattern, k, v)
        appended = cache.append(k[:, :20], v[:, :20]).append(k[:, 20:], v[:, 20:])
        stepped = feed(cache, q, k, v, [20, 6])[1]
        for a, b in zip(appended.store, stepped.store, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_unwritten_and_overwritten_slots_cannot_reach_a_result():
    q, k, v = arrays(B=1, T=6)
    cache = empty(aj.Causal(), k, v).append(k[:, :3], v[:, :3])
    broken = cache.holding(cache.store._replace(k=cache.k.at[:, 3:].set(np.nan), v=cache.v.at[:, 3:].set(np.nan)), cache.refused)
    for n in (1, 2):
        np.testing.assert_array_equal(*(c.step(q[:, :n], k[:, :n], v[:, :n])[0] for c in (cache, broken)))


@pytest.mark.cross
@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        (aj.Strided(4), 10),
        (aj.Strided(7), 6),
        (aj.Window(5) | aj.Strided(8), 10),
        (aj.Window(5) & (aj.Strided(2) | aj.Strided(3)) | aj.Strided(13), 18),  # combs that are read as whole windows
        (aj.PerHead((aj.Strided(8), aj.Strided(4), aj.Window(3), aj.Sink(2))), None),
        (aj.Causal(), None),
        (aj.Strided(1), None),
    ],
    ids=str,
)
def test_a_query_alone_reads_few_slots_and_none_twice(pattern, count):
    q, k, v = arrays(T=40)
    reads = few(pattern, 40)
    assert (None if reads is None or count is None else sum(one.count for one in reads)) == count
    cache = empty(pattern, k, v).append(k[:, :37], v[:, :37])
    o, _ = feed(cache, *(x[:, 37:] for x in (q, k, v)), [1, 1, 1])
    np.testing.assert_allclose(o, aj.attend(q, k, v, pattern)[:, 37:], atol=3e-6)


@pytest.mark.slow
@settings(max_examples=25)
@given(compositions, st.lists(st.integers(1, 12), min_size=3, max_size=6))
def test_any_causal_composition_in_any_chunks(spec, chunks):
    pattern, rule = build(("&", ("causal",), spec))
    length = sum(chunks)
    found, _ = seen(pattern, length, chunks)
    want = np.array([[rule(q, k) for k in range(length)] for q in range(length)])
    np.testing.assert_array_equal(found[0], want)
