"""positions="text" and positions="cache", against rotations written out query by query."""

import numpy as np
import pytest

import attnjax as aj
from attnjax.rope import Rope
from attnjax.rope_scaling import DynamicScaling
from tests.support.streams import arrays, empty, feed

T = 26


def softmax_rows(q, k, v, turn, seen):
    """Attention row by row; turn(p, keys) -> (query, keys) turned for the query at p, each [heads, H] and [S, K, H]."""
    B, _, N, H = q.shape
    out, G = np.zeros((B, T, N, v.shape[3])), N // k.shape[2]
    for b in range(B):
        for p in range(T):
            keys = np.flatnonzero(seen[p])
            query, turned = turn(q[b, p], k[b, keys], p, keys)
            for n in range(N):
                s = turned[:, n // G] @ query[n] * H**-0.5
                w = np.exp(s - s.max())
                out[b, p, n] = w / w.sum() @ v[b, keys, n // G]
    return out


@pytest.mark.cross
@pytest.mark.parametrize(
    ("chunks", "scaling"),
    [([9, *[1] * 17], None), ([26], None), ([7, 1, 13, 5], None), ([1] * 26, DynamicScaling(4.0, original_max_position_embeddings=3))],
    ids=["tokens", "one", "odd", "dynamic"],
)
def test_places_in_the_cache_have_no_gap_and_the_query_comes_last(chunks, scaling):
    """Of a window with sinks a query sees all that is kept, so its keys stand at 0, 1, ..., n - 1 and it at n - 1."""
    q, k, v = arrays(T=T)
    pattern, rope = aj.Window(5) | aj.Sink(2), Rope(theta=100.0, scaling=scaling)

    def turn(query, keys, p, at):
        places, length = np.arange(len(at)), None if scaling is None else len(at)
        return rope(query[None].astype(np.float64), places[-1:], length)[0], rope(keys.astype(np.float64), places, length)

    want = softmax_rows(q, k, v, turn, pattern.mask(T))
    o, cache = feed(empty(pattern, k, v, positions="cache", rope=rope), q, k, v, chunks)
    np.testing.assert_allclose(o, want, atol=5e-6)
    held = cache.positions[0]
    np.testing.assert_array_equal(cache.k[0], k[0, np.asarray(held)], "keys are kept as they came")


@pytest.mark.cross
@pytest.mark.parametrize("pattern", [aj.Window(5) | aj.Sink(2), aj.Window(5), aj.Causal(), aj.Strided(4)], ids=str)
@pytest.mark.parametrize("positions", ["text", "cache"])
def test_without_dropped_tokens_before_sinks_both_are_the_text(pattern, positions):
    if positions == "cache" and pattern.slots(T).sinks:
        pattern = aj.Window(30) | aj.Sink(2)  # longer than the text: nothing is dropped
    q, k, v = arrays(T=T)
    rope = Rope()
    want = aj.attend(rope(q, np.arange(T)), rope(k, np.arange(T)), v, pattern)
    o, _ = feed(empty(pattern, k, v, max_length=64, positions=positions, rope=rope), q, k, v, [9, 1, 1, 9, *[1] * 6])
    np.testing.assert_allclose(o, want, atol=5e-6)


@pytest.mark.slow
def test_a_stretched_base_turns_all_keys_anew():
    """Dynamic NTK: the base follows the length, so a step equals the last row of a full pass over what there is."""
    q, k, v = arrays(T=T)
    rope = Rope(theta=100.0, scaling=DynamicScaling(4.0, original_max_position_embeddings=8))
    cache = empty(aj.Causal(), k, v, rope=rope)
    o, cache = cache.step(q[:, :9], k[:, :9], v[:, :9])
    for n in range(10, 20):
        o, cache = cache.step(*(x[:, n - 1 : n] for x in (q, k, v)))
        length = np.arange(n)
        want = aj.attend(rope(q[:, :n], length), rope(k[:, :n], length), v[:, :n], aj.Causal())
        np.testing.assert_allclose(o[:, 0], want[:, -1], atol=5e-6)


@pytest.mark.slow
def test_far_down_a_stream_places_stay_small_and_exact():
    """After a million tokens angles in the text lose digits, those in the cache do not."""
    q, k, v = arrays(T=12)
    cache = empty(aj.Window(5) | aj.Sink(2), k, v, positions="cache", rope=Rope(theta=100.0)).append(k[:, :7], v[:, :7])
    moved = np.asarray(cache.positions)
    moved = np.where(moved < 2, moved, moved + 5_000_000)
    later = cache.length + 5_000_000
    far = cache.holding(cache.store._replace(positions=moved, length=later), cache.refused)
    for T_new in (1, 3):
        near_o, far_o = (c.step(*(x[:, 7 : 7 + T_new] for x in (q, k, v)))[0] for c in (cache, far))
        np.testing.assert_allclose(far_o, near_o, atol=1e-6)
