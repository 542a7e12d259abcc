"""Faults that people reported of other attention libraries, as tests named after their ids: masks and numbers.

Each holds the case's own numbers on every path. PROBE: q = 0 and k = 0, so each visible key gets 1/n.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attnjax as aj
from attnjax.attend import run
from attnjax.door import bind


def on_path(path, *arguments, **options):
    """attend on one path; "tiles of 2" splits even these small calls."""
    if path != "tiles of 2":
        return aj.attend(*arguments, backend=path, **options)
    import dataclasses

    call, dims = bind(*arguments, **options)
    o, _ = run(dataclasses.replace(call, options=dataclasses.replace(call.options, tile=(2, 2))), "tiled", True)
    return o if dims.batched else o[0]


@pytest.fixture(params=["dense", "tiled", "tiles of 2"])
def attend(request):
    return functools.partial(on_path, request.param)


def probe(attend, T, S, pattern, dtype=jnp.float32, **options):
    """The attention rows [T, S] of PROBE(T, S)."""
    q, k, v = jnp.zeros((T, 1, S), dtype), jnp.zeros((S, 1, S), dtype), jnp.eye(S, dtype=dtype)[:, None]
    return np.asarray(attend(q, k, v, pattern, **options)[:, 0], np.float64)


def uniform(S, *rows):
    """Rows that are uniform over the listed keys."""
    out = np.zeros((len(rows), S))
    for i, keys in enumerate(rows):
        out[i, list(keys)] = 1 / max(1, len(keys))
    return out


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def close(a, b, tolerance=1e-5):
    return np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max() <= tolerance


def test_M02_a_window_of_none_is_causal_and_zero_is_refused(attend):
    assert close(probe(attend, 4, 4, aj.Causal()), uniform(4, *(range(i + 1) for i in range(4))))
    assert close(probe(attend, 4, 4, aj.Window(1)), np.eye(4))
    for width in (0, -1):
        with pytest.raises(ValueError, match=f"window={width}"):
            aj.Window(width)


@pytest.mark.cross
def test_M05_causal_holds_for_every_mix_of_options(attend):
    want = uniform(5, *(range(i + 1) for i in range(5)))
    assert close(probe(attend, 5, 5, aj.Causal()), want)
    assert close(probe(attend, 5, 5, aj.Causal(), mask=jnp.ones((5, 5), bool)), want)
    assert close(probe(attend, 5, 5, aj.Causal(), dropout_rate=0.0, dropout_key=jax.random.key(0)), want)
    dropped = probe(attend, 5, 5, aj.Causal(), dropout_rate=0.1, dropout_key=jax.random.key(0))
    assert not np.triu(dropped, 1).any()
    batched = attend(*(x[None] for x in (jnp.zeros((5, 1, 5)), jnp.zeros((5, 1, 5)), jnp.eye(5)[:, None])), aj.Causal())
    assert close(batched[0, :, 0], want)


@pytest.mark.cross
def test_M06_fewer_queries_than_keys(attend):
    ends = uniform(5, range(4), range(5))
    assert close(probe(attend, 2, 5, aj.Causal(), q_offset=3), ends)
    assert close(probe(attend, 2, 5, aj.Causal(), q_offset=jnp.int32(3)), ends)
    assert close(probe(attend, 2, 5, aj.Causal(), q_offset=0), uniform(5, [0], [0, 1]))
    assert close(probe(attend, 1, 5, aj.Causal(), q_offset=4), uniform(5, range(5)))


@pytest.mark.cross
def test_M08_a_hidden_row_is_zero(attend):
    mask = jnp.array([[1, 1, 0], [1, 1, 0], [0, 0, 0]], bool)
    want = [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 0]]
    assert close(probe(attend, 3, 3, aj.Full(), mask=mask), want)
    assert close(probe(attend, 3, 3, aj.Full(), bias=aj.additive_mask(mask)), want)


def test_M10_true_may_look(attend):
    mask = jnp.array([True, False, False])
    assert close(probe(attend, 1, 3, aj.Full(), mask=mask, q_offset=0), [[1, 0, 0]])


def test_M11_packed_documents_do_not_read_each_other(attend):
    segments = aj.Segments(jnp.array([0, 0, 0, 1, 1, 1]))
    rows = probe(attend, 6, 6, aj.Causal(), segments=segments)
    assert close(rows[3], np.eye(6)[3]) and close(rows[5], [0, 0, 0, 1 / 3, 1 / 3, 1 / 3])
    zeros, v = jnp.zeros((6, 1, 6)), jnp.eye(6)[:, None]
    changed = attend(zeros, zeros, v.at[3:].set(1e4), aj.Causal(), segments=segments)
    assert np.array_equal(changed[2], attend(zeros, zeros, v, aj.Causal(), segments=segments)[2])


def test_M13_a_window_on_top_of_earlier_keys(attend):
    assert close(probe(attend, 2, 6, aj.Window(3), q_offset=4), uniform(6, [2, 3, 4], [3, 4, 5]))
    assert close(probe(attend, 4, 8, aj.Window(3), q_offset=4)[0], uniform(8, [2, 3, 4])[0])


@pytest.mark.cross
def test_M14_a_window_on_both_sides(attend):
    rows = probe(attend, 7, 7, aj.Band(2, 2))
    assert close(rows[[0, 3, 6]], uniform(7, [0, 1, 2], range(1, 6), [4, 5, 6]))
    assert close(probe(attend, 7, 7, aj.Band(6, 6)), probe(attend, 7, 7, aj.Full()))


@pytest.mark.cross
def test_M17_masks_broadcast_over_axes_of_one(attend):
    q, k, v = (jnp.asarray(random(2, 4, 2, 4, seed=i)) for i in range(3))
    lengths = np.array([2, 3])
    whole = np.broadcast_to((np.arange(4) < lengths[:, None])[:, None, None, :], (2, 2, 4, 4))
    want = attend(q, k, v, aj.Full(), mask=jnp.asarray(whole))
    assert close(attend(q, k, v, aj.Full(), mask=jnp.asarray(whole[:, :1, :1])), want)
    assert close(attend(q, k, v, aj.Full(), segments=aj.Segments.from_lengths(k=jnp.asarray(lengths))), want)
    for shape in ((1, 1, 4, 4), (2, 1, 4, 4), (4, 4)):
        mask = np.random.default_rng(0).random(shape) < 0.6
        want = attend(q, k, v, aj.Full(), mask=jnp.asarray(np.broadcast_to(mask, (2, 2, 4, 4))))
        assert close(attend(q, k, v, aj.Full(), mask=jnp.asarray(mask)), want)
    with pytest.raises(ValueError, match=r"mask\(2, 3, 4, 4\) does not broadcast"):
        attend(q, k, v, aj.Full(), mask=jnp.ones((2, 3, 4, 4), bool))


@pytest.mark.cross
def test_M20_sinks_and_window_for_single_queries(attend):
    p = aj.Sink(2) | aj.Window(3)
    assert close(probe(attend, 1, 10, p, q_offset=9), uniform(10, [0, 1, 7, 8, 9]))
    assert close(probe(attend, 1, 4, p, q_offset=3), uniform(4, range(4)))
    assert close(probe(attend, 1, 2, p, q_offset=1), uniform(2, range(2)))
    whole = probe(attend, 10, 10, p)
    for t in (1, 3, 9):
        assert close(probe(attend, 1, 10, p, q_offset=jnp.int32(t))[0], whole[t])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_N01_two_masks_do_not_overflow(attend, dtype):
    valid = jnp.array([False, False, True, True])
    want = [[0] * 4, [0] * 4, [0, 0, 1, 0], [0, 0, 0.5, 0.5]]
    assert close(probe(attend, 4, 4, aj.Causal(), dtype=dtype, mask=valid), want, 1e-3)


def test_N05_the_cap_comes_before_the_mask(attend):
    assert close(probe(attend, 1, 2, aj.Full(), soft_cap=1.0, mask=jnp.array([True, False])), [[1, 0]], 0)


def test_N07_the_cap_is_used(attend):
    q, k, v = jnp.ones((1, 1, 1)), jnp.array([10.0, 0.0])[:, None, None], jnp.eye(2)[:, None]
    for cap, want in ((None, (0.99995, 4.5e-5)), (5.0, (0.99200, 0.00800)), (50.0, (0.99995, 5.2e-5))):
        assert close(attend(q, k, v, aj.Full(), scale=1.0, soft_cap=cap)[0, 0], want, 1e-5)


@pytest.mark.cross
@pytest.mark.parametrize("filler", [np.nan, np.inf])
def test_N11_hidden_keys_may_hold_anything(attend, filler):
    q, k, v = random(1, 1, 4), random(2, 1, 4, seed=1), random(2, 1, 4, seed=2)
    clean = v[0, 0].copy()
    k[1] = v[1] = filler
    assert np.array_equal(attend(q, k, v, aj.Full(), mask=np.array([True, False]))[0, 0], clean)
    slots = np.full((2, 8, 1, 4), filler, np.float32)
    slots[:, :3] = random(2, 3, 1, 4, seed=3)
    got = attend(q, *slots, aj.Causal(), q_offset=jnp.int32(2))
    assert close(got, attend(q, *slots[:, :3], aj.Causal(), q_offset=2))


def test_S01_heads_must_divide():
    q = jnp.zeros((1, 4, 6, 8))
    for heads in (4,):
        with pytest.raises(ValueError, match="6 query heads cannot share 4"):
            aj.attend(q, *(jnp.zeros((1, 4, heads, 8)),) * 2, aj.Causal())
    with pytest.raises(ValueError, match="1 query heads cannot share 2"):
        aj.attend(q[:, :, :1], *(jnp.zeros((1, 4, 2, 8)),) * 2, aj.Causal())
    for heads in (1, 2, 3, 6):
        assert aj.attend(q, *(jnp.zeros((1, 4, heads, 8)),) * 2, aj.Causal()).shape == q.shape


def test_S02_neighbouring_query_heads_share_a_key_head(attend):
    q, k = jnp.zeros((1, 4, 1)), jnp.zeros((1, 2, 1))
    assert attend(q, k, jnp.array([10.0, 20.0])[None, :, None], aj.Causal())[0, :, 0].tolist() == [10, 10, 20, 20]
    assert attend(q, k[:, :1], jnp.full((1, 1, 1), 10.0), aj.Causal())[0, :, 0].tolist() == [10] * 4


def test_U01_the_docstring_counts_the_query_itself(attend):
    assert "including itself" in aj.Window.__doc__ and "aj.Window(2).mask(4)" in aj.Window.__doc__
    assert close(probe(attend, 4, 4, aj.Window(2)), uniform(4, [0], [0, 1], [1, 2], [2, 3]))


def test_U03_a_mask_without_a_head_axis_says_what_fits():
    x = jnp.zeros((2, 10, 1, 16))
    with pytest.raises(ValueError, match=r"mask\(2, 10, 10\) does not broadcast to the scores \[B, N, T, S\]"):
        aj.attend(x, x, x, aj.Full(), mask=jnp.ones((2, 10, 10), bool))


def test_U04_an_unknown_backend_lists_the_usable_ones():
    x = jnp.zeros((4, 1, 8))
    with pytest.raises(ValueError, match="backend='gpu' is unknown; usable here: 'auto', 'tiled', 'dense'"):
        aj.attend(x, x, x, aj.Causal(), backend="gpu")
    with pytest.raises(ValueError, match="Did you mean 'dense'"):
        aj.attend(x, x, x, aj.Causal(), backend="dence")
    assert aj.attend(x, x, x, aj.Causal(), backend="auto").shape == x.shape
