"""The reference through XLA: runs anywhere, every option, every derivative; holds all T x S scores."""

from typing import Any

import jax.numpy as jnp

from attnjax import reference
from attnjax.backends.base import Target, Work, is_small
from attnjax.call import Call
from attnjax.shapes import compute_dtype
from attnjax.visible import positions

plain = True
gives_lse = True


def why_not(call: Call, target: Target) -> str | None:
    """Never: this is the one backend that supports everything."""
    return None


def prefers(call: Call, target: Target) -> tuple[bool, str]:
    """Small calls: all scores at once are faster than tile after tile."""
    return is_small(call, target)


def work(call: Call, target: Target) -> Work:
    """All T x S scores, and as many weights."""
    d = call.dims
    scores = d.B * d.N * d.T * d.S
    width = jnp.dtype(compute_dtype(call.q, call.k, call.v)).itemsize
    return Work(scores=scores, bytes=2 * scores * width)


def forward(call: Call, target: Target) -> tuple[Any, Any]:
    """(output [B, T, N, h], log-sum-exp [B, T, N])."""
    return reference.attention(call.q, call.k, call.v, **_formula(call))


def weights(call: Call) -> Any:
    """The weights [B, N, T, S] after dropout."""
    return reference.attention_weights(call.q, call.k, **_formula(call))[0]


def _formula(call: Call) -> dict[str, Any]:
    """What the formula takes besides q, k and v, for all rows and columns at once."""
    d, o = call.dims, call.options
    row, col = positions(d.T), positions(d.S)
    return dict(
        visible=call.seen(row, col, call.mask, call.bias),
        scale=o.rule.scale,
        rule=lambda dots: call.scores(dots, row, col, call.diff.score),
        sink_logits=call.diff.sink_logits,
        dropout=call.dropout(row, col, compute_dtype(call.q, call.k, call.v)),
        precision=o.precision,
    )
