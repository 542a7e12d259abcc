"""Segments: ids, lengths, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attnjax as aj


def rows(segments, T=6, pattern=None, S=None):
    return np.asarray(aj.visible(aj.Causal() if pattern is None else pattern, T, S, segments=segments))[:, 0]


def test_positions_count_rows_or_restart():
    ids = jnp.array([0, 0, 0, 5, 5, -1])
    sink = aj.Sink(1)
    assert rows(aj.Segments(ids), pattern=sink)[0, 4].tolist() == [False] * 6
    assert rows(aj.Segments(ids, positions="segment"), pattern=sink)[0, 4].tolist() == [False] * 3 + [True] + [False] * 2
    assert not rows(aj.Segments(ids))[0, 5].any()


def test_an_id_that_comes_back():
    """By rows it is the same segment; with restarting positions every run is a document of its own."""
    ids = jnp.array([0, 0, 1, 1, 0, 0])
    assert rows(aj.Segments(ids))[0, 5].tolist() == [True, True, False, False, True, True]
    assert rows(aj.Segments(ids, positions="segment"))[0, 5].tolist() == [False] * 4 + [True] * 2


def test_lengths_of_queries_and_keys():
    both = aj.Segments.from_lengths(q=jnp.array([1, 2]), k=jnp.array([3, 0]))
    seen = rows(both, 2, aj.Full(), 4)
    assert seen.astype(int).tolist() == [[[1, 1, 1, 0], [0, 0, 0, 0]], [[0, 0, 0, 0], [0, 0, 0, 0]]]


def test_lengths_map_with_vmap():
    q, k = jnp.ones((3, 2, 1, 4)), jnp.arange(60.0).reshape(3, 5, 1, 4)
    segments = aj.Segments.from_lengths(k=jnp.array([1, 3, 5]))
    mapped = jax.vmap(lambda q, k, s: aj.attend(q, k, k, aj.Full(), segments=s))(q, k, segments)
    assert np.allclose(mapped, aj.attend(q, k, k, aj.Full(), segments=segments), atol=1e-6)


def test_segments_are_arguments_of_jit():
    x = jnp.ones((2, 6, 1, 4))
    f = jax.jit(lambda s: aj.attend(x, x, x, aj.Causal(), segments=s))
    for ids in (np.zeros((2, 6), int), np.tile([0, 0, 1, 1, 2, 2], (2, 1))):
        assert f(aj.Segments(ids)).shape == x.shape
    assert f._cache_size() == 1


def test_queries_that_are_padding_may_hold_nan():
    r = np.random.default_rng(0)
    q, k, v = (r.standard_normal((1, 6, 1, 4)).astype(np.float32) for _ in range(3))
    segments = aj.Segments(jnp.array([0, 0, 0, 0, -1, -1]))
    for backend in ("dense", "tiled"):
        loss = lambda q, k, v, b=backend: jnp.sum(aj.attend(q, k, v, aj.Causal(), segments=segments, backend=b) ** 2)
        clean = jax.grad(loss, (0, 1, 2))(q, k, v)
        bad = [x.copy() for x in (q, k, v)]
        for x in bad:
            x[:, 4:] = np.nan
        for a, b in zip(clean, jax.grad(loss, (0, 1, 2))(*bad), strict=True):
            assert np.array_equal(a, b)


@pytest.mark.parametrize(
    ("ask", "kind", "message"),
    [
        (lambda: aj.Segments(jnp.zeros(4)), TypeError, "q_ids has dtype float32; ids and lengths are integer arrays"),
        (lambda: aj.Segments([0, 1]), TypeError, "q_ids has dtype list"),
        (lambda: aj.Segments(jnp.zeros((1, 2, 3), int)), ValueError, "q_ids(1, 2, 3) must be [B, length] or [length]"),
        (lambda: aj.Segments(jnp.zeros(4, int), positions="rows"), ValueError, "positions='rows' must be 'row'"),
        (lambda: aj.Segments(np.array([0, 2**32])), ValueError, "q_ids holds 4294967296, which does not fit into int32"),
        (lambda: aj.Segments.from_lengths(), ValueError, "from_lengths needs q= or k=; without lengths leave segments out"),
        (lambda: aj.Segments.from_lengths(q=jnp.int32(3)), ValueError, "q() must be [B]"),
        (lambda: rows(aj.Segments(jnp.zeros(5, int))), ValueError, "segments of the queries are (1, 5), but the call has 6"),
        (lambda: rows(aj.Segments(jnp.zeros(6, int)), 6, aj.Full(), 8), ValueError, "give k_ids= as well"),
        (lambda: rows(jnp.zeros(6, int)), TypeError, "write Segments(ids) or Segments.from_lengths(...)"),
        (lambda: aj.visible(aj.Causal(), 6, q_offset=0, segments=aj.Segments(jnp.zeros(6, int), positions="segment")),
         ValueError, 'positions="segment" places every row by itself: leave q_offset out'),
        (lambda: aj.visible(aj.Causal(), 6, q_offset=2**31), ValueError, "leaves the range of int32 positions"),
        (lambda: aj.visible(aj.Causal(), 6, q_offset=np.array([2**32])), ValueError, "q_offset holds 4294967296"),
    ],
)  # fmt: skip
def test_what_is_refused(ask, kind, message):
    with pytest.raises(kind) as caught:
        ask()
    assert message in str(caught.value)
