"""Patterns of many atoms: exact, and what they cost grows with distances and tiles, never with 2**atoms."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnjax as aj
from attnjax import show
from attnjax.patterns import by_distance, count, regions
from attnjax.plan import plan
from attnjax.tile_sizes import QUESTIONS
from tests.support.rules import build, compositions, table

T = 131072
PRIMES = [n for n in range(2, 1000) if all(n % i for i in range(2, n))]


def joined(sign, text, numbers):
    return aj.parse(f" {sign} ".join(text.format(*(n if isinstance(n, tuple) else (n,))) for n in numbers))


SIXTY = joined("|", "strided({}) & chunked({})", [(n, n + 61) for n in range(2, 62)])
MANY = {
    "strides": joined("|", "strided({})", range(2, 66)),  # 18 primes are left of them
    "no multiples": aj.Causal() & joined("&", "~strided({})", PRIMES[:24]),
    "strides in chunks": joined("|", "strided({}) & chunked({})", [(n, n + 21) for n in range(2, 18)]),
    "grids": joined("|", "chunked({})", PRIMES[20:40]),
    "grids without others": joined("|", "chunked({}) & ~chunked({})", zip(PRIMES[20:30], PRIMES[:10], strict=True)),
    "strides in windows": joined("|", "strided({}) & window({})", [(n, 50 * n) for n in PRIMES[4:14]]),
    "sinks and windows": joined("|", "sink({}) & ~window({})", [(3 * n, 3 * (n * 7 % 17) + 1) for n in range(1, 17)]),
}


@pytest.fixture
def work(monkeypatch):
    """How many numbers the closed forms and the rules over atoms were asked for, and how often."""
    done = {"numbers": 0, "calls": 0}

    def counted(fn):
        def asked(*args):
            found = fn(*args)
            done["numbers"] += np.size(found)
            done["calls"] += 1
            return found

        return asked

    monkeypatch.setattr(count, "pairs", counted(count.pairs))
    monkeypatch.setattr(by_distance, "fold", counted(by_distance.fold))
    monkeypatch.setattr(count, "allows", None)  # nothing is evaluated pair by pair
    return done


def test_strides_are_counted_distance_by_distance(work):
    for strides in (range(2, 66), PRIMES[100:164]):  # of the latter none divides another
        seen = np.zeros(T, bool)
        for stride in strides:
            seen[::stride] = True
        assert joined("|", "strided({})", strides).count(T) == int(np.sum((T - np.arange(T))[seen]))
    assert work["numbers"] == 2 * T


def test_strides_in_chunks_are_counted_exactly(work):
    q, want = np.arange(T), 0
    for d in range(122):
        inside = [q % (n + 61) >= d for n in range(2, 62) if d % n == 0]
        want += int(np.any(inside, axis=0).sum()) if inside else 0
    assert SIXTY.count(T) == want
    assert work["numbers"] < 122 * T


def test_grids_are_cut_into_rectangles(work):
    q, sizes = np.arange(T), range(4000, 4030)
    longest = np.max([q % size for size in sizes], axis=0)  # the block that reaches back farthest
    assert joined("|", "chunked({})", sizes).count(T) == int(np.sum(longest + 1))
    assert work["numbers"] < 20 * T  # a look at every pair that is near enough would be 4029 * T


@pytest.mark.cross
@pytest.mark.parametrize("name", MANY)
def test_every_question_has_an_answer(name):
    pattern = MANY[name]
    mask = pattern.mask(300, 250, 31)
    assert pattern.count(300, 250, 31) == mask.sum()
    assert aj.parse(str(pattern)) == pattern
    assert not pattern.sees_future
    assert pattern.sees_itself == all(pattern.allows(q, q) for q in range(200))
    edges = np.arange(0, 250, 50)
    codes = pattern.tile(edges[:, None] + 31, edges[:, None] + 81, edges, edges + 50)
    for (i, j), code in np.ndenumerate(codes):
        block = mask[50 * i : 50 * i + 50, 50 * j : 50 * j + 50]
        assert code != aj.Tile.EMPTY or not block.any()
        assert code != aj.Tile.FULL or block.all()
    distances = 31 + np.arange(300)[:, None] - np.arange(250)
    assert pattern.hull().allows(distances[mask], 0).all()
    slots = pattern.slots(T)
    if slots.kind != "all":
        assert mask[:, slots.sinks :].any() == (slots.ring > 0)
        assert distances[:, slots.sinks :][mask[:, slots.sinks :]].max(initial=-1) < slots.ring
    assert f"{pattern.count(5000):,} scores" in show.text(pattern, 5000)


@pytest.mark.cross
@pytest.mark.parametrize("name", MANY)
def test_a_plan_asks_about_few_tiles(name, monkeypatch):
    asked = []
    classify = aj.Pattern.tile, aj.Pattern.tile_in
    monkeypatch.setattr(aj.Pattern, "tile", lambda p, *rects: asked.append(np.broadcast(*rects).size) or classify[0](p, *rects))
    monkeypatch.setattr(
        aj.Pattern, "tile_in", lambda p, parts, *rects: asked.append(np.broadcast(*rects).size) or classify[1](p, parts, *rects)
    )
    made = plan.__wrapped__(MANY[name], T, T, 0)
    assert len(MANY[name].parts()) <= 150 and sum(asked) < 12 * QUESTIONS
    assert MANY[name].count(T) <= made.scores < 1.1 * T * T / 2


@contextlib.contextmanager
def tabled(most, rectangle=by_distance.RECTANGLE):
    """As if a truth table held so many atoms only: small rules then go the way of large ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regions, "MOST_TABLED", most)
        patch.setattr(count, "MOST_GRIDS", most)
        patch.setattr(by_distance, "RECTANGLE", rectangle)
        regions.regions.cache_clear()
        yield
    regions.regions.cache_clear()


LENGTH = st.integers(1, 40)


@pytest.mark.cross
@pytest.mark.parametrize("rectangle", [10**9, -(10**9)], ids=["distance by distance", "in rectangles"])
@settings(max_examples=60)
@given(spec=compositions, T=LENGTH, S=LENGTH, offset=st.integers(-8, 40))
def test_small_rules_without_tables_say_the_same(rectangle, spec, T, S, offset):
    pattern, rule = build(spec)
    want = table(rule, range(offset, offset + T), range(S))
    q, k = np.arange(T)[:, None], np.arange(S)
    with tabled(0, rectangle):
        assert pattern.count(T, S, offset) == want.sum(), str(pattern)
        codes = pattern.tile(q + offset, q + offset + 1, k, k + 1)
        assert not want[codes == aj.Tile.EMPTY].any() and want[codes == aj.Tile.FULL].all()
        shown = [
            pattern.allows_in((part,), q + offset, k) & ((q + offset - k) % part.step == 0) for part in pattern.parts()
        ]
        assert np.array_equal(np.sum(shown, axis=0) if shown else 0 * want, want), str(pattern)
        assert pattern.sees_future == any(rule(q, k) for q in range(64) for k in range(q + 1, 64))
        assert pattern.sees_itself <= all(rule(q, q) for q in range(80))


def test_distances_of_steps_alone_are_known_one_by_one():
    """What a cache keeps, and whether a query sees itself, follow from single distances."""
    with tabled(0):
        assert (aj.Strided(4) & aj.Window(11)).slots(100).ring == 9
        assert ((aj.Strided(4) | aj.Strided(7)) & aj.Window(11)).slots(100).ring == 9
        assert (aj.Window(11) & ~aj.Strided(2) & ~aj.Strided(9)).slots(100).ring == 8
        assert (aj.Strided(4) | aj.Strided(6)).sees_itself and not (aj.Causal() & ~aj.Strided(4)).sees_itself
        assert (aj.Chunked(3) | aj.Chunked(4)).sees_itself and not (aj.Causal() & ~aj.Chunked(4)).sees_itself
