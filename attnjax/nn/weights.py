"""The attention weights themselves, for callers who ask for them."""

import math
from typing import Any

import jax

from attnjax import backends
from attnjax.call import Call, without_hidden_keys
from attnjax.door import bind

LIMIT = 2 * 2**30  # bytes of one array of weights


def attention_weights(q: jax.Array, k: jax.Array, v: jax.Array, pattern: Any, **options: Any) -> jax.Array:
    """[*B, N, T, S] after dropout, float32 (float64 when an input is); the arguments are those of `attend`."""
    call, dims = bind(q, k, v, pattern, **options)
    shape = (dims.B, dims.N, dims.T, dims.S)
    check_size(shape if dims.batched else shape[1:])
    weights = _weights(call)
    return weights if dims.batched else weights[0]


@jax.jit
def _weights(call: Call) -> jax.Array:
    return backends.holding_weights()[1].weights(without_hidden_keys(call))


def check_size(shape: tuple[int, ...], option: str = "return_weights=True") -> None:
    size = 4 * math.prod(shape)
    if size > LIMIT:
        raise ValueError(
            f"{option} would hold {shape} weights, {size / 2**30:.1f} GiB; the limit is 2 GiB. "
            "heads.report measures every head without keeping them"
        )


def holding_weights(backend: str) -> str:
    """The backend that holds the weights, if `backend` lets it be chosen.

    Raises:
        ValueError: if another one is asked for.
    """
    name, _ = backends.holding_weights()
    if backend not in ("auto", name):
        raise ValueError(
            f"backend={backend!r} does not hold the weights; with return_weights=True use 'auto' or {name!r}"
        )
    return name
