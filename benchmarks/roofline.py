"""What bounds a row on this machine: XLA's own rate of the matrix products and exponentials of its tiles.

A forward computes two matrix products and one exponential for each score, a backward that keeps nothing of size
T x S computes five more products and one more exponential. Each rate is the best over tile sizes of a program that
does nothing else, on eight tiles at once. Masks, maxima and sums come on top, so a bound cannot be reached.
"""

import functools
import time

import jax
import jax.numpy as jnp
from work import Work

import attnjax as aj

TILES = (64, 128, 256, 512)
TILES_AT_ONCE = 8  # one for each head of most rows
SCORES = 2**28  # of one timing: a quarter of a second or so
REPEATS = 3


@functools.partial(jax.jit, static_argnames="loops")
def products(x, k, v, loops):
    """[n, tile, H] times keys, times values, again and again: the two products of a forward."""

    def step(_, x):
        return jnp.einsum("nij,njh->nih", jnp.einsum("nih,njh->nij", x, k), v)

    return jax.lax.fori_loop(0, loops, step, x)


@functools.partial(jax.jit, static_argnames="loops")
def exponentials(s, loops):
    """exp(-s) again and again, which stays between 0 and 1."""
    return jax.lax.fori_loop(0, loops, lambda _, s: jnp.exp(-s), s)


def nanoseconds(function, *inputs, scores):
    """Of one score: the best of some repeats, after one that compiles."""
    loops = max(1, SCORES // scores)
    best = float("inf")
    for _ in range(1 + REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(function(*inputs, loops=loops))
        best = min(best, time.perf_counter() - start)
    return 1e9 * best / (loops * scores)


def rates(head_dim, dtype):
    """For each tile: nanoseconds a score of the two products and of one exponential."""
    found = []
    for rows in TILES:
        for columns in TILES:
            n = TILES_AT_ONCE
            x = jnp.ones((n, rows, head_dim), dtype)
            k = jnp.full((n, columns, head_dim), 1 / head_dim, dtype)
            v = jnp.full((n, columns, head_dim), 1 / columns, dtype)
            s = jnp.zeros((n, rows, columns), jnp.float32)
            found.append({
                "tile": [rows, columns],
                "products": nanoseconds(products, x, k, v, scores=s.size),
                "exponential": nanoseconds(exponentials, s, scores=s.size),
            })  # fmt: skip
    return found


@functools.lru_cache(maxsize=8)
def best(head_dim, dtype):
    """The smallest of each, and the table they come from."""
    found = rates(head_dim, dtype)
    return {
        "head_dim": head_dim,
        "dtype": dtype,
        "products": min(rate["products"] for rate in found),
        "exponential": min(rate["exponential"] for rate in found),
        "tiles": found,
    }


def bound(work: Work):
    """Seconds below which this work cannot go with XLA's products and exponentials."""
    rate = best(work.head_dim, work.dtype)
    scores = aj.cost(aj.parse(work.pattern), work.T, num_heads=work.heads, head_dim=work.head_dim).scores
    pairs, exponentials = (1, 1) if work.direction == "forward" else (3.5, 2)
    return 1e-9 * scores * (pairs * rate["products"] + exponentials * rate["exponential"])


def text(rate):
    """The rates of one head size and type as a table."""
    head_dim = rate["head_dim"]
    lines = [f"{rate['dtype']}, heads of {head_dim}: GFLOP/s of the products, nanoseconds of an exponential"]
    for each in rate["tiles"]:
        rows, columns = each["tile"]
        lines.append(f"  {rows:>4} x {columns:<4} {4 * head_dim / each['products']:8.1f} {each['exponential']:8.3f}")
    return "\n".join(lines)
