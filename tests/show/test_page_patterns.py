"""The page's pattern language, pictures, counts and tiles are the library's, on patterns drawn after it was built."""

import numpy as np
import pytest

import attnjax as aj

pytestmark = pytest.mark.page
FAULTY = (
    "", "  ", "window(0)", "widow(4)", "window(4", "window(4) |", "window()", "window(1, 2)", "window(none)", "band(-1, 2)",
    "chunked(99999999999)", "where(f)", "perhead(window(1)", "window(2) | perhead(causal())", "a'b", "'", "window(4.5)",
    "xyz(3)", "window(4) sink(1)", "(window(4)", "~", "casual()", "snk(2)", "strideed(3)", "window(4x)", "band(1)", "window 4",
    "perhead()", "perhead(causal(),)", "<b>window(4)</b>", "window(4) \N{GREEK SMALL LETTER ALPHA} sink(1)", "sink(-0)",
    "window(\uff14)", "~" * 101 + "causal()", "(" * 101 + "causal()" + ")" * 101,
    " | ".join(f"strided({n}) & chunked({n + 65})" for n in range(2, 67)),  # 130 rules
    " | ".join(f"prefix({3 * n}) & ~band({900 - n}, {5 * n}) & ~sink({n})" for n in range(1, 40)),  # 68,040 regions
)  # fmt: skip


def leaf(rng):
    def number(low=1):
        return rng.choice([rng.randint(low, 6), rng.randint(low, 30), rng.randint(low, 5000)])

    name = rng.choice("full causal window band sink strided chunked prefix window sink strided chunked".split())
    if name in ("full", "causal"):
        return f"{name}()"
    if name == "band":
        return f"band({rng.choice([number(0), 'none'])}, {rng.choice([number(0), 'none'])})"
    return f"{name}({number()})"


def expression(rng, depth):
    draw = rng.random()
    if depth == 0 or draw < 0.25:
        return leaf(rng)
    if draw < 0.4:
        return f"~({expression(rng, depth - 1)})"
    return f"({expression(rng, depth - 1)} {rng.choice('&|')} {expression(rng, depth - 1)})"


def drawn(rng):
    text = expression(rng, rng.randint(0, 4))
    return f"perhead({text}, {expression(rng, 2)})" if rng.random() < 0.1 else text


ASK = """rows => rows.map(({text, T, far, tile}) => {
  const expr = language.parse(text);
  const grid = patterns.shares(expr, T);
  return {text: patterns.text(expr), again: patterns.text(language.parse(patterns.text(expr))),
    counts: [patterns.count(expr, T), patterns.count(expr, far)].map(String), grid,
    tiles: patterns.tiles(grid, tile).map(({q0, q1, k0, k1, state}) => [q0, q1, k0, k1, state])};
})"""


def test_two_hundred_patterns_agree(open_page, rng):
    rows = [
        {"text": drawn(rng), "T": rng.randint(1, 40), "tile": rng.randint(1, 9),
         "far": rng.choice([4096, 131072, rng.randint(1, 200_000)])}
        for _ in range(200)
    ]  # fmt: skip
    for row, found in zip(rows, open_page().evaluate(ASK, rows), strict=True):
        pattern, T = aj.parse(row["text"]), row["T"]
        assert found["text"] == found["again"] == str(pattern), row
        assert found["counts"] == [str(pattern.count(T)), str(pattern.count(row["far"]))], row
        mask = pattern.mask(T)
        share = mask.mean(axis=0) if mask.ndim == 3 else mask
        np.testing.assert_allclose(found["grid"], share, atol=1e-12, err_msg=str(row))
        q0, q1, k0, k1, states = np.array(found["tiles"]).T
        side = -(-T // row["tile"])
        assert len(states) == side * side
        agree(pattern, (q0, q1, k0, k1), states, share, row)


def agree(pattern, rects, states, share, row):
    """The page looks at every pair, so it may promise more than `tile` does: then the pairs themselves decide."""
    for *rect, state, ours in zip(*rects, states, pattern.tile(*rects), strict=True):
        if state != ours:
            q0, q1, k0, k1 = rect
            inside = share[q0:q1, k0:k1]
            assert ours == aj.Tile.PARTIAL and (inside.min() if state == 2 else 1 - inside.max()) == 1, (rect, row)


def test_counts_beyond_53_bits_are_exact(open_page):
    T = 2**27
    texts = ["causal()", "full()", "~window(4096)", "chunked(700001) | strided(5)", "strided(3) & chunked(999983) | sink(5)"]
    found = open_page().evaluate("([texts, T]) => texts.map((t) => String(patterns.count(language.parse(t), T)))", [texts, T])
    assert found == [str(aj.parse(text).count(T)) for text in texts]


def test_what_does_not_parse_is_refused_in_the_same_words(open_page):
    page = open_page()
    field = page.get_by_role("textbox", name="Pattern")
    for text in FAULTY:
        with pytest.raises(ValueError) as fault:
            aj.parse(text)
        words = page.evaluate("text => { try { language.parse(text); } catch (error) { return error.message; } }", text)
        assert words == str(fault.value)
        field.fill(text)
        shown = page.locator("#computed .fault").first.inner_text()
        assert words.splitlines()[0].removeprefix("cannot read pattern: ") in shown
        assert field.get_attribute("aria-invalid") == "true"


def test_a_count_that_would_take_too_long_is_refused_and_the_picture_stays(open_page):
    page = open_page()
    page.get_by_role("textbox", name="Pattern").fill(" | ".join(f"strided({n})" for n in range(2, 66)))
    assert "18 different strides and chunks meet; the page counts patterns of at most 10" in page.inner_text("#count-here")
    page.get_by_role("textbox", name="Pattern").fill(" | ".join(f"chunked({n})" for n in range(33, 43)))
    assert "would take the page too long" in page.inner_text("#count-long")
    page.get_by_role("textbox", name="Pattern").fill("window(4)")
    assert page.inner_text("#count-here strong") == str(aj.Window(4).count(16))


def test_the_figure_shows_what_was_typed(open_page, rng):
    page = open_page()
    field = page.get_by_role("textbox", name="Pattern")
    for _ in range(12):
        pattern, T, far = aj.parse(drawn(rng)), rng.randint(1, 128), rng.randint(1, 300_000)
        field.fill(str(pattern))
        page.get_by_label("Tokens", exact=True).fill(str(T))
        page.get_by_label("Tokens of the long text").fill(f"{far:,}")
        counts = [page.get_attribute(f"#count-{name} strong", "data-count") for name in ("here", "long")]
        assert counts == [str(pattern.count(T)), str(pattern.count(far))], str(pattern)
        row = rng.randrange(T)
        box = page.locator("#computed canvas").bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + (row + 0.5) * box["height"] / T)
        mask = pattern.mask(T)
        seen = int((mask.any(axis=0) if mask.ndim == 3 else mask)[row].sum())
        words = page.inner_text("#computed .says")
        assert words.startswith(f"Token {row} sees {seen} of {T}" if seen else f"Token {row} sees nothing"), str(pattern)


def test_the_chapters_numbers_stand_there_first(open_page):
    page = open_page()
    assert page.inner_text("#count-here").split("\n") == ["70", "scores of 136 with full causal attention (51%)"]
    assert page.inner_text("#count-long").split("\n")[:2] == ["528.6M", "of 8.6B (6.2%) at 131,072 tokens"]


def test_a_length_that_is_none_is_said_so(open_page):
    page = open_page()
    field = page.get_by_label("Tokens of the long text")
    none = "must be a whole number"
    for value, words in (("0", "at least 1"), ("-3", none), ("lots", none), ("", none), ("999999999", "up to 134,217,728")):
        field.fill(value)
        assert words in page.inner_text("#count-long .fault")
        assert field.get_attribute("aria-invalid") == "true"
        field.fill("131072")
        assert page.inner_text("#count-long strong") == "528.6M"
    page.get_by_label("Window of the long text").fill("0")
    assert "The window of the long text is 0; it must be at least 1" in page.inner_text("#count-long .fault")


def test_tiles_say_what_they_compute(open_page):
    page = open_page()
    page.get_by_role("radio", name="Tiles").check()
    needed = aj.parse("window(4) | sink(1)")
    edges = np.arange(0, 16, 4)
    states = needed.tile(edges[:, None], edges[:, None] + 4, edges[None], edges[None] + 4)
    visited = int((states > 0).sum())
    assert f"{16 * visited} computed in {visited} of 16 tiles" in page.inner_text("#count-here")


def test_each_head_has_tiles_of_its_own(open_page):
    page = open_page()
    page.get_by_label("Pattern", exact=True).fill("perhead(window(2), causal())")
    page.get_by_role("radio", name="Tiles").check()
    edges = np.arange(0, 16, 4)
    heads = aj.parse("window(2)"), aj.parse("causal()")
    states = [p.tile(edges[:, None], edges[:, None] + 4, edges[None], edges[None] + 4) for p in heads]
    visited = sum(int((found > 0).sum()) for found in states)
    assert f"{16 * visited} computed in {visited} of 32 tiles" in page.inner_text("#count-here")


def test_a_pattern_that_does_not_read_leaves_the_last_one_to_the_sliders(open_page):
    page = open_page()
    page.get_by_label("Pattern", exact=True).fill("windw(4)")
    assert "Drawn and counted is the last pattern that could be read: window(4) | sink(1)." in page.inner_text("body")
    slider = page.get_by_label("Tokens", exact=True)
    slider.focus()
    slider.press("Home")
    assert page.inner_text("#count-here strong") == "1"
    page.get_by_label("Tokens of the long text").fill("-5")
    assert "must be a whole number" in page.inner_text("#count-long .fault")
