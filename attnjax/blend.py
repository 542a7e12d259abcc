"""Softmax and blend: scores become weights, weights mix values. Also the softmax over parts of the keys.

A `Partial` is attention over some of the keys: out = sum of exp(s - max) v, the running max and
sum = sum of exp(s - max). Partials of disjoint key sets merge exactly (log-sum-exp), and `finish` divides.
A learned sink logit is no key: it enters once, at `finish`.
"""

import typing
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from attnjax.scores import Precision, matmul_precision
from attnjax.shapes import Output, Scores, Values, broadcasts, check_bool, check_float, compute_dtype, shown, to_rank


class Partial(NamedTuple):
    """Attention over some keys: out [..., h], max [...] and sum [...]."""

    out: Any
    max: Any
    sum: Any


def _xp(*arrays: Any) -> Any:
    """NumPy when every array is NumPy's, else jax.numpy."""
    return np if all(isinstance(a, (np.ndarray, np.generic)) for a in arrays) else jnp


def finite_max(m: Any) -> Any:
    """The max to subtract: 0 for a row that has seen no key, so that -inf - (-inf) never happens."""
    xp = _xp(m)
    return xp.where(xp.isneginf(m), xp.zeros_like(m), m)


def start(rows: tuple[int, ...], value_size: int, dtype: Any, xp: Any = jnp) -> Partial:
    """The Partial of no keys."""
    return Partial(
        xp.zeros((*rows, value_size), dtype), xp.full(rows, -xp.inf, dtype), xp.zeros(rows, dtype)
    )


def of_scores(s: Any, blend_values: Any) -> Partial:
    """The Partial of one set of keys; hidden scores are -inf; `blend_values(p)` mixes their values."""
    xp = _xp(s)
    m = xp.max(s, axis=-1, initial=-xp.inf)
    p = xp.exp(s - finite_max(m)[..., None])
    return Partial(blend_values(p), m, xp.sum(p, axis=-1))


def merge(a: Partial, b: Partial) -> Partial:
    """The Partial of two disjoint sets of keys."""
    xp = _xp(a.max, b.max)
    m = xp.maximum(a.max, b.max)
    scale_a, scale_b = xp.exp(a.max - finite_max(m)), xp.exp(b.max - finite_max(m))
    out = a.out * scale_a[..., None] + b.out * scale_b[..., None]
    return Partial(out, m, a.sum * scale_a + b.sum * scale_b)


def absorb(part: Partial, s: Any, blend_values: Any) -> Partial:
    """`merge(part, of_scores(s, blend_values))`, with one exponential for each score and one rescaling."""
    xp = _xp(s, part.max)
    m = xp.maximum(part.max, xp.max(s, axis=-1, initial=-xp.inf))
    scale, p = xp.exp(part.max - finite_max(m)), xp.exp(s - finite_max(m)[..., None])
    return Partial(part.out * scale[..., None] + blend_values(p), m, part.sum * scale + xp.sum(p, axis=-1))


def finish(part: Partial, sink_logits: Any = None) -> tuple[Any, Any]:
    """(output, log-sum-exp); a row without keys gives 0 and -inf (or the sink logit)."""
    xp = _xp(part.max, part.sum)
    if sink_logits is not None:
        none = Partial(xp.zeros_like(part.out), sink_logits + xp.zeros_like(part.max), xp.ones_like(part.sum))
        part = merge(part, none)
    empty = part.sum == 0
    total = xp.where(empty, xp.ones_like(part.sum), part.sum)
    lse = xp.where(empty, xp.full_like(total, -xp.inf), finite_max(part.max) + xp.log(total))
    return part.out / total[..., None], lse


def finished(o: Any, lse: Any) -> Partial:
    """The Partial of keys whose output [..., h] and log-sum-exp [...] are known."""
    return Partial(o, lse, jnp.where(jnp.isneginf(lse), jnp.zeros_like(lse), jnp.ones_like(lse)))


def finite_sinks(sink_logits: Any) -> Any:
    """A sink of +inf takes everything, as the largest float does; it makes no NaN."""
    return jnp.minimum(sink_logits, jnp.asarray(jnp.finfo(sink_logits.dtype).max, sink_logits.dtype))


def softmax(s: Any, visible: Any, sink_logits: Any = None) -> tuple[Any, Any]:
    """(weights, log-sum-exp) of scores [..., T, S]; hidden keys get exactly 0, an empty row all 0 and -inf.

    Hidden weights are 0 by selection: whatever cotangent reaches one, an infinite one too, ends there.
    """
    xp = _xp(s, visible)
    s = xp.where(visible, s, xp.full_like(s, -xp.inf))
    m = xp.max(s, axis=-1, initial=-xp.inf)
    m = m if sink_logits is None else xp.maximum(m, sink_logits)
    m = finite_max(m if xp is np else jax.lax.stop_gradient(m))
    e = xp.exp(s - m[..., None])
    total = xp.sum(e, axis=-1)
    total = total if sink_logits is None else total + xp.exp(sink_logits - m)
    empty = total == 0
    total = xp.where(empty, xp.ones_like(total), total)
    w = xp.where(xp.isneginf(s), xp.zeros_like(e), e / total[..., None])
    return w, xp.where(empty, xp.full_like(total, -xp.inf), m + xp.log(total))


@jax.jit
def _weights(s: Any, m: Any, sink_logits: Any) -> Any:
    sink = None if sink_logits is None else to_rank(finite_sinks(sink_logits.astype(s.dtype))[:, None], s.ndim - 1)
    return softmax(s, to_rank(m, s.ndim), sink)[0]


@typing.no_type_check
def weights(s: Scores, m: Bool[Array, "..."], *, sink_logits: Float[Array, "N"] | None = None) -> Scores:
    """Softmax of each row over its visible keys: hidden weights are exactly 0.

    Rows sum to 1; a row that sees no key is all 0; with `sink_logits` the missing share is the sink's
    (OpenAI 2025, gpt-oss; Xiao et al. 2023, "StreamingLLM").

    Args:
        s: scores [*B, N, T, S].
        m: bool mask that broadcasts to [*B, N, T, S], True means may look (see `visible`).
        sink_logits: one logit per head that takes part in the softmax without a value.

    Raises:
        TypeError: if `m` is not bool or `s` not floating.
        ValueError: if shapes do not fit.

    Example:
        >>> import attnjax as aj, jax.numpy as jnp
        >>> s = jnp.array([[[3.0, 0.0, 0.0]]])
        >>> [f"{share:.3f}" for share in aj.weights(s, jnp.array([True, True, True]))[0, 0]]
        ['0.909', '0.045', '0.045']
    """
    check_float(s=s, **({} if sink_logits is None else {"sink_logits": sink_logits}))
    check_bool(m=m)
    if not broadcasts(m, s.shape):
        raise ValueError(f"m must broadcast to the scores; got {shown(s=s, m=m)}")
    if sink_logits is not None and (s.ndim < 3 or sink_logits.shape != (s.shape[-3],)):
        raise ValueError(f"sink_logits holds one logit per head: [N]; got {shown(sink_logits=sink_logits, s=s)}")
    return _weights(jnp.asarray(s), jnp.asarray(m), None if sink_logits is None else jnp.asarray(sink_logits))


def grouped_blend(w: Any, v: Any, precision: Precision, dtype: Any) -> Any:
    """Weights [B, N, T, S] mix v [B, S, K, h] to [B, T, N, h] in `dtype`, without repeating v."""
    B, N, T, S = w.shape
    K = v.shape[2]
    w_BKGTS = w.reshape(B, K, N // K, T, S).astype(dtype)
    o = jnp.einsum("BKGTS,BSKh->BTKGh", w_BKGTS, v.astype(dtype), precision=precision)
    return o.reshape(B, T, N, v.shape[3])


@jax.jit
def _blend(w: Any, v: Any) -> Any:
    w4, v4 = (w[None], v[None]) if w.ndim == 3 else (w, v)
    o = grouped_blend(w4, v4, matmul_precision(None, v), compute_dtype(w, v)).astype(v.dtype)
    return o[0] if w.ndim == 3 else o


@typing.no_type_check
def blend(w: Scores, v: Values) -> Output:
    """Each query's output: the values mixed in the proportions of its weights. Vaswani et al. 2017, equation 1.

    Args:
        w: weights [*B, N, T, S].
        v: values [*B, S, K, h]; query head n uses value head n // (N / K).

    Returns:
        [*B, T, N, h], in v's dtype.

    Raises:
        TypeError: if one is not floating.
        ValueError: if shapes do not fit.

    Example:
        >>> import attnjax as aj, jax.numpy as jnp
        >>> aj.blend(jnp.array([[[0.75, 0.25]]]), jnp.array([[[4.0]], [[8.0]]])).tolist()
        [[[5.0]]]
    """
    check_float(w=w, v=v)
    fits = w.ndim == v.ndim and w.ndim in (3, 4) and w.shape[:-3] == v.shape[:-3] and w.shape[-1] == v.shape[-3]
    if not fits or w.shape[-3] % v.shape[-2]:
        raise ValueError(f"w must be [*B, N, T, S] and v [*B, S, K, h] with N a multiple of K; got {shown(w=w, v=v)}")
    return _blend(jnp.asarray(w), jnp.asarray(v))
