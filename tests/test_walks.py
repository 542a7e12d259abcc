"""Tables of tiles by keys, and the bounds that a walk keeps of its parts."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import attnjax as aj
from attnjax.plan import plan
from attnjax.tile_sizes import CPU
from tests.support.rules import build, compositions

SIZE, LENGTH = st.integers(1, 9), st.integers(1, 40)


def entries(tiles):
    """(row, column, FULL, mask) of every tile, in order."""
    masks = np.zeros(len(tiles.columns), int) if tiles.masks is None else tiles.masks
    return list(zip(tiles.row_of.tolist(), tiles.columns.tolist(), tiles.is_full.tolist(), masks.tolist(), strict=True))


def equal(a, b):
    return all(np.array_equal(x, y) if isinstance(x, np.ndarray) else x == y for x, y in zip(a, b, strict=True))


@settings(max_examples=40)
@given(compositions, LENGTH, LENGTH, st.integers(-5, 25), st.tuples(SIZE, SIZE))
def test_a_table_by_keys_holds_the_same_tiles(spec, T, S, offset, tile):
    p = plan(build(spec)[0], T, S, offset, tile=tile)
    for walk in p.walks:
        tiles = p.masks(walk).tiles
        by_keys = tiles.transposed(walk.S, walk.tile_q)
        assert by_keys.size == walk.tile_q and len(by_keys.starts) == -(-S // tiles.size) + 1
        assert by_keys.starts.dtype == by_keys.columns.dtype == by_keys.partials.dtype == by_keys.masks.dtype == np.int32
        found = entries(by_keys)
        assert sorted((i, j, full, mask) for j, i, full, mask in found) == sorted(entries(tiles))
        assert found == sorted(found, key=lambda tile: (tile[0], not tile[2], tile[1])), "FULL first, then by queries"
        assert equal(by_keys.transposed(walk.T, tiles.size), tiles)


@settings(max_examples=40)
@given(compositions, LENGTH, LENGTH, st.integers(-5, 25), st.sampled_from([(), (8, 4)]))
def test_bounds_of_a_class_show_what_its_parts_show(spec, T, S, offset, stretches):
    """Case: a kernel compares m - n with a bound and n with the end of the keys, and asks nothing else."""
    pattern, _ = build(spec)
    p = plan(pattern, T, S, offset, sizes=CPU._replace(loops=((4, 4),), stretches=stretches))
    for walk in p.walks:
        m, n = np.arange(walk.T)[:, None], np.arange(walk.S)[None]
        for bounds in (x.bounds for x in (*walk.stretches, *([walk.tiles] if walk.tiles else []))):
            for z in range(p.classes(walk)):
                i, j = z + walk.step * m, z + walk.step * n - walk.shift
                real = (i < T) & (j >= 0) & (j < S)
                for part, outer, _ in bounds:
                    inside = within(p.in_rows(walk, part.cell, z), m, n)
                    truth = real & within(part.cell, i + offset, j)
                    assert np.array_equal(inside, truth)
                    assert (outer.d0, outer.d1) == p.in_rows(walk, part.cell, z)[4:6]
                    assert not (inside & ~within(outer, m, n)).any()
                    if part.plain:
                        assert np.array_equal(inside, real & pattern.allows_in((part,), i + offset, j))


def within(cell, q, k):
    d = q - k
    return (q >= cell.q0) & (q < cell.q1) & (k >= cell.k0) & (k < cell.k1) & (d >= cell.d0) & (d < cell.d1)


def test_a_comb_in_its_classes_is_one_compare_and_an_end():
    """10 queries and 10 keys in 4 classes: class 1 has rows 0, 1, 2 (1, 5, 9), class 2 has rows 0, 1 (2, 6)."""
    p = plan(aj.Strided(4), 10, 10, 0)
    (walk,) = p.walks
    (bound,) = walk.stretches[0].bounds if walk.stretches else walk.tiles.bounds
    assert bound.outer.d0 == 0
    assert [p.in_rows(walk, bound.part.cell, z)[:4] for z in (1, 2)] == [(0, 3, 0, 3), (0, 2, 0, 2)]


def test_a_loop_over_given_tiles_keeps_bounds_too():
    walk = plan(aj.Window(4) | aj.Strided(8), 20, 20, 3, tile=(4, 4)).walks[0]
    assert [(x.part.kind, x.outer.d0 + 3) for x in walk.tiles.bounds] == [("band", 0), ("comb", 4)]
    assert walk.tiles.parts is None
