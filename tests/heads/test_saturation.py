"""The experiment on sqrt(d): its numbers against float64 and against JAX's own derivative."""

import jax
import numpy as np
import pytest

import attnjax as aj
from attnjax import heads


@pytest.mark.parametrize("d", [1, 64])
def test_the_numbers_of_both_sides(d):
    found = heads.saturation(d, keys=5, draws=200)
    assert found.d == d
    np.testing.assert_allclose(found.scaled.scores, np.asarray(found.raw.scores) / d**0.5, rtol=1e-6)
    for side in (found.raw, found.scaled):
        assert side.scores.shape == side.weights.shape == side.gradients.shape == (200, 5)
        s = np.asarray(side.scores, np.float64)
        e = np.exp(s - s.max(axis=1, keepdims=True))
        w = e / e.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(side.weights, w, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(side.gradients, w * (1 - w), rtol=1e-4, atol=1e-6)
        assert side.spread == pytest.approx(s.std(), rel=1e-5)
        assert side.range == pytest.approx((s.max(axis=1) - s.min(axis=1)).mean(), rel=1e-5)
        assert side.largest == pytest.approx(w.max(axis=1).mean(), rel=1e-5)
        assert side.gradient == pytest.approx((w * (1 - w)).mean(), rel=1e-4)


def test_gradients_are_those_of_the_librarys_softmax():
    side = heads.saturation(16, draws=3).raw
    jacobian = jax.vmap(jax.jacrev(lambda s: aj.weights(s[None], np.ones((1, 6), bool))[0]))(side.scores)
    np.testing.assert_allclose(side.gradients, np.diagonal(jacobian, axis1=1, axis2=2), rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_what_the_division_is_for():
    """Raw scores spread like sqrt(d) and saturate; divided ones keep spread, weights and gradients at any d."""
    small, large = heads.saturation(4), heads.saturation(1024)
    assert small.raw.spread == pytest.approx(2, rel=0.1) and large.raw.spread == pytest.approx(32, rel=0.05)
    assert small.scaled.spread == pytest.approx(1, rel=0.1) and large.scaled.spread == pytest.approx(1, rel=0.05)
    assert large.raw.largest > 0.95 and large.raw.gradient < 0.015
    assert large.scaled.largest < 0.55 and large.scaled.gradient > 0.09
    assert large.scaled.gradient > 8 * large.raw.gradient


def test_the_key_draws_the_vectors():
    default, same, other = (heads.saturation(8, draws=10, key=key).raw.scores for key in (None, jax.random.key(0), jax.random.key(1)))
    np.testing.assert_array_equal(default, same)
    assert (default != other).all()
    assert len({tuple(row) for row in default.tolist()}) == 10, "every draw has vectors of its own"


@pytest.mark.parametrize(
    "options, error, text",
    [
        ({"d": 0}, ValueError, "d=0 is too small"),
        ({"d": 64.0}, TypeError, "d=64.0 is a float"),
        ({"d": 4, "keys": 1}, ValueError, "keys=1 is too small: softmax over one key is always 1"),
        ({"d": 4, "draws": 0}, ValueError, "draws=0 is too small"),
    ],
)
def test_refused_with_the_numbers(options, error, text):
    with pytest.raises(error, match=text):
        heads.saturation(**options)
