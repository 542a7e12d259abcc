"""What is wrong with a cache or a step is said with its numbers, the rule and the way out, and nothing is lost."""

import jax.numpy as jnp
import numpy as np
import pytest

import attnjax as aj
from attnjax.rope import Rope

GOOD = dict(batch=2, num_kv_heads=2, head_dim=8, max_length=16)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"pattern": aj.Full()}, ValueError, r"full\(\) looks at tokens after the query.*& causal\(\), or use prefix"),
        ({"pattern": aj.Band(2, 1)}, ValueError, "looks at tokens after the query"),
        ({"pattern": aj.PerHead((aj.Causal(), aj.Full()))}, ValueError, "looks at tokens after the query"),
        ({"pattern": "window(4)"}, TypeError, r"write aj.parse\('window\(4\)'\)"),
        ({"batch": 0}, ValueError, "batch=0 is too small"),
        ({"num_kv_heads": -1}, ValueError, "num_kv_heads=-1"),
        ({"head_dim": 2.0}, TypeError, "head_dim=2.0 is a float"),
        ({"value_dim": 0}, ValueError, "value_dim=0"),
        ({"max_length": -5}, ValueError, "max_length=-5 is too small: it is that of the longest row, at least 1"),
        ({"max_length": 10**400}, ValueError, "max_length=.*1328 or more is too large: positions are int32"),
        ({"batch": 10**5000}, ValueError, "batch=.*16609 or more is too large: it is at most"),
        ({"max_length": 2**31}, ValueError, "max_length=2147483648 is too large: positions are int32, at most 2147483647"),
        ({"max_length": 2**31 - 1, "pattern": aj.Causal()}, ValueError,
         r"keys \(2, 2147483647, 2, 8\) and values .*take 512 GiB in float32, more than there is; take a smaller max_length or batch"),
        ({"batch": 2**62}, ValueError, r"keys \(4611686018427387904, 4, 2, 8\) .*more than there is"),
        ({"value_dim": 2**60}, ValueError, "more than there is"),
        ({"dtype": jnp.int8}, TypeError, "dtype=int8 cannot hold keys and values; give float32"),
        ({"dtype": "fast"}, TypeError, "dtype='fast' is not a dtype"),
        ({"dtype": np.float64}, ValueError, "dtype=float64 needs 64-bit types"),
        ({"positions": "slots"}, ValueError, "positions='slots' must be 'text'.*or 'cache'"),
        ({"rope": 10000.0}, TypeError, "rope is a float; give None or nn.Rope"),
        ({"rope": Rope(rotary_dim=12)}, ValueError, "rotary_dim=12 is larger than the head size H=8"),
    ],
)
def test_wrong_caches_are_refused(change, error, message):
    with pytest.raises(error, match=message):
        aj.Cache.create(**{"pattern": aj.Window(4)} | GOOD | change)


def chunk(B=2, T=3, N=4, K=2, H=8, h=8, dtype=np.float32):
    return np.ones((B, T, N, H), dtype), np.ones((B, T, K, H), dtype), np.ones((B, T, K, h), dtype)


@pytest.mark.parametrize(
    ("arrays", "options", "error", "message"),
    [
        (chunk(B=3), {}, ValueError, r"q must be \[2, T, N, 8\] for this cache of batch 2; got q\(3, 3, 4, 8\)"),
        (chunk(K=4), {}, ValueError, r"k must be \[2, T, 2, 8\]"),
        (chunk(H=4), {}, ValueError, r"q must be \[2, T, N, 8\]"),
        (chunk(h=4), {}, ValueError, r"v must be \[2, T, 2, 8\]"),
        (chunk(N=3), {}, ValueError, "3 query heads cannot share 2 key/value heads"),
        (tuple(x[0] for x in chunk()), {}, ValueError, r"got q\(3, 4, 8\)"),
        ((chunk(T=2)[0], *chunk()[1:]), {}, ValueError, r"q must be .*got q\(2, 2, 4, 8\) k\(2, 3, 2, 8\)"),
        (chunk(dtype=np.int32), {}, TypeError, "q has dtype int32"),
        (chunk(), {"lengths": [1]}, ValueError, r"lengths\(1,\) must hold one length per row: \[2\]"),
        (chunk(), {"lengths": [1, 4]}, ValueError, r"lengths\[1\]=4 of a chunk of 3 tokens: it must be 0 to 3"),
        (chunk(), {"lengths": [-1, 3]}, ValueError, r"lengths\[0\]=-1"),
        (chunk(), {"lengths": [1.0, 2.0]}, TypeError, "lengths have dtype float64"),
        (chunk(), {"lengths": [True, False]}, TypeError, "lengths have dtype bool"),
        (chunk(), {"lengths": []}, ValueError, r"lengths\(0,\) must hold one length per row: \[2\]"),
        (chunk(), {"lengths": [1, [2]]}, ValueError, r"lengths=\[1, \[2\]\] is nested"),
        (chunk(), {"scale": float("nan")}, ValueError, "scale=nan must be finite"),
        (chunk(), {"soft_cap": 0}, ValueError, "soft_cap=0"),
        (chunk(), {"backend": "fast"}, ValueError, "backend='fast' is unknown"),
        (chunk(), {"precision": "good"}, ValueError, "precision='good' is unknown"),
        (chunk(), {"sink_logits": np.zeros(3, np.float32)}, ValueError, r"\[4\]"),
    ],
)
def test_wrong_steps_are_refused(arrays, options, error, message):
    cache = aj.Cache.create(aj.Window(4), **GOOD)
    with pytest.raises(error, match=message):
        cache.step(*arrays, **options)


def test_wrong_rows_and_tokens_are_refused():
    cache = aj.Cache.create(aj.Window(4), **GOOD)
    for act in (cache.reset, cache.fork):
        with pytest.raises(ValueError, match="there is no row 2 in a cache of batch 2"):
            act([0, 2])
        with pytest.raises(TypeError, match=r"rows is float64\(1,\)"):
            act([0.0])
    with pytest.raises(ValueError, match=r"rows\(3,\) must hold one bool per row"):
        cache.reset(np.ones(3, bool))


@pytest.mark.parametrize(
    ("tokens", "error", "message"),
    [
        (-1, ValueError, "tokens=-1 is too small: a row gives back from 0 to all of its tokens"),
        ([-1, 0], ValueError, "tokens hold -1; a row gives back from 0 to all"),
        (jnp.array([0, -1]), ValueError, "tokens hold -1"),
        (np.int64(-2), ValueError, "tokens hold -2"),
        (5, ValueError, "row 0 of the cache cannot give back 5 of its 3 tokens: there are only 3"),
        ([0, 4], ValueError, "row 1 of the cache cannot give back 4 of its 3 tokens: there are only 3"),
        (2**31, ValueError, "tokens=2147483648 is too large"),
        (np.array([2**31, 0]), ValueError, "does not fit into int32"),
        ([0, 0, 0], ValueError, r"tokens\(3,\) must be one number or one per row"),
        ([], ValueError, r"tokens\(0,\) must be one number or one per row"),
        ([0.5, 0], TypeError, "tokens have dtype float64"),
        (True, TypeError, "tokens=True is a bool"),
        (np.array([True, False]), TypeError, "tokens have dtype bool"),
        (None, TypeError, "tokens=None is a NoneType"),
    ],
    ids=str,
)
def test_wrong_numbers_of_tokens_are_refused(tokens, error, message):
    k, v = chunk()[1:]
    with pytest.raises(error, match=message):
        aj.Cache.create(aj.Window(4), **GOOD).append(k, v).trim(tokens)


def test_no_rows_are_rows():
    k, v = chunk()[1:]
    cache = aj.Cache.create(aj.Window(4), **GOOD).append(k, v)
    for none in ([], (), np.zeros(0, int)):
        assert cache.reset(none).length.tolist() == [3, 3]
        assert cache.fork(none).batch == 0
    assert cache.reset([True, False]).length.tolist() == [0, 3]
    with pytest.raises(TypeError, match=r"rows is bool\(2,\)"):
        cache.fork([True, False])
    with pytest.raises(TypeError, match=r"rows is float64\(0,\)"):
        cache.reset(np.zeros(0))


def test_a_prefix_arrives_in_one_chunk():
    q, k, v = chunk()
    cache = aj.Cache.create(aj.Prefix(4), **GOOD)
    with pytest.raises(ValueError, match=r"row 0 gets 3 tokens in its first chunk, but prefix\(4\) shows its first 4"):
        cache.step(q, k, v)
    heads = aj.Cache.create(aj.PerHead((aj.Prefix(4), aj.Causal(), aj.Causal(), aj.Causal())), **GOOD)
    with pytest.raises(ValueError, match="shows its first 4 tokens"):
        heads.step(q, k, v)


def test_heads_of_a_pattern_must_match():
    with pytest.raises(ValueError, match="PerHead has 2 patterns but q has 4 heads"):
        aj.Cache.create(aj.PerHead((aj.Causal(), aj.Window(2))), **GOOD).step(*chunk())
