"""Attention over the plan's tiles: own forward, backward and tangent, O(T) memory, on any platform.

A call becomes jobs, one for each walk of its plan and each pattern among its heads. All three passes go the
same way through a job: a scan over rows of tiles, in it one pass over stretches of keys or loops over FULL tiles
(no mask) and PARTIAL tiles. EMPTY tiles are never visited. Where several rows are taken at once the backward has a
second pass, over key tiles. The program's size does not grow with T.
"""

import jax.numpy as jnp

from attnjax.backends.base import Target, Work, is_small
from attnjax.backends.tiled.backward import backward as backward
from attnjax.backends.tiled.forward import forward as forward
from attnjax.backends.tiled.jobs import groups
from attnjax.backends.tiled.tangent import tangent as tangent
from attnjax.call import Call
from attnjax.shapes import compute_dtype, is_symbolic
from attnjax.tile_sizes import Heads, loops_for, sequences_at_once

plain = False
gives_lse = True


def why_not(call: Call, target: Target) -> str | None:
    """It needs at least one tile, and lengths to plan them for."""
    d = call.dims
    if is_symbolic(d.T, d.S):
        return f"T={d.T} and S={d.S} stand for any number, and tiles are planned for known ones"
    if 0 in (d.B, d.T, d.S, d.N, d.h):
        return f"an axis has size 0 (B={d.B} T={d.T} S={d.S} N={d.N} h={d.h}), so there is no tile"
    return None


def prefers(call: Call, target: Target) -> tuple[bool, str]:
    """All but small calls."""
    small, why = is_small(call, target)
    return not small, why


def work(call: Call, target: Target) -> Work:
    """The visits of the plan."""
    d = call.dims
    width = jnp.dtype(compute_dtype(call.q, call.k, call.v)).itemsize
    full = partial = scores = held = 0
    sizes, walks = loops_for(target.platform, target.device_kind), []
    for group in groups(call, target):
        n = len(group.heads)
        full, partial = full + group.plan.full, partial + group.plan.partial
        scores += d.B * n * group.plan.scores
        for walk in group.plan.walks:
            at_once = sequences_at_once(Heads(d.B * group.plan.classes(walk), n, 1), walk.tile_q, walk.tile_k, sizes)
            rows, keys = walk.tile_q * (d.H + 2 * d.h), walk.tile_k * (d.H + d.h)
            held = max(held, at_once * n * (walk.tile_q * walk.tile_k + rows + keys))
            whose = "" if n == d.N else f"heads {', '.join(map(str, group.heads))}: "
            walks.append(whose + str(walk))
    return Work(
        scores=scores,
        bytes=held * width + 2 * (call.q.size * call.q.dtype.itemsize),
        tiles={"full": full, "partial": partial},
        walks=tuple(walks),
        plans=tuple((group.heads, group.plan) for group in groups(call, target)),
    )
