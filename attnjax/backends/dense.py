"""The reference through XLA: runs anywhere, every option, every derivative; holds all T x S scores."""

from typing import Any

import jax.numpy as jnp

from attnjax import reference
from attnjax.call import Call
from attnjax.shapes import compute_dtype
from attnjax.visible import positions

HAS_BACKWARD = False  # plain JAX: differentiated by JAX itself


def why_not(call: Call) -> str | None:
    """Never: this is the one backend that supports everything."""
    return None


def work(call: Call) -> dict[str, Any]:
    """What running the call costs: tiles by state, scores computed, bytes of temporaries."""
    d = call.dims
    scores = d.B * d.N * d.T * d.S
    width = jnp.dtype(compute_dtype(call.q, call.k, call.v)).itemsize
    return {"tiles": None, "walks": (), "plans": (), "scores": scores, "bytes": 2 * scores * width}


def forward(call: Call) -> tuple[Any, Any]:
    """(output [B, T, N, h], log-sum-exp [B, T, N])."""
    return reference.attention(call.q, call.k, call.v, **_formula(call))


def weights(call: Call) -> Any:
    """The weights [B, N, T, S] after dropout."""
    return reference.attention_weights(call.q, call.k, **_formula(call))[0]


def _formula(call: Call) -> dict[str, Any]:
    """What the formula takes besides q, k and v, for all rows and columns at once."""
    d, o = call.dims, call.options
    row, col = positions(d.T), positions(d.S)
    seen = call.shown(row, col)
    return dict(
        visible=seen if call.mask is None else seen & call.mask,
        scale=o.scale,
        soft_cap=o.soft_cap,
        bias=call.bias,
        rescore=lambda s: call.rescored(s, row, col, call.diff.get("score_params")),
        sink_logits=call.diff.get("sink_logits"),
        dropout=call.dropout(row, col, compute_dtype(call.q, call.k, call.v)),
        precision=o.precision,
    )
