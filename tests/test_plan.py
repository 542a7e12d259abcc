"""A plan computes every visible pair exactly once, and leaves no mask off where a pair is hidden."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnjax as aj
from attnjax import tile_sizes, walks
from attnjax.patterns.checks import LARGEST
from attnjax.plan import plan
from attnjax.tile_sizes import Heads
from tests.support.rules import build, compositions, table

SIZE = st.integers(1, 9)
ONE = Heads(1, 1, 1)


def visits(walk):
    """(first query row, first key row, keys, masked, parts) of every visit, in the walk's rows."""
    for i in range(walk.rows):
        for stretch in walk.stretches:
            yield i * walk.tile_q, int(stretch.starts[i]), stretch.size, True, stretch.parts
        if walk.tiles:
            t = walk.tiles
            for n in range(t.starts[i], t.starts[i + 1]):
                yield i * walk.tile_q, int(t.columns[n]) * t.size, t.size, n >= t.partials[i], t.parts


def computed(pattern, p):
    """How often each pair [T, S] is computed, and how many scores were computed for it, by walking the plan."""
    times, scores = np.zeros((p.T, p.S), int), 0
    for walk in p.walks:
        for z in range(p.classes(walk)):
            for row, col, size, masked, parts in visits(walk):
                scores += walk.tile_q * size
                i = z + walk.step * np.arange(row, row + walk.tile_q)
                j = z + walk.step * np.arange(col, col + size) - walk.shift
                shown = np.ones((len(i), len(j)), bool)
                if masked:
                    q, k = i[:, None] + p.q_offset, j[None, :]
                    shown = pattern.allows(q, k) if parts is None else pattern.allows_in(parts, q, k)
                    shown = np.broadcast_to(shown, (len(i), len(j))) & (j >= 0) & (j < p.S)
                else:
                    assert 0 <= j[0] and j[-1] < p.S, "a visit without a mask reaches over the keys"
                real = i < p.T
                keys = np.clip(j, 0, p.S - 1)
                np.add.at(times, (i[real][:, None], keys[None, :]), shown[real])
    return times, scores


@pytest.mark.slow
@settings(max_examples=150)
@given(
    compositions, st.integers(1, 40), st.integers(1, 40), st.integers(-5, 25), st.booleans(),
    st.one_of(st.none(), st.tuples(SIZE, SIZE)), st.sampled_from([ONE, Heads(2, 8, 4), Heads(1, 64, 1)]),
)  # fmt: skip
def test_a_plan_computes_every_visible_pair_once(spec, T, S, offset, masked, tile, heads):
    pattern, _ = build(spec)
    p = plan(pattern, T, S, offset, heads, masked, tile)
    times, scores = computed(pattern, p)
    assert np.array_equal(times, pattern.mask(T, S, offset).astype(int))
    assert scores == p.scores
    assert not (masked and p.full)


@settings(max_examples=100)
@given(compositions)
def test_parts_are_disjoint_and_show_what_the_pattern_shows(spec):
    pattern, rule = build(spec)
    q, k = np.arange(-9, 31)[:, None], np.arange(-9, 31)
    shown = [pattern.allows_in((part,), q, k) & ((q - k) % part.step == 0) for part in pattern.parts()]
    assert np.array_equal(sum(shown, np.zeros((40, 40), int)), table(rule, range(-9, 31), range(-9, 31)))


@pytest.mark.parametrize(
    ("pattern", "kinds"),
    [
        (aj.Causal(), ["band"]),
        (aj.Window(4) | aj.Sink(1), ["column", "band"]),
        (aj.Window(4) | aj.Strided(8), ["band", "comb"]),
        (aj.Strided(4) | aj.Strided(6), ["comb", "comb"]),  # pairs of both belong to the first
        (aj.Strided(4) & ~aj.Strided(8), ["comb"]),
        (aj.Chunked(8), ["block"]),
        (aj.Prefix(8), ["block", "band", "band", "band"]),  # rows before, in and after the prefix
        (~aj.Strided(4) & aj.Causal(), ["rest"]),
        (~aj.Full(), []),
    ],
    ids=str,
)
def test_kinds_of_parts(pattern, kinds):
    assert sorted(part.kind for part in pattern.parts()) == sorted(kinds)


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
    p = plan(pattern, 1024, 1024, 0, ONE, False, (128, 128))
    assert p.full + p.partial == tiles
    assert p.scores == tiles * 128 * 128


@pytest.mark.parametrize(
    "pattern",
    [
        (aj.Sink(200) & ~aj.Sink(100)) | aj.Window(4),  # sinks past the last key
        aj.Sink(200) & ~aj.Sink(100),
        aj.Strided(LARGEST),
        aj.Window(3) | aj.Strided(50) | aj.Strided(90),
        aj.Strided(LARGEST) & aj.Strided(LARGEST - 1) & aj.Strided(16) & aj.Chunked(12),  # they meet beyond any 64-bit number
        aj.Strided(4) | (aj.Strided(LARGEST) & aj.Strided(LARGEST - 1) & ~aj.Sink(4)),
        aj.Window(LARGEST) & ~aj.Chunked(LARGEST),
        aj.parse("|".join(f"strided({n})" for n in (2, 3, 5, 7, 11, 13, 17, 19, 23, LARGEST))),  # more than a table holds
        aj.parse("|".join(f"strided({n}) & chunked({n + 9})" for n in (2, 3, 5, 7, 11, 13, 48, LARGEST - 9))),
    ],
    ids=str,
)
@pytest.mark.parametrize("offset", [0, 45, -45, LARGEST - 50, 50 - LARGEST])
def test_numbers_beyond_the_arrays(pattern, offset):
    """Nothing grows with the numbers of a pattern: a comb wider than the arrays is walked in place."""
    p = plan(pattern, 50, 50, offset)
    times, _ = computed(pattern, p)
    assert np.array_equal(times, pattern.mask(50, 50, offset).astype(int))
    assert pattern.count(50, 50, offset) == times.sum()
    for walk in p.walks:
        assert walk.step * walk.S <= 3 * 50, "the layout is mostly padding"


@pytest.mark.parametrize("pattern", [aj.Causal(), aj.Prefix(300) & ~aj.Sink(9), aj.Chunked(500)], ids=str)
def test_a_large_table_asks_about_few_tiles(pattern):
    """Blocks of tiles are asked about first; the table is the one that asking about each tile gives."""
    asked = 0

    def states(*rects):
        nonlocal asked
        codes = pattern.tile(*rects)
        asked += codes.size
        return codes

    found = walks.tiles(states, 4096, 4096, 16, 32, None)
    few, each = asked, np.asarray(pattern.tile(*corners(4096, 16, 0), *corners(4096, 32, 1)))
    assert few < each.size / 4
    for i, row in enumerate(each):
        ranked = [*np.flatnonzero(row == aj.Tile.FULL), *np.flatnonzero(row == aj.Tile.PARTIAL)]
        assert found.columns[found.starts[i] : found.starts[i + 1]].tolist() == ranked
        assert found.partials[i] - found.starts[i] == (row == aj.Tile.FULL).sum()


def corners(length, size, axis):
    """First and end of each tile, along one axis of two."""
    first = np.arange(0, length, size)
    return tuple(np.expand_dims(x, 1 - axis) for x in (first, first + size))


@pytest.fixture
def asked(monkeypatch):
    """How many tiles a plan asks about, by question."""
    sizes, classify = [], walks._codes

    def counted(states, *lengths):
        def counting(*rects):
            sizes.append(np.broadcast(*rects).size)
            return states(*rects)

        return classify(counting if states.__name__ == "states" else states, *lengths)

    monkeypatch.setattr(walks, "_codes", counted)
    return sizes


@pytest.mark.parametrize("group", [8, 16])
@pytest.mark.parametrize("text", ["causal() & ~strided(4)", "~(window(5) | strided(1000))"])
def test_grouped_heads_take_wider_tiles_rather_than_ask_about_a_million(asked, text, group):
    """Few queries a row and a hidden pair in every tile: asking each tile took up to four seconds."""
    pattern = aj.parse(text)
    made = plan.__wrapped__(pattern, 131072, 131072, 0, Heads(1, 2 * group, group))
    assert sum(asked) < 6 * tile_sizes.QUESTIONS
    assert made.scores < 1.1 * 131072**2 / (2 if "causal" in text else 1)


def test_equal_patterns_share_one_plan():
    assert plan(aj.Window(4), 20, 20, 0) is plan(aj.Band(3, 0), 20, 20, 0)


@pytest.mark.parametrize(
    ("pattern", "waste"),
    [
        (aj.Causal(), 1.2),
        (aj.Window(256), 1.3),
        (aj.Window(256) | aj.Sink(4), 1.3),
        (aj.Window(256) | aj.Strided(256), 1.3),
        (aj.Strided(256), 1.6),
    ],
    ids=str,
)
def test_waste_at_16384(pattern, waste):
    """Scores computed for each score needed."""
    assert 1 <= plan(pattern, 16384, 16384, 0, Heads(1, 8, 1)).scores / pattern.count(16384) < waste


def test_a_long_plan_needs_no_mask(asked):
    """Case B03: T = 131072, window | sink, without a T x S array."""
    tracemalloc.start()
    p = plan.__wrapped__(aj.Window(4096) | aj.Sink(4), 131072, 131072, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(asked) < tile_sizes.QUESTIONS and peak < 200e6
    table = plan(aj.Window(4096) | aj.Sink(4), 131072, 131072, 0, ONE, False, (512, 512)).walks[0].tiles
    assert len(table.columns) == sum(min(i, 8) + 1 + (i > 8) for i in range(256))
    assert p.scores < 1.2 * (aj.Window(4096) | aj.Sink(4)).count(131072)


@pytest.mark.parametrize(("T", "pattern"), [(100, aj.Causal()), (300, aj.Causal() & aj.Window(32))], ids=str)
def test_sparsity_counts_what_is_there(T, pattern):
    """Case V02: shares of pairs and of tiles stay in [0, 1], also below the size of a tile."""
    p = plan(pattern, T, T, 0, ONE, False, (128, 128))
    all_tiles = (-(-T // 128)) ** 2
    pairs, tiles = 1 - pattern.count(T) / T**2, 1 - (p.full + p.partial) / all_tiles
    assert 0 <= tiles <= pairs <= 1
    if T == 100:
        assert pairs == pytest.approx(0.495) and tiles == 0 and p.partial == 1


def test_a_plan_that_would_not_fit_is_refused():
    for pattern, T, said in (
        (aj.Causal(), 10_000_000, "make 762,978,516 tiles of 512 x 256; a plan lists at most 134,217,728"),
        (aj.Window(256), 10**9, "T=1000000000 queries, S=1000000000 keys: a plan is for at most 16,777,216 of each"),
    ):
        with pytest.raises(ValueError, match=said):
            plan(pattern, T, T, 0)
    assert plan(aj.Window(256), 10_000_000, 10_000_000, 0).scores < 2 * aj.Window(256).count(10_000_000)
