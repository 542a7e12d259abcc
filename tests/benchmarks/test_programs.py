"""Numbers about programs that never run, on small work."""

import jax
import programs
import pytest
import roofline
from work import Work

import attnjax as aj


def test_names_are_unique():
    assert len({program.name for program in programs.PROGRAMS}) == len(programs.PROGRAMS)


def test_waste_is_what_explain_says():
    x = jax.ShapeDtypeStruct((1, 1024, 8, 64), "float32")
    assert programs.waste(Work("window(256)", 1024))() == aj.explain(x, x, x, aj.Window(256)).waste


@pytest.mark.slow
def test_compiling_and_memory_of_a_small_program():
    small = Work("causal()", 64, heads=2, head_dim=4)
    assert 0 < programs.compile_seconds(small)() < 60
    # the dense backend holds 2 heads x 64 x 64 scores of 4 bytes at least once
    assert 2 * 64 * 64 * 4 <= programs.temporaries(small)() * 2**20 < 10 * 2 * 64 * 64 * 4


def test_a_program_row_is_a_plain_dictionary():
    row = programs.measure(programs.Program("n", "s", 5, None, lambda: 1.5))
    assert row == {"row": "n", "value": 1.5, "unit": "s", "at_most": 5, "aim": None}


def test_bounds_count_the_pattern(monkeypatch):
    rate = {"products": 2.0, "exponential": 1.0}
    monkeypatch.setattr(roofline, "best", lambda head_dim, dtype: rate)
    forward = roofline.bound(Work("causal()", 100, heads=2))
    assert forward == pytest.approx(2 * 5050 * 3e-9)
    assert roofline.bound(Work("causal()", 100, "backward", heads=2)) == pytest.approx(2 * 5050 * 9e-9)


def test_rates_are_of_every_tile(monkeypatch):
    monkeypatch.setattr(roofline, "TILES", (8, 16))
    monkeypatch.setattr(roofline, "SCORES", 2**10)
    found = roofline.rates(4, "float32")
    assert [each["tile"] for each in found] == [[8, 8], [8, 16], [16, 8], [16, 16]]
    assert all(each["products"] > 0 and each["exponential"] > 0 for each in found)
