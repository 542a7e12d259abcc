"""Cost follows the exact count."""

import pytest

import attnjax as aj


def test_cost_of_a_window():
    p = aj.Window(4096)
    c = aj.cost(p, 32768, num_heads=32, num_kv_heads=8, head_dim=128, batch=2)
    assert c.scores == 2 * 32 * p.count(32768)
    assert c.flops == c.scores * 4 * 128
    assert c.bytes == 2 * 2 * 32768 * (32 + 8) * 256
    assert c.kv_bytes_per_token == 2 * 8 * 128 * 2


def test_published_cache_sizes():
    """Llama 2 7B in 16 bits: 512 KiB a token over 32 layers; with 8 key heads a quarter."""
    assert 32 * aj.cost(aj.Causal(), 1, num_heads=32, head_dim=128).kv_bytes_per_token == 512 * 1024
    assert 32 * aj.cost(aj.Causal(), 1, num_heads=32, head_dim=128, num_kv_heads=8).kv_bytes_per_token == 128 * 1024


def test_the_cache_holds_what_the_pattern_needs():
    sizes = dict(num_heads=4, num_kv_heads=2, head_dim=8, value_dim=6, batch=3, bytes_per_number=4)
    token = 2 * (8 + 6) * 4
    for pattern, kept in ((aj.Window(16), 16), (aj.Window(16) | aj.Sink(4), 20), (aj.Chunked(10), 10), (aj.Causal(), 100)):
        cost = aj.cost(pattern, 100, **sizes)
        assert (cost.kv_bytes_per_token, cost.kv_bytes) == (token, 3 * kept * token)
    assert aj.cost(aj.Window(16), 7, **sizes).kv_bytes == 3 * 7 * token
    cache = aj.Cache.create(aj.Window(16), batch=3, num_kv_heads=2, head_dim=8, value_dim=6, max_length=100)
    assert cache.nbytes == aj.cost(aj.Window(16), 100, **sizes).kv_bytes
    assert aj.cost(aj.Causal(), 0, **sizes).kv_bytes == 0


def test_cost_of_heads_and_offsets():
    heads = aj.PerHead((aj.Window(2), aj.Causal()))
    assert aj.cost(heads, 8, num_heads=2, head_dim=4).scores == heads.count(8)
    one = aj.cost(aj.Causal(), 1, 100, num_heads=1, head_dim=4, value_dim=6, q_offset=99, bytes_per_number=4)
    assert (one.scores, one.flops, one.kv_bytes_per_token) == (100, 2000, 40)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_heads": 6, "num_kv_heads": 4}, "6 query heads cannot share 4"),
        ({"head_dim": 0}, "head_dim=0 is too small"),
        ({"batch": 0}, "batch=0"),
        ({"S": 9}, "T=8 queries and S=9 keys"),
        ({"pattern": aj.PerHead((aj.Causal(),))}, "PerHead has 1 patterns but num_heads=2"),
    ],
)
def test_cost_errors(change, message):
    arguments = {"pattern": aj.Causal(), "T": 8, "num_heads": 2, "head_dim": 4} | change
    with pytest.raises(ValueError) as caught:
        aj.cost(**arguments)
    assert message in str(caught.value)
