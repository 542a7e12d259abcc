"""The score rule: q . k * scale, soft cap, + bias."""

import functools
import math
import typing
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from attnjax.shapes import Keys, Queries, Scores, broadcasts, check_float, check_heads, compute_dtype, shown, to_rank

Precision = str | jax.lax.Precision | None


def check_scale(scale: object, head_size: int, dtype: Any = jnp.float32) -> float:
    """The scale as a float that `dtype` holds; 1 / sqrt(head size) for None.

    Raises:
        TypeError: if it is no Python or NumPy number.
        ValueError: if it is not finite, or `dtype` cannot hold it.
    """
    return head_size**-0.5 if scale is None else number("scale", scale, "multiply q by a traced scale instead", dtype)


def check_soft_cap(soft_cap: object, name: str = "soft_cap", dtype: Any = jnp.float32) -> float | None:
    """The soft cap: None, or a finite float above 0 that `dtype` holds.

    Raises:
        TypeError: if it is no Python or NumPy number.
        ValueError: if it is not finite and positive, or `dtype` cannot hold it.
    """
    if soft_cap is None:
        return None
    cap = number(name, soft_cap, "the cap is a constant of the model", dtype)
    if cap <= 0:
        raise ValueError(f"{name}={cap} must be above 0 (values are kept inside +-{name}); None means no cap")
    return cap


def number(name: str, value: object, way_out: str, dtype: Any = jnp.float32, finite: bool = True) -> float:
    """`value` as a finite float that `dtype` holds, or an error that names the argument, the value and the way out."""
    if isinstance(value, bool) or isinstance(value, Array) or not hasattr(value, "__float__"):
        raise TypeError(f"{name}={value!r} is a {type(value).__name__}; it must be a Python number ({way_out})")
    try:
        found = float(value)  # type: ignore[arg-type]  # it has __float__
    except OverflowError:
        raise ValueError(f"{name} is larger than any float; it must be finite") from None
    if not finite:
        return found
    if not math.isfinite(found):
        raise ValueError(f"{name}={found} must be finite")
    smallest, largest = float(jnp.finfo(dtype).tiny), float(jnp.finfo(dtype).max)
    if found and not smallest <= abs(found) <= largest:
        raise ValueError(
            f"{name}={found} does not fit into {jnp.dtype(dtype)}, in which it is used: 0 and sizes from "
            f"{smallest:.2g} to {largest:.2g} do"
        )
    return found


def matmul_precision(precision: Precision, *arrays: Any) -> jax.lax.Precision:
    """What `precision=None` means: HIGHEST with a 32- or 64-bit input, DEFAULT when all are 16-bit."""
    if precision is not None:
        return jax.lax.Precision(precision)
    wide = any(a is not None and a.dtype.itemsize > 2 for a in arrays)
    return jax.lax.Precision.HIGHEST if wide else jax.lax.Precision.DEFAULT


def check_precision(precision: object) -> Precision:
    """None or anything that `jax.lax.Precision` knows.

    Raises:
        ValueError: listing the known names.
    """
    if precision is None:
        return None
    try:
        return jax.lax.Precision(precision)
    except ValueError:
        names = ", ".join(repr(p.name.lower()) for p in jax.lax.Precision)
        raise ValueError(f"precision={precision!r} is unknown; use None, {names}") from None


def capped(x: Any, soft_cap: float | None) -> Any:
    """soft_cap * tanh(x / soft_cap): keeps scores inside +-soft_cap. Gemma Team 2024, "Gemma 2"."""
    return x if soft_cap is None else soft_cap * jnp.tanh(x / soft_cap)


def grouped_scores(q: Any, k: Any, scale: float, precision: Precision) -> Any:
    """q . k * scale of q [B, T, N, H] and k [B, S, K, H], [B, N, T, S], without repeating k."""
    B, T, N, H = q.shape
    K = k.shape[2]
    dtype = compute_dtype(q, k)
    q_BTKGH = q.reshape(B, T, K, N // K, H).astype(dtype)
    s_BKGTS = jnp.einsum(
        "BTKGH,BSKH->BKGTS", q_BTKGH, k.astype(dtype), precision=matmul_precision(precision, q, k)
    )
    return s_BKGTS.reshape(B, N, T, k.shape[1]) * scale


@functools.partial(jax.jit, static_argnames=("scale", "soft_cap"))
def _scores(q: Any, k: Any, bias: Any, scale: float, soft_cap: float | None) -> Any:
    s = grouped_scores(q[None] if q.ndim == 3 else q, k[None] if k.ndim == 3 else k, scale, None)
    s = capped(s[0] if q.ndim == 3 else s, soft_cap)
    return s if bias is None else s + to_rank(bias, s.ndim).astype(s.dtype)


@typing.no_type_check
def scores(
    q: Queries,
    k: Keys,
    *,
    scale: float | None = None,
    soft_cap: float | None = None,
    bias: Float[Array, "..."] | None = None,
) -> Scores:
    """Every query scored against every key: q . k * scale, then soft cap, then + bias.

    Vaswani et al. 2017, "Attention Is All You Need", equation 1; grouped heads: Ainslie et al. 2023, "GQA".

    Args:
        q: queries [*B, T, N, H].
        k: keys [*B, S, K, H]; query head n uses key head n // (N / K).
        scale: factor on the dot products; None means 1 / sqrt(H).
        soft_cap: scores become soft_cap * tanh(score / soft_cap); None means no cap.
        bias: added after the cap; broadcasts to [*B, N, T, S].

    Returns:
        Scores [*B, N, T, S], float32 (float64 when an input is).

    Raises:
        TypeError: if an array is not floating, or `scale` or `soft_cap` no number.
        ValueError: if shapes do not fit, or `soft_cap` is not above 0.

    Example:
        >>> import attnjax as aj, jax.numpy as jnp
        >>> q = jnp.array([[[2.0, 0.0]]])
        >>> k = jnp.array([[[1.5, 0.0]], [[0.0, 1.5]], [[0.0, 0.0]]])
        >>> aj.scores(q, k, scale=1.0).tolist()
        [[[3.0, 0.0, 0.0]]]
    """
    check_float(q=q, k=k, **({} if bias is None else {"bias": bias}))
    q, k = jnp.asarray(q), jnp.asarray(k)
    if q.ndim not in (3, 4) or q.ndim != k.ndim or q.shape[:-3] != k.shape[:-3] or q.shape[-1] != k.shape[-1]:
        got = shown(q=q, k=k)
        raise ValueError(f"q must be [*B, T, N, H] and k [*B, S, K, H], of one batch and head size; got {got}")
    check_heads(q.shape[-2], k.shape[-2], shown(q=q, k=k))
    bias = None if bias is None else jnp.asarray(bias)
    shape = (*q.shape[:-3], q.shape[-2], q.shape[-3], k.shape[-3])
    if bias is not None and not broadcasts(bias, shape):
        raise ValueError(f"bias must broadcast to the scores {shape}; got {shown(bias=bias)}")
    dtype = compute_dtype(q, k)
    return _scores(q, k, bias, check_scale(scale, q.shape[-1], dtype), check_soft_cap(soft_cap, dtype=dtype))
