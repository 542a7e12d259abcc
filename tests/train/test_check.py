"""The check itself: selection, verdicts, exit codes, report; and that it notices faults."""

import dataclasses
import json

import jax
import pytest

from attnjax import models
from train import check, learn, report
from train.__main__ import main
from train.bands import Band, reached, unreached
from train.breaks import BREAKS
from train.rows import FULL, QUICK, Row
from train.tasks import Reach

TINY = Row("tiny", "a window of 3 sees 2 tokens back", Reach(length=8), "L", {"L": "window(3)"}, 200,
           (reached("1..2"),), (unreached("3..7", 1 / 16),))


def test_selection():
    assert check.select(False, [], None, None) == list(QUICK)
    assert [(row.name, row.seed) for row in check.select(False, ["stride"], None, 7)] == [("stride", 7)]
    full = check.select(True, [], None, None)
    assert len(full) == 3 * len(QUICK + FULL) and [row.seed for row in full[:3]] == [0, 1, 2]


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(ValueError, match="unknown row 'windw-1'; did you mean 'window-1'"):
        check.select(False, ["windw-1"], None, None)
    with pytest.raises(ValueError, match=r"unknown break 'window\+2'; did you mean 'window\+1'"):
        check.select(False, [], "window+2", None)


def test_the_command_line_says_what_is_missing(capsys):
    assert main(["check", "--row", "sink-9"]) == 2
    assert "unknown row 'sink-9'" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main([])
    assert stopped.value.code == 2 and "{check,run,resume,sample}" in capsys.readouterr().err
    assert main(["check", "--row", "list"]) == 0
    said = capsys.readouterr().out
    assert all(row.name in said for row in QUICK + FULL)


def outcome(row, values):
    reasons = tuple(learn.contradictions(row, values))
    return learn.Outcome(row.name, row.seed, not reasons, 20, 1.0, 0.5, values, reasons)


GOOD = {"0": float("nan")} | {str(d): 1.0 if d < 3 else 0.06 for d in range(1, 8)}


def test_contradictions_say_which_value_left_which_band():
    assert list(learn.contradictions(TINY, GOOD)) == []
    (missed,) = learn.contradictions(TINY, GOOD | {"2": 0.4})
    assert missed == "not learned: 0.400 at 2, allowed [0.950, 1.000] for 1..2"
    (leaked,) = learn.contradictions(TINY, GOOD | {"3": 0.4})
    assert leaked == "not hidden: 0.400 at 3, allowed [0.000, 0.100] for 3..7"


def test_the_report_holds_every_value_and_the_picture(tmp_path):
    values = {k: v for k, v in GOOD.items() if k != "0"}
    rows = [TINY, dataclasses.replace(TINY, name="tiny-2")]
    outcomes = [outcome(rows[0], values), outcome(rows[1], values | {"7": 0.9})]
    report.write(tmp_path, rows, outcomes, 3.0, None)
    record = json.loads((tmp_path / "report.json").read_text())
    assert [row["inside"] for row in record["rows"]] == [True, False]
    assert record["rows"][1]["values"]["7"] == 0.9 and record["versions"]["jax"] and "cpu" in record["device"]
    text = (tmp_path / "report.md").read_text()
    assert "1 of 2 rows inside" in text and "**contradicts**" in text and "0.900 at 7" in text
    assert (tmp_path / "accuracy.png").read_bytes()[:4] == b"\x89PNG"


def test_without_matplotlib_a_line_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(report.importlib.util, "find_spec", lambda name: None)
    values = {k: v for k, v in GOOD.items() if k != "0"}
    report.write(tmp_path, [TINY], [outcome(TINY, values)], 3.0, None)
    assert "accuracy.png was not written" in capsys.readouterr().out and not (tmp_path / "accuracy.png").exists()


@pytest.mark.slow
def test_a_row_stops_early_inside_its_bands_and_a_wrong_one_exits_with_1(tmp_path, capsys):
    done = learn.learn(TINY)
    assert done.inside and done.steps < TINY.steps and done.compile_seconds < done.seconds
    again = learn.learn(TINY)
    assert (again.steps, again.values) == (done.steps, done.values)
    assert check.check([TINY], tmp_path) == 0
    wrong = dataclasses.replace(TINY, seen=(reached("1..3"),), hidden=(), steps=60)
    assert check.check([wrong], tmp_path) == 1
    assert "tiny (seed 0) contradicts its bands: not learned" in capsys.readouterr().out


@pytest.mark.slow
def test_rows_run_in_two_processes(tmp_path):
    rows = [dataclasses.replace(TINY, keep=True),
            dataclasses.replace(TINY, name="tiny-2", seed=1, hidden=(Band("3..7", 0.5, 1.0),))]
    assert check.check(rows, tmp_path) == 1
    assert [p.name for p in (tmp_path / "models").iterdir()] == ["tiny"]
    kept = models.load(tmp_path / "models" / "tiny")
    measured = learn.rates(TINY.task.measure(kept, TINY.task.batch(jax.random.key(9), 256)), TINY.task.labels)
    assert all(band.holds(measured, 0.05) for band in TINY.seen)
    record = json.loads((tmp_path / "report.json").read_text())
    assert [(row["name"], row["inside"]) for row in record["rows"]] == [("tiny", True), ("tiny-2", False)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", BREAKS)
def test_a_broken_pattern_exits_with_1_and_names_every_row(kind, tmp_path, capsys):
    assert main(["check", "--break", kind, "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    for name in BREAKS[kind].rows:
        assert f"{name} (seed 0) contradicts its bands" in said
