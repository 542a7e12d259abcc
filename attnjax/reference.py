"""What everything means: dense attention, and one head with every step named."""

import functools
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from attnjax.blend import finite_sinks, grouped_blend, softmax
from attnjax.patterns import Full, Pattern
from attnjax.scores import Precision, check_scale, grouped_scores, matmul_precision
from attnjax.shapes import check_float, compute_dtype, shown
from attnjax.visible import check_pattern, visible


class Trace(NamedTuple):
    """The twelve steps of one head, in order. `scaled` = scores * scale, `masked` = scaled + M."""

    x: Any
    wq: Any
    wk: Any
    wv: Any
    q: Any
    k: Any
    v: Any
    scores: Any
    scaled: Any
    masked: Any
    weights: Any
    out: Any


def attention(
    q: Any, k: Any, v: Any, visible: Any, *, scale: float, rule: Callable[[Any], Any] | None = None,
    sink_logits: Any = None, dropout: Any = None, precision: Precision = None,
) -> tuple[Any, Any]:  # fmt: skip
    """Dense attention: q [B, T, N, H], k [B, S, K, H], v [B, S, K, h], visible [B|1, N|1, T|1, S|1].

    Args:
        rule: what follows the scaled products [B, N, T, S]: soft cap, score_fn, bias.
        sink_logits: [B|1, N], takes part in the softmax without a value.
        dropout: factors [B, N, T, S] on the weights.

    Returns:
        (output [B, T, N, h] in q's dtype, log-sum-exp [B, T, N]).
    """
    more: Any = dict(scale=scale, rule=rule, sink_logits=sink_logits, dropout=dropout, precision=precision)
    w_BNTS, lse_BNT = attention_weights(q, k, visible, **more)
    o_BTNh = grouped_blend(w_BNTS, v, matmul_precision(precision, v), compute_dtype(q, k, v)).astype(q.dtype)
    return jnp.where(looking(visible), o_BTNh, jnp.zeros_like(o_BTNh)), jnp.swapaxes(lse_BNT, 1, 2)


def attention_weights(
    q: Any, k: Any, visible: Any, *, scale: float, rule: Callable[[Any], Any] | None = None, sink_logits: Any = None,
    dropout: Any = None, precision: Precision = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(weights [B, N, T, S] after dropout, log-sum-exp [B, N, T]); arguments as in `attention`."""
    q = jnp.where(looking(visible), q, jnp.zeros_like(q))
    s_BNTS = grouped_scores(q, k, scale, precision)
    s_BNTS = s_BNTS if rule is None else rule(s_BNTS)
    sink = None if sink_logits is None else finite_sinks(sink_logits[:, :, None].astype(s_BNTS.dtype))
    w_BNTS, lse_BNT = softmax(s_BNTS, jnp.broadcast_to(visible, s_BNTS.shape), sink)
    if dropout is not None:
        w_BNTS = jnp.where(dropout == 0, jnp.zeros_like(w_BNTS), w_BNTS * dropout)
    return w_BNTS, lse_BNT


def looking(visible: Any) -> Any:
    """Which queries see a key, bool [B|1, T|1, N|1, 1]. The others count as 0 before any product, and what they give
    is 0 by selection: neither their numbers nor cotangents of theirs (NaN, say) reach anything."""
    return jnp.swapaxes(jnp.any(visible, axis=-1, keepdims=True), 1, 2)


def _trace(x: Any, wq: Any, wk: Any, wv: Any, seen: Any, scale: float) -> Trace:
    """The steps with the operators of NumPy and JAX arrays alike."""
    q, k, v = x @ wq, x @ wk, x @ wv
    xp = np if isinstance(x, np.ndarray) else jnp
    scores = q @ xp.swapaxes(k, -1, -2)
    scaled = scores * scale
    masked = xp.where(seen, scaled, xp.full_like(scaled, -xp.inf))
    weights = softmax(scaled, seen)[0]
    return Trace(x, wq, wk, wv, q, k, v, scores, scaled, masked, weights, weights @ v)


@functools.partial(jax.jit, static_argnames=("scale",))
def _trace_jax(x: Any, wq: Any, wk: Any, wv: Any, seen: Any, scale: float) -> Trace:
    with jax.default_matmul_precision("highest"):
        return _trace(x, wq, wk, wv, jnp.broadcast_to(seen, (*x.shape[:-1], x.shape[-2])), scale)


@typing.no_type_check
def trace(
    x: Float[Array, "*B T D"],
    wq: Float[Array, "D H"],
    wk: Float[Array, "D H"],
    wv: Float[Array, "D h"],
    *,
    pattern: Pattern | None = None,
    scale: float | None = None,
) -> Trace:
    """Self-attention of one head with every intermediate kept, in the order it is computed.

    Vaswani et al. 2017, "Attention Is All You Need", equation 1.

    Args:
        x: token vectors [*B, T, D].
        wq, wk, wv: projections [D, H], [D, H] and [D, h]: q = x @ wq and so on.
        pattern: which keys a query may look at; None means `Full()`.
        scale: factor on the scores; None means 1 / sqrt(H).

    Returns:
        `Trace` with fields x, wq, wk, wv, q, k, v, scores, scaled, masked, weights, out. NumPy arrays in give
        NumPy arrays out, in their own dtype (float64 stays float64); JAX arrays give JAX arrays.

    Raises:
        TypeError: if an array is not floating or `pattern` is none.
        ValueError: if shapes do not fit.

    Example:
        >>> import attnjax as aj, numpy as np
        >>> steps = aj.trace(np.eye(2), np.eye(2), np.eye(2), np.eye(2), pattern=aj.Causal())
        >>> steps._fields[-3:], steps.weights[0].tolist(), steps.out.dtype
        (('masked', 'weights', 'out'), [1.0, 0.0], dtype('float64'))
    """
    arrays = {"x": x, "wq": wq, "wk": wk, "wv": wv}
    check_float(**arrays)
    pattern = Full() if pattern is None else check_pattern(pattern)
    if not isinstance(pattern, Pattern):
        raise TypeError(f"trace follows one head: pass one of the heads' patterns, not {pattern}")
    if x.ndim < 2 or any(w.ndim != 2 or w.shape[0] != x.shape[-1] for w in (wq, wk, wv)):
        raise ValueError(f"x must be [*B, T, D] and wq, wk, wv [D, H], [D, H], [D, h]; got {shown(**arrays)}")
    if wq.shape != wk.shape:
        raise ValueError(f"wq and wk must have one shape, so that q . k is defined; got {shown(**arrays)}")
    T, scale = x.shape[-2], check_scale(scale, wq.shape[1], compute_dtype(*arrays.values()))
    if all(isinstance(a, np.ndarray) for a in arrays.values()):
        seen = np.broadcast_to(pattern.mask(T), (*x.shape[:-1], T))
        return _trace(x, wq, wk, wv, seen, scale)
    seen = visible(pattern, T)[0, 0]
    seen = seen.reshape((1,) * (x.ndim - 2) + seen.shape)
    return _trace_jax(*(jnp.asarray(a) for a in arrays.values()), seen, scale)
