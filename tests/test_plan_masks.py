"""PARTIAL tiles with equal masks are told from bounds; the truth here is every mask, pair by pair."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnjax as aj
from attnjax.patterns import Pattern, algebra, same_mask
from attnjax.plan import MOST_MASKS, plan
from attnjax.tile_sizes import CPU, TPU, Heads
from tests.support.rules import build, compositions

SIZE, LENGTH = st.integers(1, 9), st.integers(1, 40)


def masks_by_pair(p, walk):
    """bool [tile_q, size] of every tile of a walk, as bytes: in classes by the distances of its parts."""
    tiles, found = walk.tiles, []
    for row, column in zip(tiles.row_of, tiles.columns, strict=True):
        m = int(row) * walk.tile_q + np.arange(walk.tile_q)[:, None]
        n = int(column) * tiles.size + np.arange(tiles.size)[None]
        if walk.step > 1:
            shown = np.any([(m - n >= x.outer.d0) & (m - n < x.outer.d1) for x in tiles.bounds], axis=0)
        elif tiles.parts is None:
            shown = p.pattern.allows(m + p.q_offset, n)
        else:
            shown = p.pattern.allows_in(tiles.parts, m + p.q_offset, n)
        found.append((np.broadcast_to(shown, (walk.tile_q, tiles.size)) & (m < walk.T) & (n < walk.S)).tobytes())
    return found


def assert_one_mask_each(p, walk):
    """Tiles of one number have one mask; FULL ones have number 0; each number has its first tile. Gives both counts."""
    found, truth = p.masks(walk), masks_by_pair(p, walk)
    tiles = found.tiles
    assert np.array_equal(tiles.masks == 0, tiles.is_full)
    number = {}
    for at, (mask, seen) in enumerate(zip(tiles.masks.tolist(), truth, strict=True)):
        if mask:
            if mask not in number:
                assert (int(tiles.row_of[at]), int(tiles.columns[at])) == found.first[mask - 1]
            assert number.setdefault(mask, seen) == seen
    assert sorted(number) == list(range(1, len(found.first) + 1))
    return len(number), len(set(number.values()))


@settings(max_examples=60)
@given(compositions, LENGTH, LENGTH, st.integers(-5, 25), st.booleans(), st.tuples(SIZE, SIZE), st.booleans())
def test_tiles_with_one_number_have_one_mask(spec, T, S, offset, masked, tile, in_classes):
    pattern, _ = build(spec)
    if in_classes:
        p = plan(pattern, T, S, offset, Heads(1, 1, 1), masked, None, CPU._replace(loops=(tile,), stretches=()))
    else:
        p = plan(pattern, T, S, offset, Heads(1, 1, 1), masked, tile)
    for walk in p.walks:
        found = p.masks(walk)
        if found.tiles is None or found.tiles.masks is None:
            assert found.tiles is None or (walk.step > 1 and "more than distance decides" in found.why_not)
        else:
            assert_one_mask_each(p, walk)


SHIPPED = (
    "full()", "causal()", "window(96)", "band(40, 20)", "sink(5)", "window(64) | sink(4)", "window(50) | sink(70)", "prefix(75)",
    "strided(16)", "strided(10)", "strided(50)", "window(32) | strided(32)", "sink(4) | window(20) | strided(24)", "chunked(32)", "chunked(50)",
    "chunked(10)", "sink(3) | chunked(48)", "causal() & ~chunked(30)", "causal() & ~strided(4)", "causal() & ~window(40)", "~prefix(40)",
    "causal() & ~strided(10)", "strided(4) | strided(10)", "strided(6) & ~strided(9)", "strided(6) & chunked(40)",
)  # fmt: skip


@pytest.mark.parametrize("text", SHIPPED)
@pytest.mark.parametrize(("T", "S", "offset"), [(320, 320, 0), (150, 230, 80)])
def test_no_mask_has_two_numbers(text, T, S, offset):
    for tile in ((32, 32), (16, 64)):
        p = plan(aj.parse(text), T, S, offset, tile=tile)
        for walk in p.walks:
            numbers, masks = assert_one_mask_each(p, walk)
            assert numbers == masks


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("full()", ()),
        ("causal()", ((0, 0),)),
        ("window(1024)", ((0, 0), (1, 0))),
        ("window(1024) | sink(4)", ((0, 0), (1, 0), (2, 0), (2, 1))),
        ("window(256) | strided(256)", ((0, 0), (1, 0), (2, 0))),  # in place: window and comb, window's end, comb
        ("chunked(2048)", ((0, 0),)),
        ("prefix(300)", ((0, 0), (1, 1))),
        ("strided(128)", ((0, 0), (1, 0))),
    ],
)
def test_masks_of_tiles_of_1024(text, places):
    p = plan(aj.parse(text), 8192, 8192, 0, tile=(1024, 1024))
    assert p.masks(p.walks[0]).first == places
    assert p.masks(p.walks[0]).why_not is None


def test_ends_have_masks_of_their_own():
    """100 queries and keys in tiles of 32: the last row and the last column hold 4."""
    p = plan(aj.Causal(), 100, 100, 0, tile=(32, 32))
    assert p.masks(p.walks[0]).first == ((0, 0), (3, 0), (3, 3))


def test_a_comb_in_its_classes_has_the_masks_of_its_distances():
    """With sinks beside it, some classes see key row 0 and others do not: that is an end, not another mask."""
    for text in ("strided(256)", "window(256) | strided(256)", "sink(4) | window(256) | strided(256)"):
        p = plan(aj.parse(text), 8192, 8192, 0, sizes=TPU._replace(loops=((1024, 1024),), stretches=(), few=0))
        assert p.masks(p.walks[-1]).first == ((0, 0),) and p.walks[-1].step == 256
        assert p.masks(p.walks[-1]).why_not is None


def test_more_masks_than_a_kernel_holds_are_said():
    p = plan(aj.Strided(100), 8192, 8192, 0, tile=(128, 128))  # 25 residues of multiples of 128, and the diagonal
    found = p.masks(p.walks[0])
    assert len(found.first) == 26 > MOST_MASKS and found.tiles.masks.max() == 26
    assert found.why_not == "26 masks among the PARTIAL tiles of 128 x 128, over 16: take other tiles, or the masks as data"
    assert len(p.masks(plan(aj.Strided(128), 8192, 8192, 0, tile=(128, 128)).walks[0]).first) == 1


@pytest.mark.parametrize(
    ("pattern", "sizes", "said"),
    [
        (aj.Window(4) & aj.Where(lambda q, k: k % 2 == 0), (8, 8), "asks a rule pair by pair"),
        (aj.PerHead((aj.Window(4), aj.Causal())), (8, 8), "plan each head's pattern by itself"),
        (aj.Strided(4) & ~aj.Strided(6), None, "in residue classes of 4 more than distance decides"),
    ],
    ids=["where", "heads", "classes"],
)
def test_where_bounds_do_not_tell_it_is_said(pattern, sizes, said):
    p = plan(pattern, 40, 40, 0, tile=sizes, sizes=CPU._replace(loops=((4, 4),), stretches=()))
    found = p.masks(p.walks[0])
    assert said in found.why_not and found.tiles is p.walks[0].tiles and found.first == ()


@pytest.mark.parametrize(
    ("text", "most"),
    [("causal()", 1), ("window(4096) | sink(4)", 5), ("window(256) | strided(256)", 4), ("chunked(1000)", 256), ("prefix(3000)", 8)],
)
def test_a_long_plan_compares_few_masks(monkeypatch, text, most):
    """No pair is asked, and of up to 8256 PARTIAL tiles a handful is compared query by query."""
    pattern, compared, one = aj.parse(text), [], same_mask._mask

    def counted(*given):
        compared.append(given)
        return one(*given)

    def refused(*given):
        raise AssertionError("a pair is asked")

    monkeypatch.setattr(same_mask, "_mask", counted)
    monkeypatch.setattr(Pattern, "allows", refused)
    monkeypatch.setattr(algebra, "allows", refused)
    p = plan(pattern, 131072, 131072, 0, tile=(1024, 1024))
    found = p.masks(p.walks[0])
    assert 1 <= len(found.first) <= len(compared) <= most
