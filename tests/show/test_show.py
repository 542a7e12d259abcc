"""Pictures say what the pattern says, at any length, with or without a display."""

import dataclasses
import sys

import numpy as np
import pytest

from attnjax import show
from attnjax.patterns import Causal, Chunked, Full, Pattern, PerHead, Sink, Strided, Where, Window
from attnjax.show.cells import MOST_PAIRS, cells


def grid_lines(drawn: str) -> list[str]:
    """The cells of each row, without its label and its number of scores."""
    return [line.split()[1] for line in drawn.splitlines()[4:]]


def test_a_short_pattern_is_drawn_pair_by_pair():
    assert show.text(Window(3), 4).splitlines() == [
        "window(3): 4 queries (rows) x 4 keys (columns)",
        "9 scores; causal() has 10, full() 16",
        "█ visible  · hidden",
        "query 0         scores",
        "    0 ██······  1",
        "    1 ████····  2",
        "    2 ██████··  3",
        "    3 ··██████  3",
    ]


def test_the_chapters_numbers_stand_in_the_picture():
    assert "70 scores; causal() has 136, full() 256" in show.text(Window(4) | Sink(1), 16)
    long = show.text(Window(4096) | Sink(1), 131072)
    assert "528,611,328 scores; causal() has 8,590,000,128, full() 17,179,869,184" in long


def test_rows_are_labelled_with_positions_when_there_are_fewer_queries_than_keys():
    """Case V04: a rectangular call."""
    rows = show.text(Causal(), 4, 10, q_offset=6).splitlines()[4:]
    assert [row.split()[0] for row in rows] == ["6", "7", "8", "9"]
    assert rows[0].split()[1] == "██" * 7 + "··" * 3  # the first query sees keys up to its own position


def test_long_patterns_are_small_quick_pictures(monkeypatch):
    """Case V04: a long call, aggregated."""
    asked, mask = [], Pattern.mask
    monkeypatch.setattr(Pattern, "mask", lambda p, T, S, q_offset: asked.append(T * S) or mask(p, T, S, q_offset))
    lines = grid_lines(show.text(Window(3), 4096))
    assert sum(asked) == 4096**2 + 1 and max(asked) == 64 * 4096  # each pair once, 64 queries at a time
    assert len(lines) == 64 and {len(line) for line in lines} == {64}
    for row, line in enumerate(lines):
        assert {column for column, cell in enumerate(line) if cell != "·"} == {row, max(row - 1, 0)}


PATTERNS = Full(), Causal(), Window(5) | Sink(2), Strided(3), Chunked(7), ~Window(4)
LENGTHS = (70, 70, None), (65, 129, 30), (3, 200, 197), (200, 3, 0), (1, 1, -1)


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize(("T", "S", "q_offset"), LENGTHS)
def test_shares_are_those_of_the_mask(pattern, T, S, q_offset):
    grid = cells(pattern, T, S, q_offset, 16)
    mask = pattern.mask(T, S, q_offset=q_offset)
    assert max(grid.share.shape) <= 16
    for row in range(grid.share.shape[0]):
        for column in range(grid.share.shape[1]):
            part = mask[row * grid.size :, column * grid.size :][: grid.size, : grid.size]
            assert abs(grid.share[row, column] - part.mean()) < 1e-12
    assert sum(grid.row_scores) == grid.scores == mask.sum()


def test_above_the_limit_tiles_are_asked_and_agree_with_the_mask():
    pattern, T = Window(700) | Sink(3), 4099
    assert T * T > MOST_PAIRS
    grid = cells(pattern, T, None, None, 64)
    mask = pattern.mask(T)
    assert not grid.exact and grid.row_scores is None
    for row in range(grid.share.shape[0]):
        for column in range(grid.share.shape[1]):
            part = mask[row * grid.size :, column * grid.size :][: grid.size, : grid.size]
            assert grid.share[row, column] == (1 if part.all() else 0.5 if part.any() else 0)


def test_heads_are_drawn_together_and_said_so():
    drawn = show.text(PerHead((Window(1), Causal())), 3)
    assert "one cell is 1 x 1 pairs, 2 heads together" in drawn
    assert "9 scores; causal() has 12, full() 18" in drawn
    assert grid_lines(drawn) == ["██····", "▒▒██··", "▒▒▒▒██"]


def test_a_rule_of_ones_own_is_drawn():
    even = Where(_even_keys)
    assert grid_lines(show.text(even & Causal(), 4)) == ["██······", "██······", "██··██··", "██··██··"]


def _even_keys(q, k):
    return (k % 2 == 0) & (q == q)


def test_anything_that_answers_can_be_drawn():
    @dataclasses.dataclass
    class Diagonal:
        def mask(self, T, S=None, q_offset=None):
            return np.eye(T, S or T, k=q_offset or 0, dtype=bool)

        def count(self, T, S=None, q_offset=None):
            return int(self.mask(T, S, q_offset).sum())

        def tile(self, q0, q1, k0, k1):
            raise AssertionError("short patterns need no tiles")

        def __str__(self):
            return "diagonal"

    assert grid_lines(show.text(Diagonal(), 3)) == ["██····", "··██··", "····██"]


def test_no_queries_or_no_keys_is_a_picture_without_cells():
    assert show.text(Causal(), 0).splitlines()[1] == "0 scores; causal() has 0, full() 0"
    assert "0 scores" in show.text(Causal(), 0, 5, q_offset=0)
    assert "0 scores" in show.text(Causal(), 3, 0, q_offset=0)


def test_a_missing_offset_is_refused_with_both_conventions():
    with pytest.raises(ValueError, match=r"q_offset=6.*q_offset=0|q_offset"):
        show.text(Causal(), 4, 10)
    assert "full()" in show.text(Full(), 4, 10)
    with pytest.raises(TypeError, match="T"):
        show.text(Causal(), 4.0)


def test_png_is_written_without_a_display(tmp_path, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    for pattern, lengths in ((Window(4) | Sink(1), (16,)), (Window(300), (131072,)), (Causal(), (0,))):
        path = show.png(pattern, *lengths, tmp_path / "pattern.png")
        assert path == tmp_path / "pattern.png" and path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_drawing_is_dark_where_pairs_are_visible_and_upright():
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    show.draw(axes, Window(2), 3, 5, q_offset=2, title="two keys")
    (image,) = axes.images
    assert image.get_array().tolist() == [[0, 1, 1, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 1, 1]]
    assert (axes.get_xlim(), axes.get_ylim()) == ((-0.5, 4.5), (4.5, 1.5))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("key", "query")
    assert axes.get_title() == "two keys\n6 scores; causal() has 12, full() 15"


def test_without_matplotlib_png_names_the_extra_and_text_still_draws(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'attnjax\[show\]'"):
        show.png(Causal(), 4, tmp_path / "pattern.png")
    assert not (tmp_path / "pattern.png").exists()
    assert "10 scores" in show.text(Causal(), 4)


def test_the_chapters_head_looks_where_its_comment_says():
    chapter = show.CHAPTER
    scores = (chapter.x @ chapter.wq) @ (chapter.x @ chapter.wk).T / 2
    weights = np.exp(scores) * np.tri(4)
    weights /= weights.sum(1, keepdims=True)
    assert chapter.tokens == ("The", " cat", " sat", " down")
    assert [round(w, 2) for w in (weights[2, 1], weights[3, 2])] == [0.70, 0.60]
    for array in (chapter.x, chapter.wq, chapter.wk, chapter.wv):
        assert array.dtype == np.float64 and array.shape == (4, 4) and not array.flags.writeable
        assert (array == np.round(array, 1)).all()
