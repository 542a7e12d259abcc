import math

import pytest

from train.bands import Band, reached, unreached


def test_names_expand_ranges_and_negative_numbers():
    assert Band("-2..1", 0, 1).names() == ("-2", "-1", "0", "1")
    assert Band("near, far", 0, 1).names() == ("near", "far")
    assert Band("1..2,8", 0, 1).names() == ("1", "2", "8")


def test_unreached_ends_five_standard_errors_above_chance():
    p = 1 / 8
    assert unreached("far", p) == Band("far", 0.0, pytest.approx(p + 5 * math.sqrt(p * (1 - p)) / 32))


@pytest.mark.parametrize(("value", "inside"), [(0.94, False), (0.95, True), (1.0, True), (math.nan, False)])
def test_edges(value, inside):
    assert reached("1").holds({"1": value}) is inside


def test_worst_is_the_value_nearest_to_leaving():
    band = Band("1..3", 0.2, 0.8)
    assert band.worst({"1": 0.5, "2": 0.75, "3": 0.3}) == ("2", 0.75)
    assert band.worst({"1": 0.9, "2": 0.75, "3": 0.0}) == ("3", 0.0)


def test_slack_widens_and_missing_labels_pass():
    assert reached("1..2").holds({"1": 0.93}, slack=0.03)
    assert not reached("1..2").holds({"1": 0.91}, slack=0.03)
