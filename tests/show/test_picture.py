"""Pictures of patterns: every box stands where the mask says, in SVG and PNG, light and dark, whole or not at all."""

import io
import os
import re
import stat
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from attnjax import show
from attnjax.patterns import Causal, Chunked, Full, PerHead, Sink, Strided, Where, Window
from attnjax.show.labels import broken, drawable, shortened, token_label
from attnjax.show.sheet import INKS, Box, Line, Picture, Words
from attnjax.show.whole import write_whole

SVG = "{http://www.w3.org/2000/svg}"


def seen(picture):
    """The filled boxes of the only grid as a bool matrix, rows from top to bottom."""
    boxes = [item for item in picture.items if isinstance(item, Box) and item.ink == "seen"]
    (ground,) = [item for item in picture.items if isinstance(item, Box) and item.ink == "text" and item.opacity == 0.06]
    rows = [item for item in picture.items if isinstance(item, Box) and item.tip]
    cell = rows[0].h
    grid = np.zeros((len(rows), round(ground.w / cell)), bool)
    for box in boxes:
        grid[int((box.y - ground.y) / cell), int((box.x - ground.x) / cell)] = True
    return grid


@pytest.mark.parametrize("pattern", [Full(), Causal(), Window(4) | Sink(1), Strided(3), Chunked(5), ~Window(2)], ids=str)
@pytest.mark.parametrize(("T", "S", "q_offset"), [(16, None, None), (1, None, None), (3, 12, 9), (12, 3, 0)])
def test_boxes_stand_where_the_mask_is_true(pattern, T, S, q_offset):
    drawn = show.picture(pattern, T, S, q_offset)
    assert (seen(drawn) == pattern.mask(T, S, q_offset=q_offset)).all()
    assert f"{pattern.count(T, S, q_offset=q_offset):,} scores" in drawn.description


def test_rows_say_whose_they_are_and_what_they_cost():
    drawn = show.picture(Window(4) | Sink(1), 16)
    tips = [item.tip for item in drawn.items if isinstance(item, Box) and item.tip]
    assert tips[0] == "query 0: 1 scores" and tips[15] == "query 15: 5 scores" and len(tips) == 16
    assert drawn.title == "window(4) | sink(1)"
    assert "70 scores; causal() has 136, full() 256" in drawn.description
    positions = [item.text for item in show.picture(Causal(), 4, 10, 6).items if isinstance(item, Words)]
    assert {"6", "7", "8", "9", "query", "key"} <= set(positions)


def test_long_patterns_have_at_most_64_cells_a_side():
    drawn = show.picture(Window(4096) | Sink(1), 131072)
    assert seen(drawn).shape == (64, 64)
    assert "528,611,328 scores" in drawn.description
    assert "one cell is 2,048 x 2,048 pairs" in drawn.description
    assert len(drawn.svg()) < 60_000


def test_heads_have_a_panel_for_each_different_pattern():
    heads = PerHead((Window(2), Causal(), Window(2)))
    drawn = show.picture(heads, 8)
    words = [item.text for item in drawn.items if isinstance(item, Words)]
    assert "heads 0, 2" in words and "head 1" in words
    assert f"window(2): {Window(2).count(8)}" in words and "causal(): 36" in words
    boxes = [item for item in drawn.items if isinstance(item, Box) and item.ink == "seen"]
    assert len(boxes) == Window(2).count(8) + 36


def test_many_heads_say_how_many_are_left_out():
    drawn = show.picture(PerHead([Window(w) for w in range(1, 21)]), 8)
    assert "20 heads with 20 different patterns, the first 12 are drawn" in drawn.description
    panels = [item.text for item in drawn.items if isinstance(item, Words) and item.text.startswith("head ")]
    assert panels == [f"head {n}" for n in range(12)]
    said = show.picture(PerHead([Window(2), Causal(), Window(2)]), 64).description
    assert "3 heads with 2 different patterns, one panel each. one cell is 2 x 2 pairs; the darker" in said


def test_no_queries_is_a_picture_without_cells():
    assert show.picture(PerHead((Causal(),)), 0).svg()
    drawn = show.picture(Causal(), 0)
    assert not [item for item in drawn.items if isinstance(item, Box)] and "0 scores" in drawn.description


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(TypeError, match=r"a str cannot be drawn: give a pattern such as Window\(4\)"):
        show.picture("window(4)", 16)
    with pytest.raises(TypeError, match="a pattern has no length: say how many queries"):
        show.picture(Causal())
    with pytest.raises(TypeError, match="a pattern has no length"):
        show.text(Causal())
    with pytest.raises(ValueError, match="q_offset"):
        show.picture(Causal(), 4, 8)


# -- SVG --------------------------------------------------------------------------------------------------------


def test_an_svg_has_a_name_a_description_and_both_themes():
    drawn = show.picture(Window(4) | Sink(1), 16)
    root = ElementTree.fromstring(drawn.svg())
    title, desc = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert root.get("role") == "img"
    assert root.get("aria-labelledby").split() == [title.get("id"), desc.get("id")]
    assert (title.text, desc.text) == (drawn.title, drawn.description)
    assert "prefers-color-scheme:dark" in root.find(f"{SVG}style").text
    assert root.get("fill") == "currentColor"


def test_inside_a_page_an_svg_takes_the_pages_colours_and_adds_no_rule_to_it():
    inline = show.picture(Causal(), 4).svg(alone=False)
    assert "<style" not in inline and INKS["text"] not in inline and "currentColor" in inline
    assert show.picture(Causal(), 4)._repr_html_() == inline


def test_two_pictures_on_a_page_have_names_of_their_own():
    ids = [re.search(r'aria-labelledby="(\w+)', show.picture(p, 4).svg())[1] for p in (Causal(), Full())]
    assert ids[0] != ids[1]


EVIL = "<script>alert('x')</script> & \"q\" \x00\ud800 ]]>"


def test_text_from_outside_is_escaped_and_stays_well_formed():
    drawn = Picture(EVIL, EVIL, 10, 10, (Words(0, 0, EVIL), Box(0, 0, 1, 1, tip=EVIL), Line(((0, 0), (1, 1)), tip=EVIL)))
    text = drawn.svg()
    assert "<script" not in text
    root = ElementTree.fromstring(text.encode())
    assert root.find(f"{SVG}title").text == root.find(f"{SVG}text").text == drawable(EVIL)
    assert {node.text for node in root.iter(f"{SVG}title")} == {drawable(EVIL)}


def test_a_title_of_ones_own_is_drawn():
    drawn = show.picture(Causal(), 4, title="<mine>")
    assert drawn.title == "<mine>" and "&lt;mine&gt;" in drawn.svg()


def test_a_rule_with_markup_in_its_name_is_escaped():
    def rule(q, k):
        return k <= q

    rule.__name__ = rule.__qualname__ = "<b>rule</b>"
    assert "<b>" not in show.picture(Where(rule), 4).svg()


# -- files ------------------------------------------------------------------------------------------------------


def pixels(data):
    from matplotlib import image

    return image.imread(io.BytesIO(data))


def test_a_png_shows_the_same_boxes(tmp_path):
    drawn = show.picture(Window(2), 4)
    shown = pixels(drawn.save(tmp_path / "p.png").read_bytes())
    scale = shown.shape[1] / drawn.width
    assert shown.shape[0] == pytest.approx(drawn.height * scale, abs=1)
    assert (shown[0, 0, :3] == 1).all()
    for box in (item for item in drawn.items if isinstance(item, Box) and item.ink == "seen"):
        red, _, blue, _ = shown[int((box.y + box.h / 2) * scale), int((box.x + box.w / 2) * scale)]
        assert blue - red > 0.3


def test_png_draws_dollars_and_carets_as_they_are(tmp_path):
    drawn = Picture("t", "d", 60, 20, (Words(2, 12, r"$\frac{$ ^_ $x$"), Line(((0, 0), (9, 9)), dotted=True)))
    assert drawn.save(tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"


def test_the_ending_picks_the_format(tmp_path):
    drawn = show.picture(Causal(), 4)
    assert drawn.save(tmp_path / "p.SVG").read_text().startswith("<svg")
    for name, said in (("p.pdf", r"'\.pdf'"), ("p", "'nothing'")):
        with pytest.raises(ValueError, match=f"ends in {said}: pictures are written as .svg or .png"):
            drawn.save(tmp_path / name)
    with pytest.raises(ValueError, match=r"must end in \.svg: show\.svg writes \.svg, show\.png writes \.png"):
        show.svg(Causal(), 4, tmp_path / "p.png")
    with pytest.raises(TypeError, match=r"say where to write: path='pattern\.png'"):
        show.png(Causal(), 4)
    assert show.svg(Causal(), 4, tmp_path / "q.svg") == tmp_path / "q.svg"
    assert sorted(os.listdir(tmp_path)) == ["p.SVG", "q.svg"]


def test_a_file_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "p.svg"
    path.write_text("old")

    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        show.svg(Causal(), 4, path)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["p.svg"]
    monkeypatch.undo()
    show.svg(Causal(), 4, path)
    assert path.read_text().startswith("<svg") and os.listdir(tmp_path) == ["p.svg"]


def test_files_are_as_readable_as_others_and_errors_name_the_file_asked_for(tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("")
    assert stat.S_IMODE(write_whole(tmp_path / "new", b"x").stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    with pytest.raises(FileNotFoundError) as fault:
        write_whole(tmp_path / "none" / "p.svg", "x")
    assert fault.value.filename == str(tmp_path / "none" / "p.svg")
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path, "x")


# -- words ------------------------------------------------------------------------------------------------------


def test_tokens_are_drawn_so_that_they_can_be_told_apart():
    assert token_label(" cat") == "·cat" and token_label("\n") == "⏎" and token_label("\t\tx ") == "⇥⇥x·"
    assert token_label("") == "" and token_label("a b") == "a b"
    assert token_label("a" * 40) == "a" * 13 + "…"
    assert token_label("\x1b[31m") == "�[31m"
    assert shortened("abc", 3) == "abc" and shortened("abcd", 3) == "ab…"
    assert broken("one two three", 8) == ["one two", "three"] and broken("x" * 20, 8) == ["x" * 20]
