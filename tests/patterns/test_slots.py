"""What a cache keeps, against pairs looked at one by one: a key is kept while the newest query or a later one sees it."""

import numpy as np
import pytest
from hypothesis import given, settings

import attnjax as aj
from tests.support.rules import build, compositions

KEYS, QUERIES = 60, 160  # room for a period of two rules whose numbers are below 10


def needed(rule, length, keys=KEYS, queries=QUERIES):
    """The keys that went by and that a query at `length - 1` or later may see."""
    return {j for j in range(min(length, keys)) if any(rule(p, j) for p in range(length - 1, queries))}


def names(spec):
    return {spec[0]} if spec[0] in ("full", "causal", "window", "band", "sink", "strided", "chunked", "prefix") else set().union(*(names(s) for s in spec[1:]))


@pytest.mark.parametrize(
    ("pattern", "kind", "sinks", "ring"),
    [
        (aj.Window(4), "ring", 0, 4),
        (aj.Window(4) | aj.Sink(2), "sinks + ring", 2, 4),
        (aj.Sink(3), "sinks", 3, 0),
        (aj.Chunked(8), "chunk", 0, 8),
        (aj.Chunked(8) & aj.Window(3), "ring", 0, 3),
        (aj.Chunked(8) | aj.Sink(1), "sinks + ring", 1, 8),
        (aj.Strided(4) & aj.Window(11), "ring", 0, 9),
        (aj.Window(4) | (aj.Strided(4) & aj.Window(64)), "ring", 0, 61),
        (aj.Window(9) & ~aj.Window(2), "ring", 0, 9),
        (aj.Band(5, 5), "ring", 0, 6),
        (aj.Sink(8) & ~aj.Window(4), "sinks", 8, 0),
        (~aj.Causal(), "ring", 0, 0),
        (aj.Causal(), "all", 0, 100),
        (aj.Full(), "all", 0, 100),
        (aj.Prefix(4), "all", 0, 100),
        (aj.Strided(4), "all", 0, 100),
        (aj.Window(4) | aj.Strided(8), "all", 0, 100),
        (aj.Causal() & ~aj.Chunked(4), "all", 0, 100),
        (aj.Window(101), "all", 0, 100),
        (aj.Window(98) | aj.Sink(2), "sinks + ring", 2, 98),
        (aj.Strided(2) & ~aj.Strided(1), "ring", 0, 0),
        (aj.PerHead((aj.Window(3), aj.Window(5) | aj.Sink(1))), "sinks + ring", 1, 5),
        (aj.PerHead((aj.Window(3), aj.Causal())), "all", 0, 100),
        (aj.Where(lambda q, k: k == q, sees_future=False), "all", 0, 100),
        (aj.Window(6) & aj.Where(lambda q, k: k == q), "ring", 0, 6),
    ],
)
def test_the_pattern_picks_the_slots(pattern, kind, sinks, ring):
    slots = pattern.slots(100)
    assert (slots.kind, slots.sinks, slots.ring) == (kind, sinks, ring)
    assert slots.size == sinks + ring and slots.endless == (kind != "all")


@pytest.mark.parametrize(
    ("pattern", "rule"),
    [
        (aj.Window(4), lambda q, k: q - 4 < k <= q),
        (aj.Window(3) | aj.Sink(2), lambda q, k: (q - 3 < k <= q) or (k < 2 and k <= q)),
        (aj.Chunked(8), lambda q, k: q // 8 == k // 8 and k <= q),
        (aj.Sink(3), lambda q, k: k < 3 and k <= q),
        (aj.Causal(), lambda q, k: k <= q),
        (aj.Strided(5), lambda q, k: (q - k) % 5 == 0 and k <= q),
        (aj.Window(4) | (aj.Strided(4) & aj.Window(16)), lambda q, k: k <= q and (q - k < 4 or (q - k < 16 and (q - k) % 4 == 0))),
    ],
)
def test_a_key_is_kept_if_and_only_if_it_is_needed(pattern, rule):
    slots = pattern.slots(KEYS)
    for length in range(KEYS):
        assert set(slots.kept(length)) == needed(rule, length), length


@pytest.mark.slow
@settings(max_examples=100)
@given(compositions)
def test_of_any_composition_nothing_needed_is_dropped_and_no_slot_is_spare(spec):
    pattern, rule = build(spec)
    slots = pattern.slots(KEYS)
    seen = np.array([[bool(rule(q, k)) and k <= q for k in range(KEYS)] for q in range(QUERIES)])
    far = np.where(seen.any(0), QUERIES - 1 - np.argmax(seen[::-1], axis=0) - np.arange(KEYS), -1)  # longest distance
    if slots.kind != "all":
        assert all(d < slots.ring for d in far[slots.sinks :]), "a key is dropped that a query would see"
        for length in range(0, KEYS, 3):
            assert needed(rule, length) <= set(slots.kept(length))
    if not names(spec) & {"prefix"}:  # its first rows have a reach of their own
        endless = far >= QUERIES - 1 - np.arange(KEYS) - 72  # visible within a period of the end: for ever
        fewest = min(n + max(far[n:], default=-1) + 1 for n in range(10) if not endless[n:].any()) if not endless[10:].any() else None
        assert slots.size == (KEYS if fewest is None or fewest > KEYS else fewest)


def test_positions_get_slots_of_their_own():
    for pattern in (aj.Window(4), aj.Window(3) | aj.Sink(2), aj.Chunked(5), aj.Causal(), aj.Sink(3)):
        slots = pattern.slots(40)
        for length in range(41):
            kept = slots.kept(length)
            places = slots.at(np.array(kept, int)).tolist()
            assert len(set(places)) == len(kept) and all(0 <= place < slots.size for place in places)
    assert aj.Sink(3).slots(40).at([2, 3, 30]).tolist() == [2, 3, 3]  # 3 is past the last slot: kept nowhere


def test_wrong_lengths_are_named():
    with pytest.raises(ValueError, match="max_length=0 is too small"):
        aj.Window(4).slots(0)
    with pytest.raises(TypeError, match="max_length=4.0 is a float"):
        aj.PerHead((aj.Window(4),)).slots(4.0)
