"""Curves: points stand where steps and values say, from a run's own files or from numbers."""

import json
import os
import re
import shutil

import numpy as np
import pytest

from attnjax import show
from attnjax.show.of_curve import HIGH, LEFT, TOP, WIDE, _ticks
from attnjax.show.sheet import Box, Line, Words


def run(folder, lines, record=None):
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if record is not None:
        (folder / "run.json").write_text(json.dumps(record))
    return folder


LINES = [
    {"step": 10, "loss": 4.0, "learning_rate": 0.1},
    {"step": 20, "loss": 3.0, "validation": 3.5},
    {"step": 30, "loss": 2.0},
]


def strokes(picture, ink):
    return [item.points for item in picture.items if isinstance(item, Line) and item.ink == ink and len(item.points) > 2]


def test_points_stand_where_steps_and_values_say():
    drawn = show.curve({"loss": ([0, 5, 10], [4.0, 1.0, 2.0])})
    (points,) = strokes(drawn, "seen")
    expected = [(LEFT, TOP), (LEFT + WIDE / 2, TOP + HIGH), (LEFT + WIDE, TOP + HIGH * 2 / 3)]
    assert np.abs(np.array(points) - expected).max() < 1e-9
    assert drawn.description == "loss: 4 at step 0, 2 at step 10"


def test_a_runs_folder_is_read_with_its_baselines(tmp_path):
    folder = run(tmp_path / "a", LINES, {"baselines": {"order 1": 3.25}})
    drawn = show.curve(folder)
    assert drawn.description == "loss: 4 at step 10, 2 at step 30; validation: 3.5 at step 20, 3.5 at step 20"
    assert "byte counts, order 1: 3.25" in [item.text for item in drawn.items if isinstance(item, Words)]
    (dotted,) = [item for item in drawn.items if isinstance(item, Line) and item.dotted]
    assert dotted.points[0][1] == pytest.approx(TOP + HIGH * (4 - 3.25) / 2)
    assert show.curve(folder / "metrics.jsonl").description == drawn.description


def test_runs_side_by_side_carry_their_names(tmp_path):
    a, b = (run(tmp_path / name, LINES) for name in "ab")
    assert show.curve(a, b, keys=("loss",)).title == "a loss, b loss"
    assert show.curve(a, b, keys=("loss",), title="mine").title == "mine"


def test_what_is_no_number_leaves_a_gap():
    drawn = show.curve({"loss": (range(7), [3, 2, 1, float("nan"), 1, 2, 3])})
    assert len(strokes(drawn, "seen")) == 2
    assert len([item for item in drawn.items if isinstance(item, Box) and item.tip]) == 6


def test_a_flat_curve_and_a_single_point_are_drawn():
    assert show.curve({"loss": ([0, 1, 2], [2.0, 2.0, 2.0])}).svg()
    assert show.curve({"loss": ([3], [2.0])}).description == "loss: 2 at step 3, 2 at step 3"


def test_long_runs_are_thinned_and_keep_their_ends():
    (points,) = strokes(show.curve({"loss": (np.arange(100_000), np.linspace(4, 1, 100_000))}), "seen")
    assert len(points) <= 800 and (points[0][0], points[-1][0]) == (LEFT, LEFT + WIDE)


def test_ticks_are_round_numbers_inside_the_range():
    assert _ticks(0.0, 6.0) == [0, 1, 2, 3, 4, 5, 6]
    assert _ticks(1.13, 4.56) == [2, 3, 4]
    assert _ticks(0.0, 750.0) == [0, 200, 400, 600]


def test_half_a_last_line_is_what_a_kill_leaves(tmp_path):
    folder = run(tmp_path / "a", LINES)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 40, "lo')
    assert "2 at step 30" in show.curve(folder).description


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no .*none.*; `python -m train run CONFIG --out FOLDER`"):
        show.curve(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="metrics.jsonl"):
        show.curve(tmp_path / "empty")
    folder = run(tmp_path / "a", LINES)
    with pytest.raises(ValueError, match=r"has no perplexity; it has learning_rate, loss, validation: say with keys="):
        show.curve(folder, keys=("perplexity",))
    (folder / "metrics.jsonl").write_text('nonsense\n{"step": 1, "loss": 2}\n')
    with pytest.raises(ValueError, match="line 1, is not JSON"):
        show.curve(folder)
    (folder / "metrics.jsonl").write_text('[1]\n{"step": 1, "loss": 2}\n')
    with pytest.raises(ValueError, match="line 1, is no record with a step"):
        show.curve(folder)
    (folder / "metrics.jsonl").write_text('{"step": 1, "loss": "high"}\n')
    with pytest.raises(ValueError, match="loss of step 1 is 'high', not a number"):
        show.curve(folder)


DEEP, LONG = "[" * 100_000, "9" * 5000
DAMAGE = [
    ("metrics.jsonl", "1\n", "line 1, is no record with a step"),
    ("metrics.jsonl", "{}\n", "line 1, is no record with a step"),
    ("metrics.jsonl", "null\n", "line 1, is no record with a step"),
    ("metrics.jsonl", '"step"\n', "line 1, is no record with a step"),
    ("metrics.jsonl", "[]", "line 1, is no record with a step"),
    ("metrics.jsonl", "nonsense", "line 1, is not JSON"),
    ("metrics.jsonl", '{"step": 1, "lo\n', "line 1, is not JSON"),
    ("metrics.jsonl", '{"step": 1, "loss": 2}\n\n', "line 2, is not JSON"),
    *(("metrics.jsonl", f'{{"step": {step}, "loss": 2}}\n', "line 1, is no record with a step")
      for step in ("true", "null", '"1"', "[1]", "{}", "NaN", "Infinity", "1e999", "9" * 400)),
    ("metrics.jsonl", f'{{"step": {LONG}, "loss": 2}}', "line 1, is not JSON"),
    ("metrics.jsonl", f'{{"step": 1, "loss": {DEEP}', "line 1, is nested too deeply"),
    *(("metrics.jsonl", f'{{"step": 1, "loss": {loss}}}\n', "loss of step 1 is")
      for loss in ("true", "null", '"high"', "[1]", "{}", "9" * 400)),
    ("metrics.jsonl", b"\xff\xfe\x00", "is no text"),
    ("metrics.jsonl", "", "has no loss or validation; it has no line"),
    ("metrics.jsonl", os.mkdir, "is not a file"),
    ("metrics.jsonl", os.mkfifo, "is not a file"),
    ("run.json", b"\xff", "is no text"),
    ("run.json", "", "is not JSON"),
    ("run.json", DEEP, "is nested too deeply"),
    ("run.json", LONG, "is not JSON"),
    *(("run.json", text, "is no record of a run") for text in ("1", "[]", "null", '"a"', "true")),
    *(("run.json", f'{{"baselines": {value}}}', "its baselines are no numbers")
      for value in ("1", "null", "[1]", '"a"', '{"a": "1"}', '{"a": null}', '{"a": true}', '{"a": NaN}', '{"a": 1e999}')),
    ("run.json", os.mkdir, "is not a file"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "message"), DAMAGE)
def test_a_damaged_run_names_the_file(tmp_path, name, content, message):
    folder = run(tmp_path / "a", LINES, {"baselines": {"order 1": 3.25}})
    (folder / name).unlink()
    if callable(content):
        content(folder / name)
    else:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=f"{re.escape(str(folder / name))}.*{message}") as refused:
        show.curve(folder)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 400


def test_links_are_followed_and_broken_ones_are_missing_files(tmp_path):
    folder = run(tmp_path / "a", LINES, {"baselines": {"order 1": 3.25}})
    for name in ("metrics.jsonl", "run.json"):
        shutil.move(folder / name, tmp_path / name)
        (folder / name).symlink_to(tmp_path / name)
    assert "2 at step 30" in show.curve(folder).description
    (tmp_path / "run.json").unlink()
    assert "2 at step 30" in show.curve(folder).description
    (tmp_path / "metrics.jsonl").unlink()
    with pytest.raises(FileNotFoundError, match="there is no .*metrics.jsonl"):
        show.curve(folder)
    with pytest.raises(ValueError, match="cannot be read .File name too long"):
        show.curve(tmp_path / ("x" * 5000))


def test_numbers_without_bounds_are_drawn_or_refused():
    for steps, values in [([1e300], [1e18]), ([0, 1], [0, 1e-320]), ([0, 1], [1e18, np.nextafter(1e18, 2e18)])]:
        assert "nan" not in show.curve({"loss": (steps, values)}).svg()
    with pytest.raises(ValueError, match=r"numbers from -1e\+308 to 1e\+308 are too far apart to draw"):
        show.curve({"loss": ([0, 1], [1e308, -1e308])})
    with pytest.raises(ValueError, match="'loss' has the step inf; steps are finite numbers"):
        show.curve({"loss": ([float("inf"), 1], [1, 2])})
    for wrong in (["a"], [{}], [10**400], [1j]):
        with pytest.raises(ValueError, match="'loss' has steps or values that are no numbers"):
            show.curve({"loss": ([1], wrong)})


def test_numbers_that_make_no_curve_are_refused():
    with pytest.raises(ValueError, match="there is no curve to draw"):
        show.curve()
    with pytest.raises(ValueError, match="there is no curve to draw"):
        show.curve({"loss": ([1], [float("nan")])})
    with pytest.raises(ValueError, match=r"'loss' has steps \(2,\) and values \(3,\)"):
        show.curve({"loss": ([1, 2], [1, 2, 3])})
    with pytest.raises(ValueError, match=r"'loss' must be a pair \(steps, values\)"):
        show.curve({"loss": [1, 2, 3]})
    with pytest.raises(TypeError, match="a run is a folder, a metrics.jsonl or a mapping"):
        show.curve(3)


def test_names_are_escaped():
    assert "<b>" not in show.curve({"<b>": ([1, 2], [1, 2])}).svg()


def test_curves_are_written_as_svg_and_png(tmp_path):
    drawn = show.curve({"loss": ([0, 5, 10], [4.0, 1.0, 2.0])})
    assert drawn.save(tmp_path / "c.svg").read_text().startswith("<svg")
    assert drawn.save(tmp_path / "c.png").read_bytes()[:4] == b"\x89PNG"
