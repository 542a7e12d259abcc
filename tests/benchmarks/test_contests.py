"""A tiny row end to end, wrong results that stop the run, and the table and chart of known numbers."""

import json

import attend
import chart
import contest
import jax
import numpy as np
import pytest
import rows
import sides
import table
import work

import attnjax as aj

TINY = work.Work("window(8)", 24, heads=2, head_dim=4)


def row(*rivals, name="tiny", of=TINY):
    return rows.Row(name, of, rivals)


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(contest, "SHORTEST", 0.0)
    monkeypatch.setattr(contest, "PAUSE", 0.0)


def test_a_tiny_row_end_to_end(short, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(attend, "torch_child", lambda *_: None)  # torch may be here or not: the same row either way
    tiny = row(rows.Rival("jax.nn", 1e-9, 1e9), rows.Rival("flex"))
    attend.main(["--rounds", "3", "--out", str(tmp_path)], rows=[tiny])
    lines = capsys.readouterr().out.splitlines()
    document = json.loads(lines[-1])
    assert document == json.loads((tmp_path / "attend.json").read_text())
    assert document["about"]["jax"] == jax.__version__ and document["about"]["threads"] >= 1
    (measured,) = document["rows"]
    jax_nn, flex = measured["rivals"]
    assert flex["absent"] == "torch was not found"
    assert 0 < jax_nn["ratio"]["min"] <= jax_nn["ratio"]["median"] <= jax_nn["ratio"]["max"]
    assert 0 <= jax_nn["error"] < 1e-6
    assert [line.split()[:2] for line in lines[2:4]] == [["tiny", "attnjax"], ["jax.nn", lines[3].split()[1]]]
    assert lines[3].endswith("reached") and not lines[3].endswith("aim reached")


@pytest.mark.parametrize("peer", ["jax.nn", "flax"])
@pytest.mark.parametrize("text", ["causal()", "window(5)", "sink(2) | window(3)", "full()"])
def test_a_backward_is_compared_in_all_four_results(peer, text):
    of = work.Work(text, 16, "backward", heads=2, head_dim=4)
    sides, errors, absent = contest.contestants(row(rows.Rival(peer), of=of), None)
    assert len(sides[1].result(0)) == 4 and errors[peer] < 1e-6 and not absent


@pytest.mark.parametrize("factor", [1.001, float("nan")])
def test_a_wrong_result_is_not_timed(monkeypatch, factor):
    real = jax.nn.dot_product_attention
    monkeypatch.setattr(jax.nn, "dot_product_attention", lambda *args, **options: factor * real(*args, **options))
    wrong = row(rows.Rival("jax.nn"), of=work.Work("window(9)", 24, heads=2, head_dim=4))
    monkeypatch.setattr(contest, "alternate", lambda *_: pytest.fail("a wrong result was timed"))
    sides.program.cache_clear()
    with pytest.raises(contest.Mismatch, match=r"jax\.nn differs from attnjax by .*nothing was timed"):
        contest.measure(wrong, None, 3)
    sides.program.cache_clear()


def test_every_side_takes_every_turn(short):
    order = []

    class Side:
        def __init__(self, name):
            self.name = name

        def seconds(self, seed, calls):
            order.append((self.name, seed))
            return 1.0

    times = contest.alternate([Side(name) for name in "abc"], 3)
    after_warming = order[3:]
    assert after_warming == [("a", 0), ("b", 0), ("c", 0), ("b", 1), ("c", 1), ("a", 1), ("c", 2), ("a", 2), ("b", 2)]
    assert times == {name: [1.0] * 3 for name in "abc"}


def test_ratios_are_of_the_same_round(monkeypatch):
    monkeypatch.setattr(contest, "contestants", lambda *_: ([], {"jax.nn": 0.0}, {}))
    monkeypatch.setattr(contest, "alternate", lambda *_: {"attnjax": [1.0, 2.0, 4.0], "jax.nn": [3.0, 4.0, 4.0]})
    (rival,) = contest.measure(row(rows.Rival("jax.nn", 2.0, 3.0)), None, 3)["rivals"]
    assert rival["ratio"] == {"median": 2.0, "min": 1.0, "max": 3.0}
    assert rival["seconds"]["median"] == 4.0


@pytest.mark.parametrize("text", sorted({row.work.pattern for row in rows.ROWS}))
def test_the_rule_written_by_hand_is_the_pattern(text):
    at = np.arange(700)
    got = work.rule(text)(at[:, None], at[None, :])
    assert (np.broadcast_to(got, (700, 700)) == aj.parse(text).mask(700)).all()


def test_the_tables_words():
    measured = {
        "row": "causal", "seconds": {"median": 0.5}, "bound": 0.25,
        "rivals": [
            {"name": "sdpa", "at_least": 0.9, "aim": 1.0, "seconds": {"median": 1.0}, "ratio": {"median": 2.0, "min": 1.5, "max": 2.5}},
            {"name": "flex", "at_least": 3.0, "aim": None, "seconds": {"median": 1.0}, "ratio": {"median": 2.0, "min": 1.5, "max": 2.5}},
            {"name": "tokamax", "at_least": None, "aim": None, "absent": "tokamax is not installed"},
        ],
    }  # fmt: skip
    lines = [line.split() for line in table.text(measured).splitlines()]
    assert lines[0] == ["causal", "attnjax", "0.5000", "bound", "0.2500", "s"]
    assert lines[1] == ["sdpa", "1.0000", "2.00", "1.50..2.50", "0.90", "1.00", "aim", "reached"]
    assert lines[2] == ["flex", "1.0000", "2.00", "1.50..2.50", "3.00", "missed"]
    assert lines[3] == ["tokamax", "tokamax", "is", "not", "installed"]
    program = {"row": "memory", "value": 40.0, "unit": "MiB", "at_most": 64, "aim": 32}
    assert table.text(program).split() == ["memory", "attnjax", "40.00", "MiB", "<=", "64.0", "32.0", "reached"]


def test_the_chart_holds_what_was_measured(tmp_path):
    def entry(T, seconds, **more):
        rival = {"name": "flex", "seconds": {"median": 2 * seconds}}
        of = {"pattern": "causal()", "T": T, **more}
        return {"work": of, "seconds": {"median": seconds}, "rivals": [rival, {"name": "sdpa", "absent": "no torch"}]}

    kept = [entry(512, 0.1), entry(1024, 0.2)]
    others = [entry(512, 9.0, dtype="bfloat16"), entry(512, 9.0, heads=1), entry(512, 9.0, direction="backward")]
    assert chart.lines(kept + others) == {"causal()": {"attnjax": {512: 0.1, 1024: 0.2}, "flex": {512: 0.2, 1024: 0.4}}}
    about = {"threads": 2, "jax": "1", "torch": "2"}
    assert "chart of causal" in chart.draw(kept, about, tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")
    assert chart.draw(others, about, tmp_path / "none.png").startswith("no chart")


@pytest.mark.parametrize(
    "words, message",
    [
        (["--rows", "nothing-here"], "fits no row"),
        (["--peers", "numpy"], "known are jax.nn"),
        (["--rounds", "0"], "at least one round"),
    ],
)
def test_what_cannot_be_asked_for(words, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        attend.main(words)
    assert message in f"{stopped.value} {capsys.readouterr().err}"


def test_names_and_options_choose_rows():
    every = attend.chosen(attend.arguments([]), rows.ROWS)
    assert len({row.name for row in every}) == len(every) == len(rows.ROWS)
    quick = attend.chosen(attend.arguments(["--quick", "--peers", "jax.nn"]), rows.ROWS)
    assert quick and all(row.work.T <= 4096 for row in quick)
    assert {rival.peer for row in quick for rival in row.rivals} == {"jax.nn", "attnjax"}
    named = attend.chosen(attend.arguments(["--rows", "window-*-backward", "causal-4096-forward"]), rows.ROWS)
    assert {"window-16384-backward", "causal-4096-forward"} <= {row.name for row in named}
    assert not any(row.name.startswith("strided") for row in named)
