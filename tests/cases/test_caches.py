"""Faults that people reported of other libraries' caches, as tests named after their ids, with the case's numbers.

PROBE: q = k = 0 and one-hot values, so each visible key gets 1/n.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attnjax as aj
from attnjax.rope import Rope

WIDE = 16  # tokens that a probe can tell apart


def create(pattern, **options):
    return aj.Cache.create(pattern, **dict(batch=1, num_kv_heads=1, head_dim=4, value_dim=WIDE, max_length=64) | options)


def probe(cache, first, T):
    """(rows of the tokens first, first + 1, ...: which tokens each sees, the cache afterwards)."""
    q, v = jnp.zeros((1, T, 1, 4)), jax.nn.one_hot(jnp.arange(first, first + T), WIDE)[None, :, None]
    o, cache = cache.step(q, q, v)
    rows = np.asarray(o[0, :, 0])
    sets = [set(np.flatnonzero(row).tolist()) for row in rows]
    for row, seen in zip(rows, sets, strict=True):
        np.testing.assert_allclose(row[sorted(seen)], 1 / len(seen), rtol=1e-6)
    return sets, cache


def held(cache):
    return sorted(p for p in cache.positions[0].tolist() if p >= 0)


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.slow
def test_C03_the_window_is_full_when_the_total_first_equals_it():
    sets, cache = probe(create(aj.Window(4)), 0, 3)
    assert sets[-1] == {0, 1, 2}
    for n, seen in ((4, {0, 1, 2, 3}), (5, {1, 2, 3, 4}), (6, {2, 3, 4, 5}), (7, {3, 4, 5, 6})):
        sets, cache = probe(cache, n - 1, 1)
        assert sets == [seen]


def test_C04_a_ring_that_wraps_three_times_equals_the_dense_window():
    q, k, v = random(1, 13, 4, 8), random(1, 13, 2, 8, seed=1), random(1, 13, 2, 8, seed=2)
    q, k = (aj.rope(x, np.arange(13)) for x in (q, k))
    want = aj.attend(q, k, v, aj.Window(4))
    cache = aj.Cache.create(aj.Window(4), batch=1, num_kv_heads=2, head_dim=8, max_length=64)
    for p in range(13):
        o, cache = cache.step(*(x[:, p : p + 1] for x in (q, k, v)))
        np.testing.assert_allclose(o[:, 0], want[:, p], atol=1e-5)
        assert cache.k.shape[1] == 4


def test_C05_a_prompt_longer_than_the_window():
    q, k, v = random(1, 7, 4, 8), random(1, 7, 2, 8, seed=1), random(1, 7, 2, 8, seed=2)
    cache = aj.Cache.create(aj.Window(4), batch=1, num_kv_heads=2, head_dim=8, max_length=64)
    o, cache = cache.step(q, k, v)
    np.testing.assert_allclose(o, aj.attend(q, k, v, aj.Window(4)), atol=1e-5)
    assert held(cache) == [3, 4, 5, 6]
    _, cache = probe(create(aj.Window(4)), 0, 7)
    assert probe(cache, 7, 1)[0] == [{4, 5, 6, 7}]


def test_C08_rolling_back_is_exact_or_refused():
    _, cache = probe(create(aj.Window(4)), 0, 3)
    assert probe(cache.trim(1), 9, 1)[0] == [{0, 1, 9}]
    _, cache = probe(create(aj.Window(4)), 0, 6)
    assert probe(cache.trim(1), 9, 1)[0] == [{2, 3, 4, 9}]
    with pytest.raises(ValueError, match=r"cannot give back 2 of its 6 tokens.*were overwritten"):
        cache.trim(2)
    with pytest.raises(ValueError, match="cannot give back 1 of its 5 tokens"):
        cache.trim(1).trim(1)
    inside = jax.jit(lambda cache: cache.trim(2))(cache)
    assert inside.refused.tolist() == [True] and inside.length.tolist() == [6] and held(inside) == [2, 3, 4, 5]


@pytest.mark.slow
def test_C10_after_reset_a_cache_is_new():
    q, k, v = random(1, 5, 2, 8), random(1, 5, 2, 8, seed=1), random(1, 5, 2, 8, seed=2)
    fresh = aj.Cache.create(aj.Causal(), batch=1, num_kv_heads=2, head_dim=8, max_length=9, rope=Rope())
    used = fresh.step(q[:, :3], k[:, :3], v[:, :3])[1].reset()
    for a, b in zip(jax.tree.leaves(fresh), jax.tree.leaves(used), strict=True):
        np.testing.assert_array_equal(a, b)
    o, _ = used.step(q[:, 3:], k[:, 3:], v[:, 3:])
    np.testing.assert_array_equal(o, fresh.step(q[:, 3:], k[:, 3:], v[:, 3:])[0])
    _, cache = probe(create(aj.Causal()), 0, 3)
    assert probe(cache.reset(), 5, 2)[0] == [{5}, {5, 6}]


def test_C11_sinks_and_the_newest_are_kept():
    cache = create(aj.Window(3) | aj.Sink(2))
    for p in range(7):
        (seen,), cache = probe(cache, p, 1)
        assert p > 4 or seen == set(range(p + 1))
    assert held(cache) == [0, 1, 4, 5, 6] and seen == {0, 1, 4, 5, 6}


@pytest.mark.cross
@pytest.mark.parametrize("chunks", [[5], [1] * 5, [3, 2]])
def test_C12_one_prefill_equals_token_by_token(chunks):
    cache, sets = create(aj.Window(2) | aj.Sink(1)), []
    for n in chunks:
        found, cache = probe(cache, len(sets), n)
        sets += found
    assert sets == [{0}, {0, 1}, {0, 1, 2}, {0, 2, 3}, {0, 3, 4}]
    assert probe(cache, 5, 1)[0] == [{0, 4, 5}]


def test_C13_positions_go_on_by_what_was_fed():
    q, k, v = random(1, 9, 4, 8), random(1, 9, 2, 8, seed=1), random(1, 9, 2, 8, seed=2)
    want = aj.attend(aj.rope(q, np.arange(9)), aj.rope(k, np.arange(9)), v, aj.Causal())
    cache = aj.Cache.create(aj.Causal(), batch=1, num_kv_heads=2, head_dim=8, max_length=9, rope=Rope())
    outs = []
    for first, n in ((0, 6), (6, 1), (7, 1), (8, 1)):
        o, cache = cache.step(*(x[:, first : first + n] for x in (q, k, v)))
        outs.append(o)
        assert cache.length.tolist() == [first + n]
    np.testing.assert_allclose(jnp.concatenate(outs, axis=1), want, atol=1e-5)


@pytest.mark.cross
@pytest.mark.parametrize(("kept", "given"), [(jnp.bfloat16, jnp.float32), (jnp.float32, jnp.bfloat16)])
def test_C15_a_cache_of_another_dtype(kept, given):
    q, k, v = (jnp.asarray(random(1, 3, 2, 8, seed=s), given) for s in range(3))
    want = aj.attend(q, k, v, aj.Causal())
    cache = aj.Cache.create(aj.Causal(), batch=1, num_kv_heads=2, head_dim=8, max_length=9, dtype=kept)
    for p in range(3):
        o, cache = cache.step(*(x[:, p : p + 1] for x in (q, k, v)))
        assert cache.dtype == kept and o.dtype == given
        np.testing.assert_allclose(np.float32(o[:, 0]), np.float32(want[:, p]), atol=2e-2)


@pytest.mark.parametrize(("kept", "given"), [(jnp.float16, jnp.bfloat16), (jnp.bfloat16, jnp.float16)])
def test_C16_values_are_converted_not_bits(kept, given):
    half = jnp.full((1, 1, 1, 4), 0.5, given)
    cache = aj.Cache.create(aj.Causal(), batch=1, num_kv_heads=1, head_dim=4, max_length=2, dtype=kept).append(half, half)
    assert cache.k[0, 0].tolist() == cache.v[0, 0].tolist() == [[0.5] * 4]


def test_C19_a_fresh_cache_can_be_donated():
    caches = [create(aj.Window(4)) for _ in range(2)]
    leaves = jax.tree.leaves(caches)
    assert len({x.unsafe_buffer_pointer() for x in leaves}) == len(leaves)

    @functools.partial(jax.jit, donate_argnums=0)
    def step(caches, x, v):
        return [cache.step(x, x, v)[1] for cache in caches]

    for _ in range(3):
        caches = step(caches, jnp.ones((1, 1, 1, 4)), jnp.ones((1, 1, 1, WIDE)))
    assert [cache.length.tolist() for cache in caches] == [[3], [3]]


def test_C20_a_cache_does_not_switch_the_causal_rule_off():
    assert probe(create(aj.Causal()), 0, 4)[0] == [{0}, {0, 1}, {0, 1, 2}, {0, 1, 2, 3}]
    q, k, v = random(1, 4, 1, 4), random(1, 4, 1, 4, seed=1), random(1, 4, 1, WIDE, seed=2)
    changed = [x.copy() for x in (k, v)]
    for x in changed:
        x[:, 3] += 1
    one, other = create(aj.Causal()).step(q, k, v)[0], create(aj.Causal()).step(q, *changed)[0]
    np.testing.assert_array_equal(one[:, :3], other[:, :3])


def test_J04_one_trace_serves_32_steps_and_scan_gives_the_same():
    traces = []

    @jax.jit
    def step(cache, x):
        traces.append(1)
        o, cache = cache.step(x[..., :4], x[..., :4], x)
        return cache, o

    xs = jnp.asarray(random(32, 1, 1, 1, WIDE))
    cache, outs = create(aj.Window(4) | aj.Sink(1)), []
    for x in xs:
        cache, o = step(cache, x)
        outs.append(o)
    assert len(traces) == 1
    last, scanned = jax.lax.scan(lambda cache, x: step(cache, x), create(aj.Window(4) | aj.Sink(1)), xs)
    np.testing.assert_allclose(scanned, jnp.stack(outs), atol=1e-6)
    np.testing.assert_array_equal(last.positions, cache.positions)
