"""The attention weights themselves, for callers who ask for them."""

import functools
import math
from typing import Any

import jax

from attnjax.backends import dense
from attnjax.call import Call, Options, without_hidden_keys
from attnjax.door import call_of

LIMIT = 2 * 2**30  # bytes of one array of weights


def attention_weights(q: jax.Array, k: jax.Array, v: jax.Array, pattern: Any, **options: Any) -> jax.Array:
    """[*B, N, T, S] after dropout, float32 (float64 when an input is); the arguments are those of `attend`."""
    call, dims = call_of(q, k, v, pattern, **options)
    shape = (dims.B, dims.N, dims.T, dims.S)
    check_size(shape if dims.batched else shape[1:])
    weights = _weights(call.diff, call.facts, call.options)
    return weights if dims.batched else weights[0]


@functools.partial(jax.jit, static_argnames=("options",))
def _weights(diff: Any, facts: Any, options: Options) -> jax.Array:
    return dense.weights(without_hidden_keys(Call(options, diff, facts)))


def check_size(shape: tuple[int, ...], option: str = "return_weights=True") -> None:
    size = 4 * math.prod(shape)
    if size > LIMIT:
        raise ValueError(
            f"{option} would hold {shape} weights, {size / 2**30:.1f} GiB; the limit is 2 GiB. "
            "heads.report measures every head without keeping them"
        )


def check_backend(backend: str) -> None:
    """Weights come from the dense formula; a backend that never holds them cannot be asked for."""
    if backend not in ("auto", "dense"):
        raise ValueError(
            f"backend={backend!r} does not hold the weights; with return_weights=True use 'auto' or 'dense'"
        )
