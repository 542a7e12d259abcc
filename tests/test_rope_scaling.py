"""Scaled frequencies against the published formulas written out pair by pair, and the faults of other libraries."""

import dataclasses
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax import nn
from attnjax.rope import Rope, rope
from attnjax.rope_scaling import read_scaling
from tests.support.budget import assert_within, budget


def linear(theta, R, s, length):
    """Chen et al. 2023: the position divided by the factor."""
    return [theta ** (-2 * i / R) / s["factor"] for i in range(R // 2)], 1.0


def dynamic(theta, R, s, length):
    """The base grows once the text is longer than the original length."""
    original, factor = s["original_max_position_embeddings"], s["factor"]
    length = max(length, original)
    base = theta * (factor * length / original - (factor - 1)) ** (R / (R - 2))
    return [base ** (-2 * i / R) for i in range(R // 2)], 1.0


def yarn(theta, R, s, length):
    """Peng et al. 2023, as transformers' modeling_rope_utils computes it."""
    original, factor = s["original_max_position_embeddings"], s["factor"]

    def mscale(scale, m=1.0):
        return 1.0 if scale <= 1 else 0.1 * m * math.log(scale) + 1.0

    def correction_dim(rotations):
        return R * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = correction_dim(s.get("beta_fast", 32)), correction_dim(s.get("beta_slow", 1))
    if s.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, R - 1)
    high = high + 0.001 if low == high else high
    frequencies = []
    for i in range(R // 2):
        ramp = min(max((i - low) / (high - low), 0.0), 1.0)
        extrapolation = 1 / theta ** (2 * i / R)
        interpolation = 1 / (factor * theta ** (2 * i / R))
        frequencies.append(interpolation * ramp + extrapolation * (1 - ramp))
    if "attention_factor" in s:
        return frequencies, s["attention_factor"]
    if s.get("mscale") and s.get("mscale_all_dim"):
        return frequencies, mscale(factor, s["mscale"]) / mscale(factor, s["mscale_all_dim"])
    return frequencies, mscale(factor)


def llama3(theta, R, s, length):
    """Grattafiori et al. 2024: three bands of wavelengths."""
    original, factor = s["original_max_position_embeddings"], s["factor"]
    low, high = s["low_freq_factor"], s["high_freq_factor"]
    frequencies = []
    for i in range(R // 2):
        f = theta ** (-2 * i / R)
        wavelength = 2 * math.pi / f
        if wavelength < original / high:
            frequencies.append(f)
        elif wavelength > original / low:
            frequencies.append(f / factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            frequencies.append((1 - smooth) * f / factor + smooth * f)
    return frequencies, 1.0


YARN = dict(rope_type="yarn", factor=32.0, original_max_position_embeddings=4096)
LLAMA = dict(
    rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192
)
RULES = {
    "linear": (linear, 1e4, 8, dict(rope_type="linear", factor=2.5)),
    "dynamic below": (dynamic, 1e4, 8, dict(rope_type="dynamic", factor=2.0, original_max_position_embeddings=9000)),
    "dynamic above": (dynamic, 1e4, 8, dict(rope_type="dynamic", factor=3.0, original_max_position_embeddings=512)),
    "yarn gpt-oss": (yarn, 150000.0, 64, dict(YARN, beta_fast=32.0, beta_slow=1.0, truncate=False)),
    "yarn": (yarn, 1e4, 128, dict(YARN, factor=4.0)),
    "yarn deepseek": (yarn, 1e4, 64, dict(YARN, factor=40.0, mscale=0.707, mscale_all_dim=1.0)),
    "yarn given": (yarn, 1e4, 16, dict(YARN, attention_factor=0.8, original_max_position_embeddings=7)),
    "llama 3.1": (llama3, 5e5, 128, LLAMA),
    "llama small": (llama3, 100.0, 8, dict(LLAMA, original_max_position_embeddings=64)),
}
POSITIONS = np.array([0, 1, 2, 77, 8000])


def rotated(x, positions, frequencies, magnitude, dtype):
    """x [T, N, H] in the half layout, one pair at a time; cos and sin grow by the magnitude."""
    out, R = np.array(x, dtype), x.shape[-1]
    for i in range(R // 2):
        angle = positions.astype(dtype)[:, None] * dtype(frequencies[i])
        cos, sin = np.cos(angle) * dtype(magnitude), np.sin(angle) * dtype(magnitude)
        a, b = x[..., i].astype(dtype), x[..., i + R // 2].astype(dtype)
        out[..., i], out[..., i + R // 2] = a * cos - b * sin, a * sin + b * cos
    return out


@pytest.mark.parametrize("name", RULES)
def test_frequencies_and_magnitude_are_the_published_ones(name):
    by_hand, theta, R, mapping = RULES[name]
    frequencies, magnitude = by_hand(theta, R, mapping, 8001)
    record = read_scaling(mapping)
    np.testing.assert_allclose(record.frequencies(theta, R, 8001), frequencies, rtol=1e-13)
    assert record.magnitude == pytest.approx(magnitude, rel=1e-15)


@pytest.mark.cross
@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("jit", [False, True])
def test_rope_turns_by_the_scaled_frequencies(name, jit):
    by_hand, theta, R, mapping = RULES[name]
    x = np.random.default_rng(0).standard_normal((len(POSITIONS), 2, R)).astype(np.float32)
    found = by_hand(theta, R, mapping, 8001)
    exact, honest = (rotated(x, POSITIONS, *found, t) for t in (np.float64, np.float32))
    run = lambda x, p: rope(x, p, theta=theta, scaling=mapping)
    run = jax.jit(run) if jit else run
    limit = budget(honest, exact, "float32")
    if mapping["rope_type"] == "dynamic":
        # Here float32 also rounds the frequency: up to 4 units in the last place of an angle of 8000 radians.
        limit += 8000 * 4 * np.finfo(np.float32).eps
    assert_within(run(jnp.asarray(x), jnp.asarray(POSITIONS)), exact, limit)
    # NumPy in float64 has no excuse: angles up to 8000 round at 1e-12.
    wide = rope(x.astype(np.float64), POSITIONS, theta=theta, scaling=read_scaling(mapping))
    np.testing.assert_allclose(wide, rotated(x.astype(np.float64), POSITIONS, *found, np.float64), atol=1e-10)


def test_magnitudes_that_papers_print():
    assert read_scaling(YARN).magnitude == pytest.approx(1.3465735902799727)  # gpt-oss, 0.1 ln 32 + 1
    assert read_scaling(dict(YARN, mscale=1.0, mscale_all_dim=1.0)).magnitude == 1.0  # DeepSeek-V3


DYNAMIC = nn.DynamicScaling(2.0, original_max_position_embeddings=8)


def test_r05_a_long_prompt_leaves_the_next_short_one_unchanged():
    x = np.random.default_rng(0).standard_normal((16, 1, 4)).astype(np.float32)
    for run in (rope, jax.jit(rope, static_argnames="scaling")):
        for as_array in (jnp.asarray, np.asarray):
            short = run(as_array(x[:4]), as_array(np.arange(4)), scaling=DYNAMIC)
            run(as_array(x), as_array(np.arange(16)), scaling=DYNAMIC)
            again = run(as_array(x[:4]), as_array(np.arange(4)), scaling=DYNAMIC)
            np.testing.assert_array_equal(again, short)


def test_r05_keys_and_query_of_one_call_use_one_base():
    record = Rope(scaling=DYNAMIC)
    x = jnp.asarray(np.random.default_rng(0).standard_normal((1, 1, 4)), jnp.float32)
    length = record.length(jnp.array([15]), jnp.arange(3))
    assert length == 16
    np.testing.assert_array_equal(
        record(x, jnp.array([2]), length), rope(x, jnp.array([2]), scaling=DYNAMIC, length=16)
    )
    assert Rope().length(jnp.arange(3)) is None


@pytest.mark.slow
def test_each_row_has_a_length_of_its_own_and_each_token_may_have_one():
    x = np.random.default_rng(0).standard_normal((2, 12, 3, 6)).astype(np.float32)
    where = np.stack([np.arange(12), np.arange(12) * 3])
    each = np.array([[9] * 12, [20] * 4 + [40] * 8])
    for as_array in (jnp.asarray, np.asarray):
        turn = lambda x, p, length=None, as_array=as_array: np.asarray(
            rope(as_array(x), as_array(p), scaling=DYNAMIC, length=None if length is None else as_array(length)))  # fmt: skip
        alone = lambda b, length, turn=turn: turn(x[b], where[b], length)
        np.testing.assert_allclose(turn(x, where), [alone(0, 12), alone(1, 34)], atol=1e-6)
        np.testing.assert_allclose(turn(x, where, np.array([[9], [20]])), [alone(0, 9), alone(1, 20)], atol=1e-6)
        np.testing.assert_allclose(turn(x, where[0], np.array([[9], [20]]))[1], turn(x[1], where[0], 20), atol=1e-6)
        one, rest = alone(1, 20), alone(1, 40)
        np.testing.assert_allclose(turn(x, where, each), [alone(0, 9), np.concatenate([one[:4], rest[4:]])], atol=1e-6)
        np.testing.assert_allclose(turn(x, where[0], each[1])[0], np.concatenate([turn(x[0], where[0], 20)[:4], turn(x[0], where[0], 40)[4:]]), atol=1e-6)
        assert abs(turn(x, where) - turn(x, where, 34))[0].max() > 1e-3
    assert isinstance(rope(x, where, scaling=DYNAMIC, length=each), np.ndarray)
    assert rope(x[:, :0], where[:, :0], scaling=DYNAMIC, length=each[:, :1]).shape == (2, 0, 3, 6)
    traced = jax.jit(lambda length: rope(jnp.asarray(x), jnp.asarray(where), scaling=DYNAMIC, length=length))
    np.testing.assert_allclose(traced(jnp.asarray(each)), rope(x, where, scaling=DYNAMIC, length=each), atol=1e-6)


def test_a_length_is_counted_in_wide_numbers():
    assert Rope(scaling=DYNAMIC).length(np.full(3, 255, np.uint8)) == 256
    assert Rope(scaling=DYNAMIC).length(np.full(3, 2**31 - 1, np.int32)) == 2.0**31


def test_r06_up_to_the_original_length_the_base_is_unscaled():
    for length in (1, 2, 8):
        np.testing.assert_array_equal(DYNAMIC.frequencies(1e4, 4, length), [1.0, 0.01])
    np.testing.assert_allclose(DYNAMIC.frequencies(1e4, 4, 16), [1.0, 90000**-0.5], rtol=1e-15)
    np.testing.assert_allclose(DYNAMIC.frequencies(1e4, 4, 16), [1.0, 0.0033333], atol=1e-7)
    # The same by way of rope, at position 1: once from positions, once from a length that is traced.
    x = np.tile(np.array([1.0, 1.0, 0.0, 0.0], np.float32), (16, 1, 1))
    angles = lambda turned: np.arctan2(np.asarray(turned)[1, 0, 2:], np.asarray(turned)[1, 0, :2])
    traced = jax.jit(lambda length: rope(jnp.asarray(x[:2]), jnp.arange(2), scaling=DYNAMIC, length=length))
    for length, expected in ((2, [1.0, 0.01]), (8, [1.0, 0.01]), (16, [1.0, 1 / 300])):
        np.testing.assert_allclose(angles(rope(x[:length], np.arange(length), scaling=DYNAMIC)), expected, rtol=1e-6)
        np.testing.assert_allclose(angles(traced(jnp.int32(length))), expected, rtol=1e-6)
        np.testing.assert_allclose(
            angles(rope(x[:2], np.arange(2), scaling=DYNAMIC, length=length)), expected, rtol=1e-6
        )
    assert traced._cache_size() == 1


def test_without_room_to_grow_the_frequencies_are_those_without_scaling_bit_for_bit():
    x = jnp.asarray(np.random.default_rng(0).standard_normal((8, 2, 6)), jnp.float32)
    for run in (rope, jax.jit(rope, static_argnames=("scaling", "theta"))):
        chex.assert_trees_all_equal(
            run(x, jnp.arange(8), theta=500.0, scaling=DYNAMIC), run(x, jnp.arange(8), theta=500.0)
        )


@pytest.mark.cross
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_every_dtype_keeps_its_own_and_a_single_pair_needs_no_base(dtype):
    with jax.enable_x64(dtype == "float64"):
        for mapping in ({"rope_type": "linear", "factor": 2}, DYNAMIC, YARN, LLAMA):
            for H in (2, 6):
                x = jnp.ones((12, 1, H), dtype)
                assert rope(x, jnp.arange(12), scaling=mapping).dtype == x.dtype
    np.testing.assert_array_equal(DYNAMIC.frequencies(1e4, 2, 100), [1.0])


def test_mappings_and_records_are_one_value():
    for _, _, _, mapping in RULES.values():
        record = read_scaling(mapping)
        assert read_scaling(dataclasses.asdict(record)) == record == read_scaling(record)
        assert Rope(scaling=mapping) == Rope(scaling=record) and hash(Rope(scaling=mapping)) == hash(Rope(scaling=record))
    older = {"type": "linear", "factor": 2.0}
    assert read_scaling(older) == read_scaling(older | {"rope_type": "linear"}) == nn.LinearScaling(2)
    assert read_scaling({"rope_type": "default"}) is None and read_scaling(None) is None
    x = jnp.ones((3, 1, 8))
    chex.assert_trees_all_equal(Rope(scaling=YARN)(x, jnp.arange(3)), rope(x, jnp.arange(3), scaling=YARN))


@pytest.mark.parametrize(
    "error, match, scaling",
    [
        (TypeError, "scaling='yarn' is a str; give None, a record", "yarn"),
        (ValueError, "rope_type=None; it is one of linear, dynamic, yarn, llama3", {"factor": 2.0}),
        (ValueError, "rope_type='yarm'.*did you mean 'yarn'", {"rope_type": "yarm", "factor": 2.0}),
        (ValueError, "the key 'facter', which linear .* mean 'factor'", {"rope_type": "linear", "facter": 2.0}),
        (ValueError, "the key 'beta_fast', which linear", {"rope_type": "linear", "factor": 2.0, "beta_fast": 1}),
        (ValueError, "rope_theta=10.0; the base .* theta=", dict(YARN, rope_theta=10.0)),
        (ValueError, "'llama3' needs low_freq_factor, high_freq_factor, orig", {"rope_type": "llama3", "factor": 2.0}),
        (ValueError, "factor=0.5 must be at least 1", {"rope_type": "linear", "factor": 0.5}),
        (ValueError, "factor=nan must be finite", {"rope_type": "linear", "factor": float("nan")}),
        (TypeError, "factor='2' is a str", {"rope_type": "linear", "factor": "2"}),
        (TypeError, "original_max_position_embeddings=8.5", dict(YARN, original_max_position_embeddings=8.5)),
        (ValueError, "original_max_position_embeddings=0", dict(YARN, original_max_position_embeddings=0)),
        (ValueError, "beta_fast=1.0 must not be below beta_slow=2.0", dict(YARN, beta_fast=1, beta_slow=2)),
        (ValueError, "beta_slow=0.0 must be above 0", dict(YARN, beta_slow=0)),
        (ValueError, "attention_factor=-1.0 must be above 0", dict(YARN, attention_factor=-1)),
        (ValueError, "mscale=1.0 and mscale_all_dim=None.*both or neither", dict(YARN, mscale=1.0)),
        (TypeError, "truncate=0 is a int", dict(YARN, truncate=0)),
        (ValueError, "low_freq_factor=0.0 must be above 0", dict(LLAMA, low_freq_factor=0)),
        (ValueError, "high_freq_factor=1.0 must be above 1", dict(LLAMA, high_freq_factor=1)),
    ],
)
def test_wrong_rules_are_named(error, match, scaling):
    with pytest.raises(error, match=match):
        rope(np.ones((3, 1, 4), np.float32), np.arange(3), scaling=scaling)
    with pytest.raises(error, match=match):
        Rope(scaling=scaling)


@pytest.mark.parametrize(
    "error, match, options",
    [
        (ValueError, "length=16: without scaling nothing depends on it", dict(length=16)),
        (ValueError, "length=16: under rope_type='yarn' nothing depends on it", dict(length=16, scaling=YARN)),
        (ValueError, "length=0", dict(length=0, scaling=DYNAMIC)),
        (TypeError, "length=2.5", dict(length=2.5, scaling=DYNAMIC)),
        (ValueError, r"length is int32\(2,\); it must be one number", dict(length=jnp.arange(2), scaling=DYNAMIC)),
        (ValueError, r"length is int32\(2, 1\); .* broadcast to the tokens \(3,\): one for each row of a batch is \[B, 1\]", dict(
            length=jnp.ones((2, 1), int), scaling=DYNAMIC)),
        (ValueError, r"length is int64\(1, 1, 3\)", dict(length=np.ones((1, 1, 3), int), scaling=DYNAMIC)),
        (ValueError, "length holds 0; a text has at least 1 token", dict(length=np.array([5, 0, 5]), scaling=DYNAMIC)),
        (ValueError, "length holds nan", dict(length=jnp.full((3,), jnp.nan), scaling=DYNAMIC)),
        (TypeError, "length has dtype bool; it is a number of tokens", dict(length=jnp.ones(3, bool), scaling=DYNAMIC)),
        (TypeError, r"length=\[16\] is a list", dict(length=[16], scaling=DYNAMIC)),
        (ValueError, "under rope_type='yarn' nothing depends on it", dict(length=jnp.ones(3), scaling=YARN)),
        (ValueError, "theta=1.0 must be above 1 for yarn", dict(theta=1.0, scaling=YARN)),
    ],
)
def test_wrong_lengths_and_bases_are_named(error, match, options):
    with pytest.raises(error, match=match):
        rope(jnp.ones((3, 1, 4)), jnp.arange(3), **options)
