"""Rows without a rival: compile seconds, temporaries, scores computed for each needed, seconds of planning."""

import dataclasses
import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
from rows import SINK, STRIDE, label
from sides import fresh_program
from work import Work

import attnjax as aj
from attnjax.plan import plan
from attnjax.tile_sizes import sizes_for

LONG = 131072
MIB = 2**20
MASKED = {
    "window": "window({n})",
    "sink": "sink(4) | window({n})",
    "strided": "window({n}) | strided(256)",
    "all": "sink(4) | window({n}) | strided(256)",
    "comb": "strided({n})",
    "chunked": "chunked({n}1)",
    "prefix": "prefix({n})",
}


@dataclasses.dataclass(frozen=True)
class Program:
    """One number about a program that never runs."""

    name: str
    unit: str
    at_most: float
    aim: float | None
    value: Callable[[], float]


def shapes(work):
    """q, k, v and the cotangent without numbers."""
    kv = work.heads // work.group
    return [
        jax.ShapeDtypeStruct((1, work.T, n, work.head_dim), jnp.dtype(work.dtype))
        for n in (work.heads, kv, kv, work.heads)
    ]


def compile_seconds(work):
    """Trace, lowering and compilation; nothing traced before is found again."""

    def value():
        jax.clear_caches()
        start = time.perf_counter()
        fresh_program("attnjax", work).lower(*shapes(work)).compile()
        return time.perf_counter() - start

    return value


def temporaries(work):
    """MiB that the compiled program needs beside its arguments and results, as XLA says."""

    def value():
        compiled = fresh_program("attnjax", work).lower(*shapes(work)).compile()
        return compiled.memory_analysis().temp_size_in_bytes / MIB

    return value


def waste(work):
    """Scores computed for each score needed, as `explain` says."""
    return lambda: aj.explain(*shapes(work)[:3], aj.parse(work.pattern)).waste


def plan_milliseconds(template, values):
    """Median of `explain` on patterns that nobody planned before: the plan, with the exact count on top."""

    def once(n):
        work = Work(template.format(n=n), LONG)
        q, k, v, _ = shapes(work)
        pattern = aj.parse(work.pattern)
        start = time.perf_counter()
        aj.explain(q, k, v, pattern)
        return 1e3 * (time.perf_counter() - start)

    return lambda: statistics.median(once(n) for n in values)


def masks_milliseconds(template, values):
    """Median of a plan of tiles of 1024 x 1024 alone, and of telling the masks of its PARTIAL tiles apart."""
    tiles = sizes_for("tpu")._replace(loops=((1024, 1024),), stretches=(), few=0)

    def once(n):
        pattern = aj.parse(template.format(n=n))
        start = time.perf_counter()
        found = plan(pattern, LONG, LONG, 0, sizes=tiles)
        for walk in found.walks:
            found.masks(walk)
        return 1e3 * (time.perf_counter() - start)

    return lambda: statistics.median(once(n) for n in values)


def programs():
    """All of them."""
    for pattern in ("causal()", "window(4096)", STRIDE):
        for direction, at_most in (("forward", 5), ("backward", 15)):
            work = Work(pattern, LONG, direction)
            yield Program(f"compile-{label(pattern)}-{LONG}-{direction}", "s", at_most, None, compile_seconds(work))
    for direction, at_most in (("forward", 64), ("backward", 256)):
        work = Work("window(4096)", LONG, direction, heads=1)
        yield Program(f"memory-window-{LONG}-{direction}", "MiB", at_most, at_most / 2, temporaries(work))
    for pattern in ("causal()", "window(256)", SINK, STRIDE, "strided(256)"):
        yield Program(f"waste-{label(pattern)}-16384", "x", 1.6, 1.2, waste(Work(pattern, 16384)))
    near = range(240, 245)
    for template in ("window({n})", "sink(4) | window({n})", "window({n}) | strided(256)"):
        name = label(template.format(n=256))
        yield Program(f"plan-{name}-{LONG}", "ms", 50, None, plan_milliseconds(template, near))
    for name, template in MASKED.items():
        yield Program(f"masks-{name}-{LONG}", "ms", 50, None, masks_milliseconds(template, near))


PROGRAMS = tuple(programs())


def measure(program):
    """The row as a plain dictionary."""
    unit, at_most, aim = program.unit, program.at_most, program.aim
    return {"row": program.name, "value": program.value(), "unit": unit, "at_most": at_most, "aim": aim}
