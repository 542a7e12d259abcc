"""Caches under jit, scan and donation; rows with lengths of their own; what cannot be kept is refused."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attnjax as aj
from tests.support.streams import arrays, empty, feed

BOTH = pytest.mark.parametrize("pattern", [aj.Window(4) | aj.Sink(1), aj.Causal()], ids=str)


@pytest.mark.cross
@BOTH
def test_rows_of_different_lengths_are_texts_of_their_own(pattern):
    q, k, v = arrays(B=3, T=20)
    cache, lengths = empty(pattern, k, v), np.array([9, 0, 5])
    o, cache = cache.step(q[:, :9], k[:, :9], v[:, :9], lengths=lengths)
    assert cache.length.tolist() == [9, 0, 5] and not np.asarray(o[1]).any() and not np.asarray(o[2, 5:]).any()
    for row, n in enumerate(lengths):
        alone = empty(pattern, k[:1], v[:1])
        rest = slice(10, 15)
        if n:
            want, alone = alone.step(*(x[row : row + 1, :n] for x in (q, k, v)))
            np.testing.assert_allclose(o[row, :n], want[0], atol=1e-6)
        want, _ = alone.step(*(x[row : row + 1, rest] for x in (q, k, v)))
        got, _ = cache.step(*(x[:, rest] for x in (q, k, v)))
        np.testing.assert_allclose(got[row], want[0], atol=1e-6)


@pytest.mark.cross
@BOTH
def test_one_donated_program_serves_the_stream(pattern):
    q, k, v = arrays(T=40)
    traces = []

    @functools.partial(jax.jit, donate_argnums=0)
    def step(cache, q, k, v):
        traces.append(1)
        return cache.step(q, k, v)[::-1]

    cache, outs = empty(pattern, k, v), []
    for p in range(40):
        before = cache
        cache, o = step(cache, *(x[:, p : p + 1] for x in (q, k, v)))
        assert before.k.is_deleted()
        outs.append(o)
    assert len(traces) == 1
    np.testing.assert_allclose(jnp.concatenate(outs, axis=1), aj.attend(q, k, v, pattern), atol=2e-6)
    xs = tuple(jnp.moveaxis(jnp.asarray(x), 1, 0)[:, :, None] for x in (q, k, v))
    _, scanned = jax.lax.scan(lambda c, x: c.step(*x)[::-1], empty(pattern, k, v), xs)
    np.testing.assert_allclose(jnp.moveaxis(scanned[:, :, 0], 0, 1), jnp.concatenate(outs, axis=1), atol=1e-6)


@pytest.mark.slow
def test_a_full_cache_is_an_error_outside_jit_and_refuses_inside():
    q, k, v = arrays(T=6)
    cache = empty(aj.Causal(), k, v).append(k[:, :5], v[:, :5], lengths=np.array([5, 3]))
    message = r"row 0 of the cache holds 5 tokens and was to get 2 more, but max_length=6 and causal\(\) needs every key"
    with pytest.raises(ValueError, match=message):
        cache.step(q[:, :2], k[:, :2], v[:, :2])
    with pytest.raises(ValueError, match=message):
        cache.append(k[:, :2], v[:, :2])
    o, after = jax.jit(lambda c, *x: c.step(*x))(cache, q[:, :2], k[:, :2], v[:, :2])
    assert after.refused.tolist() == [True, False] and after.length.tolist() == [5, 5]
    for a, b in zip(cache.store, after.store, strict=True):
        np.testing.assert_array_equal(a[0], b[0])
    assert np.isnan(o[0]).all() and np.isfinite(o[1]).all()
    later = jax.jit(lambda c, *x: c.step(*x)[1])(after, q[:, :1], k[:, :1], v[:, :1])
    assert later.refused.tolist() == [True, False] and later.length.tolist() == [6, 6], "the flag stays, the row goes on"
    assert later.reset([0]).refused.tolist() == [False, False]


@pytest.mark.slow
def test_a_ring_has_no_end():
    q, k, v = arrays(T=50)
    cache = empty(aj.Window(4) | aj.Sink(1), k, v, max_length=5)
    assert cache.slots.size == 5 and cache.slots.endless
    o, _ = feed(cache, q, k, v, [50])
    np.testing.assert_allclose(o, aj.attend(q, k, v, aj.Window(4) | aj.Sink(1)), atol=2e-6)
    last = jnp.full((2,), 2**31 - 1, jnp.int32)
    full = cache.holding(cache.store._replace(length=last - 1), cache.refused).append(k[:, :1], v[:, :1])
    assert full.length.tolist() == last.tolist()
    with pytest.raises(ValueError, match="row 0 of the cache holds 2147483647 .* positions are int32, at most 2147483647; reset the row"):
        full.append(k[:, :1], v[:, :1])
    assert jax.jit(lambda c: c.append(k[:, :1], v[:, :1]))(full).refused.all()


@pytest.mark.slow
def test_rows_are_reset_and_forked_one_by_one():
    q, k, v = arrays(B=3, T=12)
    cache = empty(aj.Window(4) | aj.Sink(1), k, v).append(k[:, :9], v[:, :9])
    fresh = empty(aj.Window(4) | aj.Sink(1), k, v)
    for rows in ([1], np.array([False, True, False]), jnp.array([1, 1])):
        one = cache.reset(rows)
        for new, kept, unused in zip(one.store, cache.store, fresh.store, strict=True):
            np.testing.assert_array_equal(new[0::2], kept[0::2])
            np.testing.assert_array_equal(new[1], unused[1])
    forked = one.fork([2, 1, 2, 0])
    assert forked.batch == 4 and forked.length.tolist() == [9, 0, 9, 9]
    np.testing.assert_array_equal(forked.k, jnp.take(one.k, jnp.array([2, 1, 2, 0]), axis=0))
    apart = forked.step(*(x[np.array([0, 1, 2, 2]), 9:10] for x in (q, k, v)))[0]
    assert np.abs(apart[0] - apart[2]).max() > 1e-3, "copies go their own ways"
    traced = jax.jit(lambda c, rows: c.reset(rows).fork(rows))(cache, jnp.array([2]))
    assert traced.length.tolist() == [0]


@pytest.mark.slow
def test_trimming_goes_row_by_row():
    q, k, v = arrays(B=2, T=12)
    cache = empty(aj.Causal(), k, v).append(k[:, :9], v[:, :9]).trim([4, 0])
    assert cache.length.tolist() == [5, 9] and cache.positions[0].tolist() == [0, 1, 2, 3, 4, *[-1] * 7]
    o, _ = cache.step(*(x[:, 9:10] for x in (q, k, v)))
    want, _ = empty(aj.Causal(), k, v).append(k[:, :5], v[:, :5]).step(*(x[:, 9:10] for x in (q, k, v)))
    np.testing.assert_allclose(o[0], want[0], atol=1e-6)


def held(cache, row):
    return [np.asarray(x[row]) for x in cache.store]


@pytest.mark.cross
@pytest.mark.parametrize("pattern", [aj.Window(4) | aj.Sink(1), aj.Prefix(2)], ids=str)
def test_inside_jit_a_wrong_length_is_refused(pattern):
    q, k, v = arrays(B=3, T=6)
    cache = empty(pattern, k, v).append(k[:, :2], v[:, :2])
    chunk = [x[:, 2:5] for x in (q, k, v)]
    for lengths in ([4, 3, -1], [2**31 - 1, 0, -(2**31)]):
        lengths = jnp.array(lengths)
        o, after = jax.jit(lambda c, n: c.step(*chunk, lengths=n))(cache, lengths)
        assert after.refused.tolist() == [True, False, True] and np.isnan(o[::2]).all() and np.isfinite(o[1]).all()
        assert after.length.tolist() == [2, 2 + int(lengths[1]), 2]
        appended = jax.jit(lambda c, n: c.append(*chunk[1:], lengths=n))(cache, lengths)
        assert appended.refused.tolist() == [True, False, True]
        for one in (after, appended):
            for row in (0, 2):
                jax.tree.map(np.testing.assert_array_equal, held(one, row), held(cache, row))


@pytest.mark.cross
@pytest.mark.parametrize("pattern", [aj.Prefix(4), aj.PerHead((aj.Prefix(4), aj.Causal(), aj.Window(2), aj.Prefix(4)))], ids=str)
def test_the_tokens_of_a_prefix_go_together(pattern):
    q, k, v = arrays(T=7)
    cache = empty(pattern, k, v).append(k[:, :6], v[:, :6])
    message = r"row 0 of the cache cannot give back 3 of its 6 tokens: .*prefix\(4\).* shows its first 4 tokens to each other.*at most 2, or all 6"
    with pytest.raises(ValueError, match=message):
        cache.trim(3)
    assert cache.trim([2, 6]).length.tolist() == [4, 0] and cache.trim(2).trim(0).length.tolist() == [4, 4]
    inside = jax.jit(lambda c, n: c.trim(n))(cache, jnp.array([5, 2]))
    assert inside.length.tolist() == [6, 4] and inside.refused.tolist() == [True, False]
    jax.tree.map(np.testing.assert_array_equal, held(inside, 0), held(cache, 0))
    o, _ = cache.trim(2).step(*(x[:, 4:7] for x in (q, k, v)))
    np.testing.assert_allclose(o, aj.attend(q, k, v, pattern)[:, 4:7], atol=1e-6)


def test_inside_jit_a_row_that_does_not_exist_is_forked_as_new_and_refused():
    q, k, v = arrays(T=3)
    cache, rows = empty(aj.Window(4), k, v).append(k, v), jnp.array([1, 2, -1, 0])
    forked = jax.jit(lambda c, rows: c.fork(rows))(cache, rows)
    assert forked.length.tolist() == [3, 0, 0, 3] and forked.refused.tolist() == [False, True, True, False]
    new = empty(aj.Window(4), k, v)
    for row, source in enumerate((held(cache, 1), held(new, 0), held(new, 0), held(cache, 0))):
        jax.tree.map(np.testing.assert_array_equal, held(forked, row), source)
    passed = jax.jit(lambda c, rows: c.reset(rows))(cache, jnp.array([0, 2, -1]))
    assert passed.length.tolist() == [0, 3] and not passed.refused.any()


@pytest.mark.cross
@pytest.mark.parametrize("pattern", [aj.Window(4) | aj.Sink(1), aj.Strided(4), aj.Prefix(2)], ids=str)
def test_no_rows_and_no_tokens_go_through(pattern):
    q, k, v = arrays(T=6)
    cache = empty(pattern, k, v)
    for one in (cache, cache.append(k[:, :4], v[:, :4])):
        o, after = one.step(q[:, :0], k[:, :0], v[:, :0])
        assert o.shape == (2, 0, 4, 6) and after.length.tolist() == one.length.tolist() and not after.refused.any()
        o, after = one.step(q[:, :2], k[:, :2], v[:, :2], lengths=[0, 0])
        assert not np.asarray(o).any() and after.length.tolist() == one.length.tolist() and not after.refused.any()
    none = cache.fork([])
    for n, options in ((0, {}), (1, {}), (3, dict(lengths=[])), (3, dict(return_weights=True))):
        found = none.step(q[:0, :n], k[:0, :n], v[:0, :n], **options)
        assert found[0].shape == (0, n, 4, 6) and found[1].batch == 0
    assert none.append(k[:0], v[:0]).reset().trim(1).trim([]).fork([]).batch == 0


@pytest.mark.cross
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_storage_is_constant_and_rounds_once(dtype):
    q, k, v = arrays(T=30)
    cache = empty(aj.Window(4) | aj.Sink(1), k, v, dtype=dtype)
    o, after = feed(cache, q, k, v, [8, 1, 1, 20])
    kept = [np.asarray(jnp.asarray(x, dtype).astype(jnp.float32)) for x in (k, v)]
    np.testing.assert_allclose(o, aj.attend(q, *kept, aj.Window(4) | aj.Sink(1)), atol=2e-6)
    assert after.dtype == dtype and after.nbytes == cache.nbytes == 2 * 5 * 2 * (8 + 6) * jnp.dtype(dtype).itemsize


def test_the_same_chunks_repeat_bit_for_bit():
    q, k, v = arrays(T=20)
    for pattern in (aj.Window(4) | aj.Sink(1), aj.Strided(4)):
        runs = [feed(empty(pattern, k, v), q, k, v, [9, 1, 1, 9])[0] for _ in range(2)]
        np.testing.assert_array_equal(*runs)
