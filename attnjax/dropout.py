"""Attention dropout by position: whether a score is kept is a hash of (key, b, n, i, j).

Every backend, layout and tile size therefore drops the same scores, and the backward recomputes the mask
instead of storing it. Srivastava et al. 2014, "Dropout"; the mixing is MurmurHash3's finaliser (Appleby 2011).
"""

import math
from typing import Any

import jax
import jax.numpy as jnp

from attnjax.scores import number


def check_rate(rate: object, key: Any) -> float:
    """The rate as a float in [0, 1).

    Raises:
        TypeError: if it is no number.
        ValueError: if it is outside [0, 1), or positive without a key.
    """
    rate = number("dropout_rate", rate, "a rate is a constant of the model", finite=False)
    if not 0.0 <= rate < 1.0 or math.isnan(rate):
        raise ValueError(f"dropout_rate={rate} must be at least 0 and below 1")
    if rate > 0 and key is None:
        raise ValueError(f"dropout_rate={rate} needs dropout_key= (an rng key, e.g. jax.random.key(0))")
    return rate


def check_key(key: Any, name: str = "key") -> Any:
    """One typed or raw JAX key, concrete or traced.

    Raises:
        TypeError: if it is none, or several.
    """
    words = jax.random.key_data(key) if _is_typed(key) else key
    if getattr(words, "dtype", None) != jnp.uint32 or words.ndim != 1 or words.size not in (2, 4):
        raise TypeError(f"{name}={key!r} is no single JAX key; make one with jax.random.key(seed)")
    return key


def _is_typed(key: Any) -> bool:
    return hasattr(key, "dtype") and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)


def seed_of(key: Any) -> Any:
    """Two uint32 words [1, 2] of a JAX key, typed or raw.

    Raises:
        TypeError: if it is no key.
    """
    check_key(key, "dropout_key")
    words = (jax.random.key_data(key) if _is_typed(key) else key).reshape(-1, 2)
    folded = words[0]
    for pair in words[1:]:
        folded = folded ^ pair  # implementations with longer keys
    return folded[None]


def _mix(h: Any, word: Any) -> Any:
    """One 32-bit word hashed into h, with every bit of both spread over the result."""
    h = h ^ (word * jnp.uint32(0x9E3779B1))
    h = (h ^ (h >> 16)) * jnp.uint32(0x85EBCA6B)
    h = (h ^ (h >> 13)) * jnp.uint32(0xC2B2AE35)
    return h ^ (h >> 16)


def factor(rate: float, seed: Any, b: Any, n: Any, i: Any, j: Any, dtype: Any) -> Any:
    """0 where a score is dropped, 1 / (1 - rate) where it is kept; arrays broadcast, words are uint32.

    `seed` holds two words in its last axis, with the broadcasting axes of the others before it.
    """
    h = _mix(_mix(seed[..., 0], seed[..., 1]), b.astype(jnp.uint32))
    for word in (n, i, j):
        h = _mix(h, word.astype(jnp.uint32))
    kept = h >= jnp.uint32(min(round(rate * 2**32), 2**32 - 1))
    return jnp.where(kept, jnp.asarray(1 / (1 - rate), dtype), jnp.zeros((), dtype))
