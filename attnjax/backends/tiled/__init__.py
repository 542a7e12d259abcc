"""Attention over the plan's tiles: online softmax, own backward and tangent, O(T) memory, on any platform.

All three passes walk the same tables: a scan over rows of tiles, and inside it one loop over FULL tiles (no
mask) and one over PARTIAL tiles. EMPTY tiles are never visited. The program's size does not grow with T.
"""

from typing import Any

import jax.numpy as jnp

from attnjax.backends.tiled.backward import backward as backward
from attnjax.backends.tiled.forward import forward as forward
from attnjax.backends.tiled.layout import plan_of
from attnjax.backends.tiled.tangent import tangent as tangent
from attnjax.call import Call
from attnjax.shapes import compute_dtype

HAS_BACKWARD = True


def why_not(call: Call) -> str | None:
    """A sentence if the call cannot run here."""
    d = call.dims
    if 0 in (d.B, d.T, d.S, d.N, d.h):
        return f"an axis has size 0 (B={d.B} T={d.T} S={d.S} N={d.N} h={d.h}), so there is no tile"
    return None


def work(call: Call) -> dict[str, Any]:
    """What running the call costs: tiles by state, scores computed, bytes of temporaries."""
    d, p = call.dims, plan_of(call)
    width = jnp.dtype(compute_dtype(call.q, call.k, call.v)).itemsize
    tile = p.tile_q * p.tile_k + p.tile_q * (d.H + 2 * d.h) + p.tile_k * (d.H + d.h)
    return {
        "tiles": {"empty": p.empty, "partial": p.partial, "full": p.full},
        "tile_size": (p.tile_q, p.tile_k),
        "scores": d.B * d.N * p.scores,
        "bytes": d.B * d.N * tile * width + 2 * (call.q.size * call.q.dtype.itemsize),
    }
