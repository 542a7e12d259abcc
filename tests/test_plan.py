"""The plan visits every tile that holds a visible pair once, and calls none FULL that hides one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnjax as aj
from attnjax.plan import plan
from tests.support.rules import build, compositions

SIZE = st.integers(1, 9)


@settings(max_examples=120)
@given(compositions, st.integers(1, 30), st.integers(1, 30), st.integers(-5, 25), SIZE, SIZE, st.booleans())
def test_plan_covers_what_is_visible(spec, T, S, offset, tile_q, tile_k, masked):
    pattern, _ = build(spec)
    p = plan(pattern, T, S, offset, tile_q, tile_k, masked)
    mask = pattern.mask(T, S, offset)
    rows, cols = -(-T // tile_q), -(-S // tile_k)
    assert p.rows == rows and p.full + p.partial + p.empty == rows * cols
    for i in range(rows):
        kept = p.columns[p.starts[i] : p.starts[i + 1]]
        full = p.columns[p.starts[i] : p.partials[i]]
        assert len(set(kept)) == len(kept) and set(full) <= set(kept)
        for j in range(cols):
            piece = mask[i * tile_q : (i + 1) * tile_q, j * tile_k : (j + 1) * tile_k]
            assert j in kept or not piece.any()
            assert j not in full or (piece.all() and piece.shape == (tile_q, tile_k) and not masked)


@pytest.mark.parametrize(
    ("pattern", "tiles"),
    [
        (aj.Causal(), 36),
        (aj.Window(128), 15),
        (aj.Window(129), 15),  # key p - 128 of row 128 r is the first key of tile r - 1
        (aj.Window(130), 21),
        (aj.Window(128) | aj.Sink(4), 21),
        (aj.Full(), 64),
        (~aj.Full(), 0),
    ],
    ids=str,
)
def test_tiles_visited(pattern, tiles):
    """Case B04: T = S = 1024 in tiles of 128."""
    p = plan(pattern, 1024, 1024, 0, 128, 128)
    assert len(p.columns) == tiles == 64 - p.empty
    assert p.scores == tiles * 128 * 128


def test_equal_patterns_share_one_plan():
    assert plan(aj.Window(4), 20, 20, 0, 8, 8) is plan(aj.Band(3, 0), 20, 20, 0, 8, 8)


@pytest.mark.slow
def test_a_long_plan_needs_no_mask():
    """Case B03: T = 131072 in tiles of 512, window | sink, in under 2 s and without a T x S array."""
    import time
    import tracemalloc

    plan.cache_clear()
    tracemalloc.start()
    begin = time.perf_counter()
    p = plan(aj.Window(4096) | aj.Sink(4), 131072, 131072, 0, 512, 512)
    seconds = time.perf_counter() - begin
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seconds < 2 and peak < 200e6
    assert len(p.columns) == sum(min(i, 8) + 1 + (i > 8) for i in range(256))
    assert np.all(np.diff(p.starts) > 0)


@pytest.mark.parametrize(("T", "pattern"), [(100, aj.Causal()), (300, aj.Causal() & aj.Window(32))], ids=str)
def test_sparsity_counts_what_is_there(T, pattern):
    """Case V02: shares of pairs and of tiles stay in [0, 1], also below the size of a tile."""
    p = plan(pattern, T, T, 0, 128, 128)
    pairs, tiles = 1 - pattern.count(T) / T**2, p.empty / (p.empty + p.partial + p.full)
    assert 0 <= tiles <= pairs <= 1
    if T == 100:
        assert pairs == pytest.approx(0.495) and tiles == 0 and p.partial == 1
