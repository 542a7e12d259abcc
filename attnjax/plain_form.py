"""Attention in ordinary JAX, a block of query rows at a time: derivatives of any order in O(T) memory."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from attnjax import reference
from attnjax.call import Call, Diff
from attnjax.shapes import compute_dtype
from attnjax.visible import positions

ROWS = 128  # queries that are taken at once


def attention(call: Call) -> tuple[Any, Any]:
    """(output, log-sum-exp), recomputed when differentiated."""
    d, o, score = call.dims, call.options, call.diff.score
    rows = min(ROWS, d.T)
    blocks = -(-d.T // rows)

    def padded(x: Any, axis: int) -> Any:
        """Whole blocks along a query axis; None and broadcast axes stay."""
        if x is None or (x.shape[axis] == 1 and d.T > 1):
            return x
        return jnp.pad(x, [(0, (blocks * rows - d.T) * (a == axis)) for a in range(x.ndim)])

    def cut(x: Any, axis: int, i: Any) -> Any:
        return x if x is None or x.shape[axis] == 1 else lax.dynamic_slice_in_dim(x, i * rows, rows, axis)

    q, bias, mask = padded(call.q, 1), padded(call.bias, 2), padded(call.mask, 2)
    col = positions(d.S)

    @jax.checkpoint
    def block(i: Any) -> tuple[Any, Any]:
        row, some = i * rows + positions(rows), dataclasses.replace(score, bias=cut(bias, 2, i))
        return reference.attention(
            cut(q, 1, i),
            call.k,
            call.v,
            call.seen(row, col, cut(mask, 2, i), some.bias) & (row < d.T)[None, None, :, None],
            scale=o.rule.scale,
            rule=lambda dots: call.scores(dots, row, col, some),
            dropout=call.dropout(row, col, compute_dtype(call.q, call.k, call.v)),
            precision=o.precision,
        )

    out, lse = lax.map(block, positions(blocks))
    out = jnp.moveaxis(out, 0, 1).reshape(d.B, blocks * rows, d.N, d.h)
    return out[:, : d.T], jnp.moveaxis(lse, 0, 1).reshape(d.B, blocks * rows, d.N)[:, : d.T]


def cotangents(call: Call, d_o: Any, d_lse: Any) -> Diff:
    """Of everything in call.diff, from those of output and log-sum-exp."""
    return jax.vjp(lambda diff: attention(dataclasses.replace(call, diff=diff)), call.diff)[1]((d_o, d_lse))[0]
