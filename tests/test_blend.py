"""Partial softmax: any split of the keys merges to one pass, in NumPy and JAX."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnjax.blend import finish, merge, of_scores, softmax, start


def case(seed, rows=3, keys=8, values=2):
    r = np.random.default_rng(seed)
    s = r.standard_normal((rows, keys)) * 5
    s[r.random((rows, keys)) < 0.3] = -np.inf
    s[0] = -np.inf  # an empty row
    return s, r.standard_normal((keys, values))


def whole(s, v, sink=None):
    o, lse = np.zeros((len(s), v.shape[1])), np.full(len(s), -np.inf)
    for i, row in enumerate(s):
        e = np.exp(row[np.isfinite(row)])
        total = e.sum() + (0 if sink is None else np.exp(sink))
        if total:
            o[i], lse[i] = e @ v[np.isfinite(row)] / total, np.log(total)
    return o, lse


@pytest.mark.slow
@settings(max_examples=40)
@given(st.integers(0, 1000), st.lists(st.integers(0, 8), max_size=4), st.booleans(), st.sampled_from([None, 0.5]))
def test_any_split_merges_to_one_pass(seed, cuts, use_jax, sink):
    s, v = case(seed)
    edges = [0, *sorted(cuts), 8]
    xp = jnp if use_jax else np
    part = start((3,), 2, np.float32 if use_jax else np.float64, xp)
    for a, b in zip(edges, edges[1:], strict=False):
        piece = xp.asarray(s[:, a:b], part.out.dtype)
        part = merge(part, of_scores(piece, lambda p, a=a, b=b: p @ xp.asarray(v[a:b], p.dtype)))
    sinks = None if sink is None else xp.full((3,), sink, part.out.dtype)
    o, lse = finish(part, sinks)
    want_o, want_lse = whole(s, v, sink)
    assert isinstance(o, np.ndarray) != use_jax
    tolerance = 3e-5 if use_jax else 1e-12
    assert np.allclose(o, want_o, atol=tolerance) and np.allclose(lse, want_lse, atol=tolerance)


@pytest.mark.parametrize("sink", [None, -2.0])
def test_softmax_in_float64(sink):
    s, v = case(3)
    w, lse = softmax(s, np.isfinite(s), sink)
    want_o, want_lse = whole(s, v, sink)
    assert w.dtype == np.float64 and np.allclose(w @ v, want_o, atol=1e-14) and np.allclose(lse, want_lse)


def test_large_scores_do_not_overflow():
    s = np.array([[1e4, 1e4 - 1, -1e4]])
    w, lse = softmax(s, np.ones_like(s, bool))
    assert np.allclose(w, [[1 / (1 + np.exp(-1)), np.exp(-1) / (1 + np.exp(-1)), 0]]) and np.isfinite(lse).all()
