import pytest

from train.breaks import BREAKS
from train.check import select
from train.rows import QUICK


@pytest.mark.parametrize(("kind", "before", "after"), [
    ("window+1", "window(8) | sink(1)", "window(9) | sink(1)"),
    ("window+1", "strided(8)", "strided(8)"),
    ("drop-sink", "window(8) | sink(1)", "window(8)"),
    ("leak-future", "window(8)", "(window(8)) | ~causal()"),
    ("stride+1", "window(8) | strided(8)", "window(8) | strided(9)"),
])
def test_rewrites(kind, before, after):
    assert BREAKS[kind].rewrite(before) == after


@pytest.mark.parametrize("kind", BREAKS)
def test_a_break_changes_the_pattern_and_never_the_bands(kind):
    rows = {row.name: row for row in QUICK}
    broken = select(False, [], kind, None)
    assert sorted(row.name for row in broken) == sorted(BREAKS[kind].rows)
    for row in broken:
        own = rows[row.name]
        assert row.legend != own.legend and (row.seen, row.hidden, row.task) == (own.seen, own.hidden, own.task)
        assert row.allow_future == (kind == "leak-future")
