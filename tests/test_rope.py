"""rope against the rotation written out by hand in float64, and the faults of other libraries (R05 ...)."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.rope import Rope, rope
from tests.nn.by_hand import rotate
from tests.support.budget import assert_within, budget


def sample(*shape, dtype=np.float32):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


@pytest.mark.cross
@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("R", [None, 2, 6])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_rotates_pairs_as_written_rotate(layout, R, dtype):
    x = jnp.asarray(sample(2, 5, 3, 8), dtype)
    positions = np.array([[0, 1, 2, 3, 4], [7, 900, 20000, 131071, 3]])
    out = rope(x, jnp.asarray(positions), theta=500.0, layout=layout, rotary_dim=R)
    assert out.dtype == x.dtype and out.shape == x.shape
    exact, honest = (
        rotate(np.asarray(x, t), positions[:, :, None], 500.0, layout, R, t) for t in (np.float64, np.float32)
    )
    assert_within(out, exact, budget(jnp.asarray(honest, dtype), exact, dtype))


def test_numpy_in_numpy_out_and_float64_stays_exact():
    x, positions = sample(5, 2, 6, dtype=np.float64), np.arange(5) + 4000
    out = rope(x, positions)
    assert isinstance(out, np.ndarray) and out.dtype == np.float64
    np.testing.assert_allclose(out, rotate(x, positions[:, None]), rtol=0, atol=1e-11)
    with jax.enable_x64(True):
        wide = rope(jnp.asarray(x), jnp.asarray(positions))
        assert wide.dtype == jnp.float64
        np.testing.assert_allclose(wide, rotate(x, positions[:, None]), rtol=0, atol=1e-11)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_dot_products_depend_on_the_distance_only(layout):
    q, k = sample(1, 1, 8, dtype=np.float64), sample(2, 1, 8, dtype=np.float64)[1:]
    at = lambda x, p: rope(x, np.array([p]), layout=layout)[0, 0]
    near, far = at(q, 9) @ at(k, 4), at(q, 1009) @ at(k, 1004)
    assert abs(near - far) < 1e-10 and abs(near - q[0, 0] @ k[0, 0]) > 1e-3


@pytest.mark.slow
def test_positions_broadcast_over_leading_axes():
    x = jnp.asarray(sample(3, 2, 4, 1, 6))
    p_T = jnp.array([4, 0, 2, 9])
    chex.assert_trees_all_equal(rope(x, p_T), rope(x, jnp.broadcast_to(p_T, (3, 2, 4))))
    p_1T = jnp.array([[[4, 0, 2, 9]], [[1, 1, 1, 1]], [[0, 1, 2, 3]]])
    chex.assert_trees_all_equal(rope(x, p_1T), rope(x, jnp.broadcast_to(p_1T, (3, 2, 4))))
    assert not np.array_equal(rope(x, p_1T)[0], rope(x, p_T)[1])


def test_positions_between_integers_turn_in_between():
    x = sample(1, 1, 2)
    np.testing.assert_allclose(rope(x, np.array([0.5], np.float32)), rotate(x, [[0.5]]), atol=1e-6)


def test_gradient_is_the_rotation_back():
    x, g = jnp.asarray(sample(4, 2, 6)), jnp.asarray(sample(2, 4, 2, 6)[1])
    _, back = jax.vjp(lambda x: rope(x, jnp.arange(4) * 3), x)
    np.testing.assert_allclose(back(g)[0], rope(g, -jnp.arange(4) * 3), atol=1e-5)


@pytest.mark.slow
def test_r05_a_long_prompt_leaves_the_next_short_one_unchanged():
    x = jnp.asarray(sample(16, 1, 4))
    short = rope(x[:4], jnp.arange(4))
    rope(x, jnp.arange(16))
    chex.assert_trees_all_equal(rope(x[:4], jnp.arange(4)), short)


def test_r06_without_scaling_the_base_is_the_base_at_every_length():
    # Inverse frequencies 1 and 0.01 for D=4: at position 1 the pairs turn by 1 and by 0.01 radian.
    for T in (2, 8, 16):
        x = np.tile(np.array([1.0, 1.0, 0.0, 0.0]), (T, 1, 1))
        turned = rope(x, np.arange(T))[1, 0]
        np.testing.assert_allclose(np.arctan2(turned[2:], turned[:2]), [1.0, 0.01], atol=1e-15)


def test_r08_the_rotary_size_is_even_and_the_rest_passes_bit_for_bit():
    with pytest.raises(ValueError, match="rotary_dim=3 must be even"):
        rope(sample(2, 1, 4), np.arange(2), rotary_dim=3)
    with pytest.raises(ValueError, match="H=5 is odd.*rotary_dim=4"):
        rope(sample(2, 1, 5), np.arange(2))
    x = jnp.asarray(sample(3, 1, 8), jnp.bfloat16)
    out = rope(x, jnp.array([5, 6, 7]), rotary_dim=4)
    chex.assert_trees_all_equal(out[..., 4:], x[..., 4:])
    assert not np.array_equal(out[..., :4], x[..., :4])
    assert rope(sample(2, 1, 5), np.arange(2), rotary_dim=4).shape == (2, 1, 5)


@pytest.mark.slow
def test_r10_no_tracer_outlives_its_trace():
    with jax.checking_leaks():
        compiled = jax.jit(rope)
        for T in (8, 16):
            x = jnp.asarray(sample(T, 1, 4))
            np.testing.assert_allclose(compiled(x, jnp.arange(T)), rope(x, jnp.arange(T)), atol=1e-6)
        assert jax.eval_shape(rope, x, jnp.arange(16)).shape == (16, 1, 4)


@pytest.mark.slow
def test_r11_positions_far_beyond_any_table_are_computed():
    x = jnp.asarray(sample(2, 1, 4))
    last = rope(x[1:], jnp.array([16]))
    chex.assert_trees_all_equal(rope(x, 15 + jnp.arange(2))[1:], last)
    traced = jax.jit(lambda offset: rope(x, offset + jnp.arange(2)))(jnp.int32(15))
    np.testing.assert_allclose(traced[1:], last, atol=1e-6)


@pytest.mark.parametrize(
    "error, match, change",
    [
        (TypeError, "x has dtype int32", dict(x=np.ones((3, 1, 4), np.int32))),
        (ValueError, r"x\(3, 4\) needs at least the axes", dict(x=np.ones((3, 4), np.float32))),
        (TypeError, "positions have dtype float16", dict(positions=np.zeros(3, np.float16))),
        (TypeError, "positions have dtype bool", dict(positions=np.zeros(3, bool))),
        (ValueError, r"positions\(4,\) do not fit x.*: .*\[T\] = \(3,\)", dict(positions=np.arange(4))),
        (ValueError, r"positions\(\) do not fit", dict(positions=np.array(3))),
        (ValueError, r"positions\(2, 3\) do not fit x\(3, 1, 4\)", dict(positions=np.zeros((2, 3), int))),
        (ValueError, "'halve' is not one of half, interleaved; did you mean 'half'", dict(layout="halve")),
        (ValueError, "did you mean 'interleaved'", dict(layout="interleave")),
        (ValueError, "rotary_dim=6 is larger than the head size H=4", dict(rotary_dim=6)),
        (ValueError, "rotary_dim=0 must be even and at least 2", dict(rotary_dim=0)),
        (TypeError, "rotary_dim=2.0 is a float", dict(rotary_dim=2.0)),
        (ValueError, "theta=0 must be positive", dict(theta=0)),
        (ValueError, "theta=inf must be positive and finite", dict(theta=float("inf"))),
        (TypeError, "theta='1e4' is a str", dict(theta="1e4")),
    ],
)
def test_wrong_arguments_are_named(error, match, change):
    arguments = dict(x=np.ones((3, 1, 4), np.float32), positions=np.arange(3)) | change
    with pytest.raises(error, match=match):
        rope(arguments.pop("x"), arguments.pop("positions"), **arguments)


def test_batched_positions_that_do_not_fit_name_both_forms():
    with pytest.raises(ValueError, match=r"\[T\] = \(3,\) or one row per leading axis, \(2, 3\)"):
        rope(np.ones((2, 3, 1, 4), np.float32), np.zeros((4, 3), int))


def test_settings_record_rotates_as_the_function_and_checks_itself():
    x = jnp.asarray(sample(3, 1, 8))
    record = Rope(theta=100.0, layout="interleaved", rotary_dim=4)
    chex.assert_trees_all_equal(
        record(x, jnp.arange(3)), rope(x, jnp.arange(3), theta=100.0, layout="interleaved", rotary_dim=4)
    )
    assert record == Rope(100.0, "interleaved", 4) and hash(record) == hash(Rope(100.0, "interleaved", 4))
    with pytest.raises(ValueError, match="rotary_dim=3"):
        Rope(rotary_dim=3)
    with pytest.raises(ValueError, match="rotary_dim=4 is larger than the head size H=2"):
        record.check_head(2)
