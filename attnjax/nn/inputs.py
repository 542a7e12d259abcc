"""The arrays that a layer is called with, checked before anything is computed."""

from typing import Any

import jax.numpy as jnp

from attnjax.shapes import check_float, shown


def check_vectors(x: Any, what: str, size: int) -> None:
    """x is a floating array whose last axis has this size.

    Raises:
        TypeError: if it is no floating array.
        ValueError: if its last axis has another size.
    """
    check_float(x=x)
    if x.ndim == 0 or x.shape[-1] != size:
        raise ValueError(f"{shown(x=x)} does not end in {what}={size}")


def check_sequences(x: Any, kv: Any, d_model: int) -> None:
    """x [*B, T, D] and kv [*B, S, D], or None for x again.

    Raises:
        TypeError: if one is no floating array.
        ValueError: if the shapes do not fit the layer or each other.
    """
    check_float(x=x)
    source = x if kv is None else kv
    check_float("; kv are vectors that keys and values come from, a mask is given by name: mask=", kv=source)
    for name, array in (("x", x), ("kv", source)):
        if array.ndim not in (2, 3) or array.shape[-1] != d_model:
            raise ValueError(f"{shown(**{name: array})} must be [B, T, D] or [T, D] with D = d_model = {d_model}")
    if x.shape[:-2] != source.shape[:-2]:
        raise ValueError(f"{shown(x=x)} and {shown(kv=source)} must have the same batch axis")


def check_tokens(tokens: Any) -> None:
    """Token ids are an array of integers.

    Raises:
        TypeError: if they are not.
    """
    if not hasattr(tokens, "dtype"):
        raise TypeError(f"tokens is a {type(tokens).__name__}, not an array; write jnp.asarray(tokens)")
    if not jnp.issubdtype(tokens.dtype, jnp.integer):
        raise TypeError(f"tokens have dtype {tokens.dtype}; token ids are integers")
