"""Patterns as values: equality, text, hashing, errors; PerHead, Where and the parser."""

import copy
import pickle

import numpy as np
import pytest

import attnjax as aj


def even(q, k):
    return (q + k) % 2 == 0


def ahead(q, k):
    return k <= q + 2


def test_normal_form():
    assert aj.Window(4) == aj.Band(3, 0) and hash(aj.Window(4)) == hash(aj.Band(3, 0))
    assert aj.Causal() == aj.Band(None, 0) and aj.Full() == aj.Band(None, None)
    assert aj.Window(4) & aj.Window(8) == aj.Window(4) and aj.Window(4) | aj.Window(8) == aj.Window(8)
    assert aj.Causal() | aj.Window(3) == aj.Causal() and aj.Band(2, 5) & aj.Causal() == aj.Window(3)
    assert aj.Sink(2) | aj.Sink(4) == aj.Sink(4) and aj.Prefix(2) & aj.Prefix(4) == aj.Prefix(2)
    assert aj.Strided(4) & aj.Strided(6) == aj.Strided(12) and aj.Strided(2) | aj.Strided(4) == aj.Strided(2)
    assert aj.Chunked(2) & aj.Chunked(4) == aj.Chunked(2) and aj.Chunked(2) | aj.Chunked(4) == aj.Chunked(4)
    assert aj.Window(4) & ~aj.Window(4) == ~aj.Full() and aj.Sink(4) | ~aj.Sink(4) == aj.Full()
    assert aj.Window(4) | (aj.Window(4) & aj.Sink(1)) == aj.Window(4)
    assert aj.Window(4) != aj.Window(5) and aj.Window(4) != "window(4)"
    assert len({aj.Window(4), aj.Band(3, 0), aj.Sink(1)}) == 2


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (aj.Full(), "full()"),
        (aj.Causal(), "causal()"),
        (aj.Window(4096) | aj.Sink(4), "window(4096) | sink(4)"),
        (aj.Sink(1) | aj.Window(4), "window(4) | sink(1)"),
        (aj.Band(None, 3), "band(none, 3)"),
        (aj.Causal() & ~aj.Strided(8), "causal() & ~strided(8)"),
        (~(aj.Window(2) | aj.Sink(1)), "~window(2) & ~sink(1)"),
        ((aj.Window(2) | aj.Sink(1)) & aj.Chunked(8), "chunked(8) & (window(2) | sink(1))"),
        (aj.PerHead((aj.Window(2), aj.Causal())), "perhead(window(2), causal())"),
    ],
)
def test_text(pattern, text):
    assert str(pattern) == text and aj.parse(text) == pattern
    assert repr(pattern) == f"<pattern {text}>"


def test_parse_reads_people_s_spelling():
    assert aj.parse("Window(4)|Sink(1)") == aj.Window(4) | aj.Sink(1)
    assert aj.parse(" ( window( 4 ) ) ") == aj.Window(4)
    assert aj.parse("window(2) | sink(1) & strided(3)") == aj.Window(2) | (aj.Sink(1) & aj.Strided(3))
    assert aj.parse("~window(2) & causal()") == ~aj.Window(2) & aj.Causal()
    assert aj.parse("band(None, 2)") == aj.Band(None, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("windw(4)", "there is no pattern 'windw'; did you mean 'window'?\n  windw(4)\n  ^"),
        ("window(4) | sinc(1)", "did you mean 'sink'?\n  window(4) | sinc(1)\n              ^"),
        ("xyzzy(4)", "the names are full, causal, window"),
        ("window(0)", "window=0 is too small: a window counts the query itself"),
        ("window(4.5)", "'4.5' is not an int\n  window(4.5)\n         ^"),
        ("window(four)", "expected an int or none, found 'four'"),
        ("window(none)", "window=None is a NoneType; it must be an int"),
        ("window(4", "expected ',' between the arguments of window, found the end"),
        ("window 4", "expected '(' after window, found '4'"),
        ("window()", "window takes 1 argument, got 0"),
        ("causal(1)", "causal takes 0 arguments, got 1"),
        ("window(4) |", "expected a pattern such as window(4), found the end"),
        ("", "expected a pattern such as window(4), found the end"),
        ("window(4)) ", "expected '|', '&' or the end, found ')'"),
        ("window(4) + sink(1)", "'+' is not part of the pattern language\n  window(4) + sink(1)\n            ^"),
        ("where(even)", "holds a Python function, so it has no text"),
        ("window(2) | perhead(causal())", "perhead(...) does not nest"),
    ],
)
def test_parse_errors_point_at_the_place(text, message):
    with pytest.raises(ValueError) as caught:
        aj.parse(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: aj.Window(0), ValueError, "window=0 is too small: a window counts the query itself, so it is at least 1"),
        (lambda: aj.Window(-3), ValueError, "window=-3"),
        (lambda: aj.Window(4.0), TypeError, "window=4.0 is a float; it must be an int"),
        (lambda: aj.Window(True), TypeError, "window=True is a bool"),
        (lambda: aj.Window("4"), TypeError, "window='4' is a str"),
        (lambda: aj.Window(None), TypeError, "window=None is a NoneType"),
        (lambda: aj.Window(2**31), ValueError, "window=2147483648 is too large: positions are int32, at most 2147483647; a window"),
        (lambda: aj.Prefix(2**70), ValueError, "n=1180591620717411303424 is too large: positions are int32"),
        (lambda: aj.Window(10**5000), ValueError, "window=2**16609 or more is too large: positions are int32"),
        (lambda: aj.parse(f"window({'9' * 5000})"), ValueError, "cannot read pattern: an int of 5000 digits fits into no 64-bit integer"),
        (lambda: aj.Causal().count(10**400), ValueError, "T=2**1328 or more is too large: it is at most 9223372036854775807"),
        (lambda: aj.Where(lambda q, k: (q + k) % 2).mask(3), TypeError, "of a Where returned int64; it must return bools"),
        (lambda: aj.Band(-1, 0), ValueError, "left=-1"),
        (lambda: aj.Band(0, 1.5), TypeError, "right=1.5"),
        (lambda: aj.Sink(0), ValueError, "n=0"),
        (lambda: aj.Strided(0), ValueError, "stride=0"),
        (lambda: aj.Chunked(0), ValueError, "size=0"),
        (lambda: aj.Prefix(0), ValueError, "n=0"),
        (lambda: aj.Where(3), TypeError, "fn=3 cannot be called"),
        (lambda: aj.Where(even, sees_future=0), TypeError, "sees_future=0 must be True or False"),
        (lambda: aj.parse(4), TypeError, "parse takes a str such as"),
        (lambda: aj.Pattern(), TypeError, "patterns are made by name"),
        (lambda: bool(aj.Window(4)), TypeError, "no truth value"),
        (lambda: aj.Window(4) and aj.Sink(1), TypeError, "write `&`, `|`, `~`"),
        (lambda: aj.Window(4) | 3, TypeError, "unsupported operand"),
        (lambda: aj.Causal().tile(4, 4, 0, 1), ValueError, "tile [4, 4) x [0, 1) holds no pair"),
        (lambda: aj.Causal().tile(0.0, 4, 0, 1), TypeError, "q0=0.0 is a float"),
        (lambda: aj.Causal().tile(np.zeros(2), 4, 0, 1), TypeError, "q0 is an array of float64"),
        (lambda: aj.Causal().count(-1), ValueError, "T=-1"),
        (lambda: aj.Causal().count(3.0), TypeError, "T=3.0"),
        (lambda: aj.Causal().mask(3, 3, 0.5), TypeError, "q_offset=0.5"),
        (lambda: aj.PerHead(()), ValueError, "PerHead(()) has no heads"),
        (lambda: aj.PerHead(aj.Causal()), TypeError, "takes a tuple of patterns"),
        (lambda: aj.PerHead((3,)), TypeError, "head 0 is a int, not a pattern"),
        (lambda: aj.PerHead((aj.PerHead((aj.Full(),)),)), TypeError, "does not nest"),
        (lambda: aj.PerHead((aj.Full(),)) & aj.PerHead((aj.Full(),) * 2), ValueError, "1 heads and PerHead of 2 heads"),
        (lambda: bool(aj.PerHead((aj.Full(),))), TypeError, "no truth value"),
    ],
)  # fmt: skip
def test_errors_name_argument_value_and_rule(make, kind, message):
    with pytest.raises(kind) as caught:
        make()
    assert message in str(caught.value)


@pytest.mark.parametrize("ask", ["count", "mask"])
def test_different_lengths_need_an_offset(ask):
    with pytest.raises(ValueError, match=r"T=3 queries and S=5 keys.*q_offset=2 \(S - T\).*q_offset=0"):
        getattr(aj.Causal(), ask)(3, 5)
    assert aj.Full().count(3, 5) == 15 and (~aj.Full()).count(3, 5) == 0
    assert aj.Causal().mask(3, 5, 2)[0].tolist() == [True, True, True, False, False]
    assert aj.Causal().mask(3, 5, 0)[0].tolist() == [True, False, False, False, False]


def test_frozen_and_copied():
    p = aj.Window(4) | aj.Sink(1)
    with pytest.raises(AttributeError, match="frozen"):
        p.window = 5
    with pytest.raises(AttributeError, match="frozen"):
        del p._expr
    heads = aj.PerHead((p, aj.Causal()))
    with pytest.raises(AttributeError, match="frozen"):
        heads.patterns = ()
    for x in (p, aj.Window(4), heads):
        assert copy.deepcopy(x) == x == pickle.loads(pickle.dumps(x))


def test_ints_of_numpy_count_as_ints():
    assert aj.Window(np.int64(4)) == aj.Window(4) and aj.Window(4).count(np.int32(16)) == aj.Window(4).count(16)


def test_where():
    p = aj.Where(even)
    want = np.array([[even(q, k) for k in range(9)] for q in range(7)])
    assert np.array_equal(p.mask(7, 9, 0), want) and p.count(7, 9, 0) == want.sum()
    assert p == aj.Where(even) and p != aj.Where(lambda q, k: even(q, k))
    assert p.tile(0, 1, 0, 1) is aj.Tile.PARTIAL and (p & aj.Window(2)).tile(8, 10, 0, 4) is aj.Tile.EMPTY
    assert p.sees_future and not (p & aj.Causal()).sees_future and not aj.Where(even, sees_future=False).sees_future
    assert str(p) == "where(even)" and p.has_rule and not aj.Window(3).has_rule


def test_a_constant_rule_is_taken_as_it_is():
    always = aj.Where(lambda q, k: True)
    assert always.mask(3).all() and not (~always).mask(3).any() and (~always).count(3) == 0


def test_numbers_up_to_the_largest_position_work():
    top = 2**31 - 1
    both = aj.Strided(top) & aj.Strided(top - 1)
    for p in (aj.Window(top), aj.Band(top, top), aj.Sink(top), aj.Prefix(top), aj.Strided(top), aj.Chunked(top), both):
        assert np.array_equal(aj.visible(p, 5)[0, 0], p.mask(5)) and p.count(5) == p.mask(5).sum()


def test_where_is_held_to_its_promise():
    held = aj.Where(ahead, sees_future=False)
    assert np.array_equal(held.mask(5), np.tri(5, dtype=bool)) and held.count(5) == 15
    assert aj.Where(ahead).count(5) == sum(min(5, q + 3) for q in range(5))


def test_where_counts_in_blocks_only_where_it_decides(monkeypatch):
    asked = []

    def rule(q, k):
        asked.append(np.broadcast(q, k).size)
        return k % 3 == 0

    T, w = 20000, 50
    count = (aj.Where(rule) & aj.Window(w)).count(T)
    assert count == sum(sum(k % 3 == 0 for k in range(max(0, q - w + 1), q + 1)) for q in range(T))
    assert sum(asked) < 40 * T * w and max(asked) <= 1 << 22


def test_per_head():
    a, b = aj.Window(3), aj.Causal() & ~aj.Sink(1)
    heads = aj.PerHead([a, b])
    assert np.array_equal(heads.mask(6), np.stack([a.mask(6), b.mask(6)]))
    assert heads.count(6) == a.count(6) + b.count(6)
    assert heads == aj.PerHead((a, b)) and hash(heads) == hash(aj.PerHead((a, b))) and heads != aj.PerHead((b, a))
    assert (heads | aj.Sink(1)) == (aj.Sink(1) | heads) == aj.PerHead((a | aj.Sink(1), b | aj.Sink(1)))
    assert heads & heads == heads and ~heads == aj.PerHead((~a, ~b))
    assert heads.tile(0, 1, 3, 4) is aj.Tile.EMPTY and heads.tile(8, 9, 1, 2) is aj.Tile.PARTIAL
    assert heads.tile(8, 9, 7, 8) is aj.Tile.FULL and heads.tile([8], 9, 7, 8).tolist() == [2]
    assert heads.depends_on_positions and not heads.sees_future and (~heads).sees_future


def test_is_prefix():
    assert aj.Prefix(3).is_prefix and (aj.Prefix(3) | aj.Prefix(2)).is_prefix
    assert not (aj.Prefix(3) | aj.Band(0, 1)).is_prefix and not aj.Causal().is_prefix
    assert aj.PerHead((aj.Prefix(3), aj.Causal())).is_prefix
    assert not aj.PerHead((aj.Prefix(3), aj.Full())).is_prefix


def test_rules_hold_literally_before_position_zero():
    assert not aj.Causal().mask(3, 4, -3).any()
    assert aj.Band(0, 2).mask(2, 3, -2).tolist() == [[True, False, False], [True, True, False]]
    assert not aj.Prefix(4).mask(1, 4, -1).any()


@pytest.mark.parametrize("text", ["~" * 100 + "causal()", "(" * 100 + "causal()" + ")" * 100])
def test_a_hundred_deep_is_read_and_more_is_refused(text):
    assert aj.parse(text) == aj.Causal()
    for more in ("~" + text, "~" * 5000 + text):
        with pytest.raises(ValueError, match="parentheses and ~ stand more than 100 deep in each other") as error:
            aj.parse(more)
        assert len(str(error.value)) < 400


def test_digits_are_those_of_ascii():
    with pytest.raises(ValueError, match="not part of the pattern language"):
        aj.parse("window(\uff14)")
