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
        ({"max_length": -5}, ValueError, "max_length=-5"),
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
    with pytest.raises(ValueError, match="tokens=-1 is too small"):
        cache.trim(-1)
    with pytest.raises(ValueError, match="cannot give back 1 of its 0 tokens"):
        cache.trim(1)
    with pytest.raises(ValueError, match=r"tokens\(3,\) must be one number or one per row"):
        cache.trim([0, 0, 0])
    with pytest.raises(TypeError, match="tokens have dtype float64"):
        cache.trim([0.5, 0])


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
