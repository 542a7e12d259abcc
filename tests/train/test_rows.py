"""The distances in the rows against boolean powers of masks written out by hand."""

import ast

import numpy as np
import pytest

from train.rows import FULL, QUICK
from train.tasks import Reach, Text

ALL = QUICK + FULL
RULES = {
    "window": lambda p, j, w: p - w < j <= p,
    "sink": lambda p, j, n: j < n and j <= p,
    "strided": lambda p, j, s: (p - j) % s == 0 and j <= p,
    "chunked": lambda p, j, c: p // c == j // c and j <= p,
    "prefix": lambda p, j, n: j <= p or (p < n and j < n),
    "causal": lambda p, j: j <= p,
}


def visible(text, p, j):
    """A union of leaves such as "window(8) | sink(1)", from the rules above."""
    calls = [ast.parse(part.strip(), mode="eval").body for part in text.split("|")]
    return any(RULES[call.func.id](p, j, *(arg.value for arg in call.args)) for call in calls)


def arrivals(row):
    """Positions that information from the payload gets to, layer by layer."""
    task, reached = row.task, np.zeros(row.task.length, bool)
    reached[task.at] = True
    for letter in row.layers:
        mask = np.array([[visible(row.legend[letter], p, j) for j in range(task.length)] for p in range(task.length)])
        reached = reached | (mask.astype(int) @ reached.astype(int) > 0)
    return {p for p in range(task.length) if reached[p]}


REACH = [row for row in ALL if isinstance(row.task, Reach)]


@pytest.mark.parametrize("row", REACH, ids=lambda row: row.name)
def test_seen_and_hidden_are_what_the_layers_reach(row):
    task = row.task
    asked = set(range(task.at)) if task.ahead else set(range(task.length)) - {task.at}
    there = arrivals(row)
    seen = {int(name) + task.at for band in row.seen for name in band.names()}
    hidden = {int(name) + task.at for band in row.hidden for name in band.names()}
    assert seen == asked & there
    assert hidden == asked - there


def test_layers_of_a_window_reach_layers_times_width_less_one():
    far = {row.name: max(arrivals(row)) - row.task.at for row in REACH}
    assert [far[f"window-{n}"] for n in (1, 2, 3, 4)] == [n * (4 - 1) for n in (1, 2, 3, 4)]


def test_names_are_unique_and_labels_exist():
    assert len({row.name for row in ALL}) == len(ALL)
    for row in ALL:
        assert row.seen or row.hidden
        for band in row.seen + row.hidden:
            assert set(band.names()) <= set(row.task.labels), row.name
            assert 0 <= band.low <= band.high <= 1


def test_hidden_bands_are_chance_and_no_wider():
    for row in QUICK:
        for band in row.hidden:
            if "rest" not in band.labels:
                p = row.task.chance
                assert band.high == pytest.approx(p + 5 * np.sqrt(p * (1 - p) / 1024)), row.name


def test_the_quick_rows_are_the_ones_the_check_promises():
    assert [row.name for row in QUICK if isinstance(row.task, Reach)] == [
        "window-1", "window-2", "sink-0", "sink-5", "strided-5", "full-5", "stride", "chunked", "hybrid", "prefix",
        "prefix-causal",
    ]
    assert sum(isinstance(row.task, Text) for row in QUICK) == 5


def test_the_pattern_of_a_row_in_words():
    rows = {row.name: row for row in QUICK}
    assert rows["window-2"].pattern == "2 x window(4)"
    assert rows["hybrid"].pattern == "window(8), causal()"
