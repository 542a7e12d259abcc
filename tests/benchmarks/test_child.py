"""The pipe to the torch process, with a stand-in at the other end."""

import pathlib
import sys

import child
import contest
import numpy as np
import pytest
import rows
import work

STAND_IN = pathlib.Path(__file__).with_name("stand_in_child.py")
TINY = work.Work("sink(2) | window(5)", 20, heads=2, head_dim=4)


@pytest.fixture
def other(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(child.PROGRAM.parent))
    with child.closing(child.Child(sys.executable, 3, STAND_IN)) as process:
        yield process


def test_one_process_answers_for_the_whole_run(other):
    assert other.about["threads"] == 3
    side = child.ChildSide("sdpa", other, "sdpa", TINY)
    assert side.seconds(0, 4) == 2.0
    first, second, again = (side.result(seed)[0] for seed in (0, 1, 0))
    assert first.shape == (1, 20, 2, 4) and not np.array_equal(first, second) and np.array_equal(first, again)


def test_results_across_the_pipe_are_compared(other):
    right = rows.Row("tiny", TINY, (rows.Rival("sdpa"),))
    _, errors, _ = contest.contestants(right, other)
    assert errors["sdpa"] < 1e-6
    wrong = rows.Row("tiny", TINY, (rows.Rival("flex"),))
    with pytest.raises(contest.Mismatch, match="flex differs"):
        contest.contestants(wrong, other)


def test_what_a_peer_cannot_do_is_said(other):
    backward = rows.Row("tiny", work.Work("causal()", 16, "backward", heads=2, head_dim=4), (rows.Rival("flex"),))
    sides, _, absent = contest.contestants(backward, other)
    assert absent == {"flex": "only forwards here"} and [side.name for side in sides] == ["attnjax"]


def test_a_process_that_ends_stops_the_run(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(child.PROGRAM.parent))
    process = child.Child(sys.executable, 1, STAND_IN)
    with pytest.raises(SystemExit, match="ended with status 7"):
        child.ChildSide("sdpa", process, "sdpa", work.Work("causal()", 13)).seconds(0, 1)
    process.close()
