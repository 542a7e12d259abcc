"""Angles of the rotary embedding at any integer position, against rational arithmetic."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attnjax as aj
from attnjax import nn
from attnjax.rope_scaling import plain_frequencies
from attnjax.turns import angles

PI = Fraction(31415926535897932384626433832795028841971693993751, 10**49)
PLACES = np.array([0, 1, 2, 100, 4095, 2**16, 2**24 + 1, 10**6, 17_000_000, 2**31 - 1, -1, -77, -(2**31) + 1])
LAST_BIT = float(np.spacing(np.float32(np.pi)))  # of an angle of up to half a turn


def right(positions, frequencies):
    """position * frequency less whole turns, in [-pi, pi), by fractions."""
    found = np.empty((len(positions), len(frequencies)))
    for i, p in enumerate(positions):
        for j, f in enumerate(frequencies):
            found[i, j] = (int(p) * Fraction(float(f)) + PI) % (2 * PI) - PI
    return found


def apart(found, exact):
    """The largest difference of angles, whole turns being none."""
    return np.abs((np.asarray(found, np.float64) - exact + np.pi) % (2 * np.pi) - np.pi).max()


@pytest.mark.parametrize("theta", [10000.0, 1e6, 1.0, 0.001])
def test_every_position_turns_exactly(theta):
    frequencies = plain_frequencies(theta, 32)
    exact = right(PLACES, frequencies)
    in_numpy = angles(PLACES[:, None], frequencies[None], frequencies[None], np.dtype(np.float64))
    assert in_numpy.dtype == np.float64 and apart(in_numpy, exact) < 2e-15
    narrow = angles(PLACES[:, None], frequencies[None], frequencies[None], np.dtype(np.float32))
    assert narrow.dtype == np.float32 and apart(narrow, exact) < LAST_BIT
    places = jnp.asarray(PLACES.astype(np.int32))
    ours = jax.jit(lambda p: angles(p[:, None], frequencies[None], frequencies[None], np.dtype(np.float32)))(places)
    assert ours.dtype == jnp.float32 and apart(ours, exact) < 2 * LAST_BIT
    with jax.enable_x64(True):
        wide = angles(jnp.asarray(PLACES)[:, None], frequencies[None], frequencies[None], np.dtype(np.float64))
        assert wide.dtype == jnp.float64 and apart(wide, exact) < 2e-15


def test_traced_frequencies_lose_no_more_than_they_are_worth():
    frequencies = plain_frequencies(10000.0, 32).astype(np.float32)
    traced = jax.jit(lambda p, f: angles(p[:, None], f[None], np.zeros((1, 1)), np.dtype(np.float32)))
    found = traced(jnp.asarray(PLACES.astype(np.int32)), jnp.asarray(frequencies))
    assert apart(found, right(PLACES, frequencies)) < 2e-6


def test_places_between_integers_keep_their_products():
    frequencies = plain_frequencies(10000.0, 8)
    found = angles(jnp.array([[0.5], [3.25]]), frequencies[None], frequencies[None], np.dtype(np.float32))
    np.testing.assert_array_equal(found, np.array([[0.5], [3.25]], np.float32) * frequencies.astype(np.float32)[None])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.uint32, np.int64])
def test_integers_of_every_size(dtype):
    x = np.ones((3, 1, 8), np.float32)
    got = aj.rope(jnp.asarray(x), np.arange(3, dtype=dtype))
    np.testing.assert_allclose(got, aj.rope(x, np.arange(3)), atol=1e-6)


def attention_far_out(first, rope):
    """(o, float64 truth) of the last token of a stream that begins at position `first`, under window(16) | sink(4)."""
    T, H = 40, 8
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 1, T, 1, H))
    pattern = aj.Window(16) | aj.Sink(4)
    cache = aj.Cache.create(pattern, batch=1, num_kv_heads=1, head_dim=H, max_length=10**6, rope=rope)
    sinks = slice(0, 4)
    low = [jnp.asarray(x, jnp.float32) for x in (q, k, v)]
    _, cache = cache.step(*(x[:, sinks] for x in low))
    cache = cache.holding(cache.store._replace(length=jnp.array([first], jnp.int32)), cache.refused)
    o, cache = cache.step(*(x[:, 4:] for x in low))
    at = np.r_[np.arange(4), first + np.arange(T - 4)]
    turned = [aj.rope(x, at, theta=rope.theta)[0, :, 0] for x in (q, k)]
    seen = [j for j in range(T) if at[j] < 4 or at[-1] - at[j] < 16]
    s = turned[1][seen] @ turned[0][-1] / np.sqrt(H)
    w = np.exp(s - s.max())
    return o[0, -1, 0], w / w.sum() @ v[0, seen, 0]


@pytest.mark.parametrize("first", [10**6, 17_000_000, 2**31 - 100])
def test_a_stream_keeps_its_positions(first):
    found, exact = attention_far_out(first, nn.Rope(theta=10000.0))
    np.testing.assert_allclose(found, exact, atol=2e-6)
