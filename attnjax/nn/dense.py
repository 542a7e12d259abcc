"""The attention weights themselves, for callers who ask for them."""

import math
from typing import Any

import jax

from attnjax.blend import weights
from attnjax.scores import scores
from attnjax.shapes import to_rank
from attnjax.visible import visible

LIMIT = 2 * 2**30  # bytes of one array of weights


def attention_weights(
    q: jax.Array,
    k: jax.Array,
    pattern: Any,
    *,
    scale: float | None = None,
    soft_cap: float | None = None,
    bias: jax.Array | None = None,
    mask: jax.Array | None = None,
) -> jax.Array:
    """[*B, N, T, S], float32 (float64 when an input is); the arguments are those of `attend`."""
    (T, N), S = q.shape[-3:-1], k.shape[-3]
    check_size((*q.shape[:-3], N, T, S))
    may_look = visible(pattern, T, S)
    if mask is not None:
        may_look = may_look & to_rank(mask, 4)
    s = scores(q, k, scale=scale, soft_cap=soft_cap, bias=bias)
    return weights(s, may_look)


def check_size(shape: tuple[int, ...]) -> None:
    size = 4 * math.prod(shape)
    if size > LIMIT:
        raise ValueError(
            f"return_weights=True would hold {shape} weights, {size / 2**30:.1f} GiB; the limit is 2 GiB. "
            "heads.report measures every head without keeping them"
        )


def check_backend(backend: str) -> None:
    """Weights come from the dense formula; a backend that never holds them cannot be asked for."""
    if backend not in ("auto", "dense"):
        raise ValueError(
            f"backend={backend!r} does not hold the weights; with return_weights=True use 'auto' or 'dense'"
        )
