"""The backend table: every pair of backend, pattern, dtype, shape, option and way of calling is in some row.

The rows are listed in pairs.txt. `slow` draws more of the full cross: ATTNJAX_CROSS_SEED and ATTNJAX_CROSS_ROWS
choose which and how many.
"""

import os

import jax
import pytest

import attnjax as aj
from tests.support import pairs
from tests.support.budget import assert_within
from tests.support.paired import SHAPES, row_of, wide
from tests.support.table import data
from tests.support.ways import WAYS, results

SEED = int(os.environ.get("ATTNJAX_CROSS_SEED", "0"))
DRAWN, CROSS = pairs.drawn(SEED, int(os.environ.get("ATTNJAX_CROSS_ROWS", "120")))


def test_the_list_holds_every_pair_and_is_what_the_generator_makes():
    listed = pairs.read()
    assert set().union(*map(pairs.pairs_of, listed)) == pairs.every_pair()
    assert listed == pairs.cover() and len(listed) <= 250
    assert set(WAYS) == set(pairs.FACTORS["way"])


def test_every_backend_is_in_the_table():
    inputs = data(row_of(("causal", "float32", "equal", "none"))).inputs
    assert set(aj.explain(**inputs, pattern=aj.Causal()).reasons) == set(pairs.FACTORS["backend"])


@pytest.mark.parametrize("shape", ["odd", "more-queries", "grouped", "wide-values"])
def test_these_shapes_take_several_tiles(shape):
    inputs = data(row_of(("causal", "float32", shape, "none"))).inputs
    offset = SHAPES[shape][0].get("q_offset")
    tiles = aj.explain(**inputs, pattern=aj.Causal(), q_offset=offset, backend="tiled").tiles
    assert sum(tiles.values()) > 1, "one tile tests no merge of tiles: lengthen the shape"


def check(levels):
    backend, *call, way = levels
    row = row_of(call)
    with jax.enable_x64(row.dtype == "float64"):
        for found, right in results(way, row, backend):
            assert set(found) == set(right)
            for name, (exact, limit) in right.items():
                kept = wide(row) if name in ("lse", "d_score_params") else row.dtype
                assert found[name].dtype == kept, f"{name} is {found[name].dtype}"
                assert_within(found[name], exact, limit, f"{name} of {row.name}")


@pytest.mark.cross
@pytest.mark.parametrize("levels", pairs.read(), ids=" ".join)
def test_row(levels):
    check(levels)


@pytest.mark.slow
@pytest.mark.parametrize("levels", DRAWN, ids=" ".join)
def test_row_of_the_full_cross(levels):
    print(f"{len(DRAWN)} of {CROSS} rows, ATTNJAX_CROSS_SEED={SEED}")
    check(levels)
