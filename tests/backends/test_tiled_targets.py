"""The programs that the tiled backend makes for GPUs and TPUs, run on a CPU: what differs is how they go through tiles.

Each pass is asked as the contract of a backend says, with a target of its own.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

import attnjax as aj
from attnjax import tile_sizes
from attnjax.backends import tiled
from attnjax.backends.base import Target
from attnjax.backends.tiled import jobs, two_passes
from attnjax.call import Call, without_hidden_keys
from attnjax.door import bind
from tests.support.budget import assert_within
from tests.support.paired import differences, limits, plainly, sample
from tests.support.table import Row, data, even_keys, on_device

COMB = aj.Window(4) | aj.Strided(5)
SMALL = {"loops": ((16, 8), (8, 16)), "stretches": (8, 4), "block": 1 << 11, "batch": 1 << 12, "passes": 1 << 12}
CALLS = (
    Row(aj.Causal(), B=3, T=43, alibi=True, bias="TS"),  # neither rows nor key tiles divide into batches
    Row(aj.Causal(), B=1, T=75, N=2, K=1, dtype="float64"),
    Row(aj.Window(9) | aj.Sink(3), B=2, T=61, K=2, bias="S", mask="BS"),  # the sinks are a pass of their own
    Row(aj.Window(9) | aj.Sink(3), B=1, T=61, N=2, K=2, bias="T", rate=0.3),
    Row(aj.Sink(5), B=1, T=50, N=2, K=1, bias="NS"),
    Row(aj.Window(30), B=1, T=45, S=90, q_offset=45, N=4, K=1, h=5, bias="BN", soft_cap=2.0),
    Row(COMB, B=2, T=53, dtype="bfloat16", bias="NTS"),
    Row(aj.Strided(5) & aj.Chunked(40), B=1, T=37, S=61, q_offset=11, mask="BNTS", bias="BT"),
    Row(aj.Strided(4) & aj.Where(even_keys), B=1, T=42, mask="N", bias="S"),
    Row(aj.PerHead((aj.Causal(), aj.Window(7) | aj.Sink(1), aj.Causal())), B=1, T=39, N=3, K=1, bias="NTS", alibi=True),
    Row(aj.Causal() & ~aj.Window(3), B=1, T=40, mask="TS"),  # its first rows are empty
    Row(aj.Causal(), B=2, T=61, N=2, K=1, segments="packed", bias="BTS"),
    Row(aj.Window(11), B=2, T=30, S=50, traced=(3, 14), bias="S"),
    Row(aj.Window(6), B=1, T=60, N=1, K=1, segments="restart", rate=0.2, alibi=True),
    Row(~aj.Full(), B=1, T=20),
)
PLATFORMS = "cuda", "tpu"


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Tiles of few rows, of which a visit takes some together."""
    monkeypatch.setattr(tile_sizes, "GPU_LOOPS", SMALL)
    monkeypatch.setattr(tile_sizes, "GPU_BACKWARD", {**SMALL, "stretches": ()})
    monkeypatch.setattr(tile_sizes, "TPU_LOOPS", {**SMALL, "batch": 0})
    monkeypatch.setattr(tile_sizes, "TPU_BACKWARD", {**SMALL, "batch": 0, "passes": 0})
    monkeypatch.setattr(jobs, "RUN_TIME", 8)


def call_of(row, inputs, facts):
    found, _ = bind(pattern=row.pattern, scale=row.scale, soft_cap=row.soft_cap, **inputs, **facts)
    return without_hidden_keys(found)


def arrays(diff):
    """{"d_q", ...} of what a backward gives."""
    found = {"d_q": diff.q, "d_k": diff.k, "d_v": diff.v, "d_bias": diff.score.bias, "d_score_params": diff.score.params}
    return {name: x for name, x in found.items() if x is not None}


def cleared(call, looks):
    """Rows that see no key come with queries of 0, as the seam gives them."""
    return dataclasses.replace(call, diff=dataclasses.replace(call.diff, q=jnp.where(looks[..., None], call.q, 0)))


def passes(row, target, options, inputs, d_o, d_lse):
    """{"o", "lse", "d_q", ...} by the backend's own passes."""
    call = call_of(row, inputs, options)
    o, lse = tiled.forward(call.alike(), target)
    looks = ~jnp.isneginf(lse)
    d_o, d_lse = jnp.where(looks[..., None], d_o, 0), jnp.where(looks, d_lse, 0)
    found = tiled.backward(cleared(call, looks).alike(), target, o, lse, d_o.astype(o.dtype), d_lse)
    return {"o": o, "lse": lse, **arrays(found)}


@pytest.mark.cross
@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("row", CALLS, ids=lambda row: row.name)
def test_values_and_gradients(row, platform):
    with jax.enable_x64(row.dtype == "float64"):
        s = sample(row)
        given = on_device((s.inputs, s.d_o, s.d_lse))
        jitted = jax.jit(functools.partial(passes, row, Target(platform), data(row).options))
        got, again = jitted(*given), jitted(*given)
    for name, (exact, limit) in limits(s, got).items():
        assert_within(got[name], exact, limit, f"{name} of {row.name}")
        assert np.array_equal(got[name], again[name]), f"{name} differs between two runs"


TANGENTS = (
    Row(aj.Causal(), B=1, T=43, alibi=True, bias="TS"),
    Row(aj.Window(9) | aj.Sink(3), B=1, T=41, N=2, K=1, bias="S", rate=0.2),
    Row(COMB, B=1, T=33, N=2, K=2),
)


@pytest.mark.cross
@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("row", TANGENTS, ids=lambda row: row.name)
def test_tangents(row, platform):
    s, options, target = sample(row), data(row).options, Target(platform)
    (inputs, along), plain = on_device((s.inputs, s.along())), plainly(s)

    def tangents(inputs, along):
        call, moved = (call_of(row, x, options) for x in (inputs, along))
        o, lse = tiled.forward(call.alike(), target)
        d_o, d_lse = tiled.tangent(call.alike(), target, o, lse, call.varied(moved.diff))
        return {"o": d_o, "lse": d_lse}

    found = jax.jit(tangents)(inputs, along)
    honest = jax.jit(lambda x, t: jax.jvp(lambda x: plain(x, {}), (x,), (t,))[1])(inputs, along)
    for name, (exact, limit) in differences(s, found, dict(zip(("o", "lse"), honest, strict=True))).items():
        assert_within(found[name], exact, limit, f"tangent of {name} of {row.name}")


def of_backward(row, platform):
    call = call_of(row, on_device(sample(row).inputs), data(row).options)
    return [
        job
        for group in jobs.groups(call, Target(platform), backward=True)
        for job in jobs.jobs(call, group, Target(platform))
    ]


def test_these_calls_take_several_rows_and_key_tiles_at_once():
    """Else the tests above would pass through other loops."""
    (causal,) = of_backward(CALLS[0], "cuda")
    assert 1 < causal.together < causal.walk.rows and 1 < two_passes.key_tiles_at_once(causal)
    (sinks,) = of_backward(CALLS[2], "cuda")
    assert sinks.walk.stretches and sinks.walk.tiles is not None
    assert [job.together for job in of_backward(CALLS[0], "tpu") + of_backward(CALLS[5], "tpu")] == [1, 1]


def test_only_programs_for_cpus_hide_floats_behind_integers():
    row = Row(aj.Causal(), B=1, T=40, dtype="bfloat16")
    s = sample(row)

    def text(platform):
        passed = functools.partial(passes, row, Target(platform), {})
        return jax.jit(passed).lower(*on_device((s.inputs, s.d_o, s.d_lse))).as_text()

    assert ["ui16" in text(platform) for platform in ("cpu", *PLATFORMS)] == [True, False, False]


def test_no_loop_adds_gradients_of_keys_row_after_row():
    """A GPU launches a kernel for every step: two passes, each with two loops in a loop, and no loop inside those."""
    row = Row(aj.Causal(), B=1, T=200, N=1, K=1)
    call = call_of(row, on_device(sample(row).inputs), {})

    def depth(jaxpr):
        inner = [x for eqn in jaxpr.eqns for x in jaxprs_in_params(eqn.params)]
        loops = [eqn for eqn in jaxpr.eqns if eqn.primitive.name in ("while", "scan")]
        return max((depth(x) for x in inner), default=0) + bool(loops)

    def backward(call: Call):
        o, lse = jnp.zeros_like(call.q), jnp.zeros(call.q.shape[:3])
        return tiled.backward(call, Target("cuda"), o, lse, o, lse).k

    (job,) = of_backward(row, "cuda")
    assert job.together > 1
    assert depth(jax.make_jaxpr(backward)(call).jaxpr) == 2
