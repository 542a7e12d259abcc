"""The table of `make aot` without its compilers: rows, limits, and what stands where a row fails."""

import json
import subprocess

import numpy as np
import pytest

from attnjax.walks import Tiles
from tools import aot, aot_rows, targets

ROW = aot_rows.Row("sm_90", "window(1024)", "forward", most=10, mib=20)
WITHIN = {"row": ROW.name, "launches": 10, "temporaries_mib": 20.0, "seconds": 1.0}


@pytest.fixture
def run(monkeypatch, capsys):
    """run(found, *words) -> (status, printed lines), each row giving `found`."""

    def of(found, *words):
        monkeypatch.setattr(aot, "in_a_process", lambda row: dict(found))
        monkeypatch.setattr(aot.importlib.util, "find_spec", lambda name: name)
        monkeypatch.setattr(aot.importlib.metadata, "version", lambda name: "1.0")
        monkeypatch.setattr(aot_rows, "ROWS", (ROW,))
        return aot.main(list(words)), capsys.readouterr().out.splitlines()

    return of


def test_a_row_within_its_limits(run):
    status, lines = run(WITHIN)
    assert status == 0 and lines[0].split()[:5] == [ROW.name, "10", "launches", "(at", "most"]
    assert json.loads(lines[-1]) == {"compilers": dict.fromkeys(aot.COMPILERS, "1.0"), "rows": [WITHIN], "wrong": []}


@pytest.mark.parametrize(("more", "sentence"), [
    ({"launches": 11}, "sm_90-window(1024)-forward: 11 launches, at most 10"),
    ({"temporaries_mib": 20.5}, "sm_90-window(1024)-forward: 20.5 MiB of temporaries, at most 20"),
])  # fmt: skip
def test_a_row_over_a_limit_says_which(run, more, sentence):
    status, lines = run(WITHIN | more)
    assert status == 1 and f"TOO MUCH OR BROKEN  {sentence}" in lines
    assert json.loads(lines[-1])["wrong"] == [sentence]


def test_cycles_and_kernels_of_a_tpu():
    found = {"row": ROW.name, "mega_cycles": 12.5, "kernels": 3, "temporaries_mib": 1.0, "seconds": 2.0}
    assert "12.50 M cycles + 3 kernels" in aot.line(ROW, found)
    assert aot_rows.over(ROW, found) == ["sm_90-window(1024)-forward: 12.5 million cycles, at most 10"]


def test_a_compiler_that_crashes_takes_one_row(run, monkeypatch):
    crashed = subprocess.CompletedProcess([], -11, "", "one\ntwo\nthree\nfour\nfive\nsix\n")
    monkeypatch.setattr(aot.subprocess, "run", lambda *args, **options: crashed)
    found = aot.in_a_process(ROW)
    assert found["error"] == "the compiler ended with status -11: two\nthree\nfour\nfive\nsix"
    status, lines = run(found)
    assert status == 1 and lines[0].startswith(f"{ROW.name:<30}the compiler ended with status -11")


def test_a_compiler_that_does_not_end_is_stopped(monkeypatch):
    def late(command, timeout, **options):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(aot.subprocess, "run", late)
    assert aot.in_a_process(ROW)["error"] == "the compiler took over 600 s: "


def test_rows_are_chosen_by_name(capsys):
    assert [row.name for row in aot.arguments(["--rows", "v5e-causal*"]).chosen] == ["v5e-causal()-forward", "v5e-causal()-both"]
    quick = aot.arguments(["--quick"]).chosen
    assert 0 < len(quick) < len(aot_rows.ROWS) and {row.target for row in quick} == {"sm_90", "v5e"}
    with pytest.raises(SystemExit):
        aot.arguments(["--rows", "h100-*"])
    assert "no row matches ['h100-*']; there are: sm_90-window(1024)-forward, " in capsys.readouterr().err


def test_without_the_compilers_it_says_where_they_are(monkeypatch):
    monkeypatch.setattr(aot.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"has no libtpu and no jax_cuda13_plugin; `make aot` sets up \.venv-aot"):
        aot.main([])


def test_rows_together_wait_for_the_longest():
    """Rows of 1, 2, 3 FULL and 1, 1, 0 PARTIAL tiles."""
    tiles = Tiles(8, np.arange(8, dtype=np.int32), np.array([0, 2, 5, 8]), np.array([1, 4, 8]), None)
    assert [aot_rows.trips("", tiles, n) for n in (1, 2, 3)] == [
        {"full": 6, "partial": 2}, {"full": 5, "partial": 1}, {"full": 3, "partial": 1},
    ]  # fmt: skip


def test_visits_are_those_of_the_plan():
    rows = {row.name: row for row in aot_rows.ROWS}
    assert aot_rows.visits(rows["sm_90-window(1024)-both"]) == ()
    assert aot_rows.visits(rows["v5e-causal()-both"]) == (28, 8, 28, 8)  # 8 rows of 1024, one by one
    assert aot_rows.visits(rows["sm_90-causal()-both"]) == (14, 3, 14, 3, 12, 3)  # 3 rows together: 2 + 5 + 7 visits


def test_every_row_names_a_chip_and_a_program():
    assert {row.target for row in aot_rows.ROWS} <= set(targets.TARGETS)
    for row in aot_rows.ROWS:
        function, shapes = aot_rows.program(row)
        assert callable(function) and len(shapes) == {"forward": 3, "both": 4}[row.what]
