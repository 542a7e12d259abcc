"""The layouts of the tiled backend: several tiles, sequences in groups, residue classes, heads by pattern.

Tiles are made small here, so that a few dozen rows take many of everything.
"""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attnjax as aj
from attnjax import tile_sizes
from attnjax.attend import run
from attnjax.backends.tiled import jobs
from attnjax.plan import plan
from tests.support import ways
from tests.support.budget import assert_within
from tests.support.paired import attended, limits, sample
from tests.support.table import Row, caller, data, even_keys, on_device, value_and_gradients

LARGEST = 2**31 - 1
COMB = aj.Window(4) | aj.Strided(5)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Tiles of few rows, and visits of few sequences; plans and traces of other sizes are forgotten."""

    def forget():
        plan.cache_clear()
        run.clear_cache()

    small = tile_sizes.CPU._replace(loops=((16, 8), (8, 16)), stretches=(8, 4), block=1 << 11)
    monkeypatch.setattr(tile_sizes, "CPU", small)
    forget()
    yield
    monkeypatch.undo()
    forget()


ROWS = (
    Row(aj.Causal(), B=7, T=43, alibi=True, bias="TS"),  # 7 sequences do not divide into groups
    Row(aj.Window(30), B=5, T=45, K=1, mask="BS", sinks=True),
    Row(aj.Strided(5), B=3, T=43, bias="NTS"),
    Row(aj.Strided(4), B=7, T=41, N=2, K=1, rate=0.3, alibi=True),
    Row(aj.Strided(5) & aj.Chunked(40), B=2, T=37, S=61, q_offset=11, mask="BNTS", bias="BT"),
    Row(aj.Strided(13) | aj.Sink(3), B=2, T=29, S=70, q_offset=-4, rate=0.3),
    Row(aj.Strided(31), B=1, T=7, S=80, q_offset=77, bias="BS", mask="T"),  # more classes than queries
    Row(aj.Strided(4) & aj.Where(even_keys), B=1, T=42, mask="N"),
    Row(aj.Window(3) | aj.Strided(LARGEST), B=1, T=36, q_offset=LARGEST - 36),
    Row((aj.Sink(90) & ~aj.Sink(50)) | aj.Window(5), B=1, T=34),  # these sinks lie past the last key
    Row(COMB, B=2, T=35, dtype="bfloat16", bias="S"),
    Row(aj.Causal(), B=1, T=40, N=2, K=1, dtype="float64"),
)
MANY = (  # several walks, several traces
    Row(aj.Strided(5) | aj.Strided(7), B=2, T=47, sinks=True, soft_cap=2.0),
    Row(aj.PerHead((aj.Causal(), COMB, aj.Causal(), COMB)), B=2, T=39, mask="NS", sinks=True),
    Row(aj.PerHead((aj.Causal(), aj.Strided(5), aj.Strided(5))), B=2, T=38, N=3, K=1, bias="NTS", alibi=True, rate=0.2),
)


@pytest.mark.cross
@pytest.mark.parametrize(
    "row", [*ROWS, *(pytest.param(row, marks=pytest.mark.slow) for row in MANY)], ids=lambda row: row.name
)
def test_values_and_gradients(row):
    with jax.enable_x64(row.dtype == "float64"):
        inputs, _, d_o, d_lse = on_device(data(row)._replace(options={}))
        jitted = jax.jit(functools.partial(value_and_gradients, caller(row, "tiled")))
        got, again = jitted(inputs, d_o, d_lse), jitted(inputs, d_o, d_lse)
    for name, (exact, limit) in limits(sample(row), got).items():
        assert_within(got[name], exact, limit, f"{name} of {row.name}")
        assert np.array_equal(got[name], again[name]), f"{name} differs between two runs"


TOGETHER = (
    Row(aj.Causal() | aj.Sink(2), B=2, T=90, N=2, K=1, bias="TS", sinks=True),
    Row(aj.Window(3) | aj.Sink(2), B=1, T=53, N=2, alibi=True, rate=0.2),
    Row(aj.Strided(3), B=1, T=80, N=1, K=1, mask="S"),
    Row(aj.Causal(), B=2, T=61, N=1, K=1, segments="packed"),
)


@pytest.mark.cross
@pytest.mark.parametrize("row", TOGETHER, ids=lambda row: row.name)
def test_rows_of_tiles_taken_together(row, monkeypatch):
    """As on an accelerator; 4 rows do not divide how many there are, and they differ in how many visits they make."""
    monkeypatch.setattr(jobs, "rows_at_once", lambda sizes, rows, scores, in_tiles: min(rows, 4))
    monkeypatch.setattr(jobs, "RUN_TIME", 8)
    inputs, _, d_o, d_lse = on_device(data(row)._replace(options={}))
    got = jax.jit(functools.partial(value_and_gradients, caller(row, "tiled")))(inputs, d_o, d_lse)
    for name, (exact, limit) in limits(sample(row), got).items():
        assert_within(got[name], exact, limit, f"{name} of {row.name}")


def test_heads_of_several_walks_keep_their_own_results():
    row = Row(aj.PerHead((aj.Causal(), COMB, COMB)), B=1, T=31, N=3, K=3)
    o, lse = jax.jit(caller(row, "tiled"))(on_device(data(row).inputs))
    for name, (exact, limit) in limits(sample(row), ("o", "lse")).items():
        assert_within({"o": o, "lse": lse}[name], exact, limit, name)


WAYS = (
    Row(COMB, B=2, T=33, N=2, K=1, sinks=True, alibi=True, rate=0.2),
    Row(aj.PerHead((COMB, aj.Causal(), COMB)), B=3, T=32, N=3, K=3, mask="BNS", bias="NTS"),
)


@pytest.mark.slow
@pytest.mark.parametrize("way", [ways.jvp, ways.vmap, ways.second_order], ids=lambda way: way.__name__)
@pytest.mark.parametrize("row", WAYS, ids=lambda row: row.name)
def test_ways_of_calling(row, way):
    s = sample(row)
    for found, right in way(attended(row, "tiled"), s):
        for name, (exact, limit) in right.items():
            assert_within(found[name], exact, limit, f"{name} of {row.name}")


def far(s, q_pos, k_pos, head, slope):
    """Grows with the distance, far over the largest exponential."""
    return s + slope * (q_pos - k_pos).astype(s.dtype)


@pytest.mark.cross
@pytest.mark.parametrize("options", ["bias", "score_fn"])
@pytest.mark.parametrize("pattern", [aj.Causal(), aj.Strided(5)], ids=str)
def test_large_scores_of_padding_weigh_nothing(pattern, options):
    """Rows that only fill a tile, a residue class or a group of sequences see a bias of the keys as others do."""
    row = Row(pattern, B=7, T=43, N=2)
    inputs, _, d_o, d_lse = on_device(data(row)._replace(options={}))
    static = {"q_offset": 0}
    if options == "bias":
        inputs["bias"] = jnp.full((1, 1, 1, row.T), 200.0)
    else:
        inputs["score_params"] = jnp.float32(5)
        static["score_fn"] = far
    got = jax.jit(functools.partial(value_and_gradients, caller(row, "tiled", static)))(inputs, d_o, d_lse)
    for name, x in got.items():
        assert np.isfinite(x).all(), name


@pytest.mark.parametrize("backend", ["dense", "tiled"])
def test_no_cotangent_of_an_empty_row_counts(backend):
    """A function of the log-sum-exp often has a NaN slope at -inf, also where its value is left out."""
    row = Row(aj.Causal() & ~aj.Window(3), B=1, T=20, N=2)
    q, k, v = (jnp.asarray(data(row).inputs[n]) for n in "qkv")

    def loss(q):
        lse = aj.attend(q, k, v, row.pattern, backend=backend, return_lse=True)[1]
        return jnp.sum(jnp.where(jnp.isneginf(lse), 0, jnp.sin(lse)))

    found = jax.jit(jax.grad(loss))(q)
    assert np.isfinite(found).all() and np.abs(found).max() > 0
    assert not found[:, :3].any()


@pytest.mark.parametrize("backend", ["dense", "tiled"])
@pytest.mark.parametrize(("dtype", "name"), [("bfloat16", "DEFAULT"), ("float32", "HIGHEST")])
def test_products_are_as_precise_as_explain_says(backend, dtype, name):
    q, k, v = (jnp.asarray(data(Row(COMB, dtype=dtype)).inputs[n]) for n in "qkv")
    call = functools.partial(aj.attend, pattern=COMB, backend=backend)
    loss = jax.grad(lambda *x: jnp.sum(call(*x)).astype(jnp.float32), (0, 1, 2))
    used = set(re.findall(r"precision = \[(\w+), ", jax.jit(loss).lower(q, k, v).as_text()))
    assert used == {name}
    assert aj.explain(q, k, v, COMB, backend=backend).precision == name
