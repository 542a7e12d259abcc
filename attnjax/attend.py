"""attend: choose a backend for a call and run it, behind the one derivative seam."""

import difflib
import functools
import logging
import typing
from collections.abc import Callable
from typing import Any

import jax
from jax import Array
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Bool, Float, Int

from attnjax import seam
from attnjax.backends import BACKENDS
from attnjax.call import Call, Options, without_hidden_keys
from attnjax.door import call_of
from attnjax.patterns import Pattern, PerHead
from attnjax.scores import Precision
from attnjax.segments import Segments
from attnjax.shapes import Keys, Lse, Output, Queries, Values
from attnjax.tile_sizes import UNJITTED, small_scores

log = logging.getLogger("attnjax")


@typing.no_type_check
def attend(
    q: Queries, k: Keys, v: Values, pattern: Pattern | PerHead, *, q_offset: int | Int[Array, "*B"] | None = None,
    scale: float | None = None, soft_cap: float | None = None, bias: Float[Array, "..."] | None = None,
    mask: Bool[Array, "..."] | None = None, sink_logits: Float[Array, "N"] | None = None,
    segments: Segments | None = None, score_fn: Callable[..., Any] | None = None, score_params: Any = None,
    dropout_rate: float = 0.0, dropout_key: Array | None = None, dropout_shared: bool = False,
    precision: Precision = None, backend: str = "auto", return_lse: bool = False,
) -> Output | tuple[Output, Lse]:  # fmt: skip
    """Attention under a pattern: each query blends the values that it may look at.

    softmax(score_fn(cap(q . k * scale)) + bias, over visible keys) v. A key is visible if the pattern shows it,
    `segments` put it in the query's segment and `mask` is True there. A query that sees no key gives 0,
    log-sum-exp -inf and gradient 0. Differentiable in every mode and order, under every backend;
    `jax.checkpoint` can save what a derivative needs by the names "attnjax_output" and "attnjax_lse". Vaswani et
    al. 2017, "Attention Is All You Need"; tiles and backward after Dao et al. 2022, "FlashAttention".

    Args:
        q, k, v: [*B, T, N, H], [*B, S, K, H], [*B, S, K, h], all with or all without the batch axis. Query head n
            uses key head n // (N / K): K = N is multi-head, K = 1 multi-query attention.
        pattern: which key positions a query position may look at. Key row j is position j.
        q_offset: position of query row 0. None means 0 when T == S; with T != S a pattern that depends on
            positions needs it: S - T aligns the ends (flash-attn), 0 the starts (jax.nn). An int plans tiles
            exactly; an integer array (one, or [B]) may be traced and is one program for all values.
        scale: factor on q . k; None means 1 / sqrt(H).
        soft_cap: scores become soft_cap * tanh(score / soft_cap); None means no cap.
        bias: floating, broadcasts to [*B, N, T, S], added last; -inf hides.
        mask: bool, broadcasts to [*B, N, T, S]; True means may look. It narrows the pattern.
        sink_logits: [N], logits that join each softmax without a value (gpt-oss 2025), neither scaled nor capped.
        segments: packed documents, padding or lengths (see `Segments`); they narrow the pattern.
        score_fn: score_fn(s, q_pos, k_pos, head, score_params) -> scores, elementwise on arrays that broadcast
            to [B, N, T, S] (ALiBi: Press et al. 2022); finite at hidden pairs too. Compared by identity. JAX arrays
            that it closes over are arguments like any other, as are those of a `Where`: traced, differentiable.
        score_params: arrays for `score_fn`, any tree; differentiable.
        dropout_rate: share of weights dropped, in [0, 1); which ones follows from `dropout_key` and position alone.
        dropout_key, dropout_shared: a JAX key, needed above rate 0; True drops alike in all sequences and heads.
        precision: of the matrix products; None means HIGHEST with float32 inputs, DEFAULT with 16-bit ones.
        backend: "auto", or one of the names that `explain` lists.
        return_lse: also return the log-sum-exp of each row, [*B, T, N] in float32 (float64 for float64 inputs).

    Returns:
        [*B, T, N, h] in q's dtype; with `return_lse` also the log-sum-exp.

    Raises:
        TypeError, ValueError: what is wrong with which argument, the rule, and the way out.

    Example:
        >>> import attnjax as aj, jax.numpy as jnp
        >>> q, k, v = (jnp.ones((2, 16, n, 8)) for n in (4, 2, 2))  # 4 query heads share 2 key heads
        >>> aj.attend(q, k, v, aj.Window(4) | aj.Sink(1)).shape
        (2, 16, 4, 8)
    """
    call, dims = call_of(
        q, k, v, pattern, q_offset, scale, soft_cap, bias, mask, sink_logits, segments, score_fn, score_params,
        dropout_rate, dropout_key, dropout_shared, precision,
    )  # fmt: skip
    o, lse = run(call.diff, call.facts, call.options, choose(call, backend)[0])
    o, lse = (o, lse) if dims.batched else (o[0], lse[0])
    return (o, lse) if return_lse else o


@functools.partial(jax.jit, static_argnames=("options", "backend"))
def run(diff: Any, facts: Any, options: Options, backend: str) -> tuple[Any, Any]:
    """The call on arrays with a batch axis; jitted, so that equal options share one trace."""
    call = without_hidden_keys(Call(options, diff, facts))
    if not BACKENDS[backend].HAS_BACKWARD:
        o, lse = map(checkpoint_name, BACKENDS[backend].forward(call), seam.SAVED)
        return o, lse
    return seam.run(seam.Static(options, backend), call.diff, facts)


def choose(call: Call, backend: str) -> tuple[str, dict[str, str]]:
    """(name of the backend, reason for each backend); a named backend that cannot run raises.

    Raises:
        ValueError: for an unknown name, or a backend that cannot run the call.
    """
    usable = {name: module.why_not(call) for name, module in BACKENDS.items()}
    names = ", ".join(["'auto'", *(repr(n) for n, why in usable.items() if why is None)])
    if backend != "auto":
        if backend not in BACKENDS:
            near = difflib.get_close_matches(str(backend), ["auto", *BACKENDS], 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"backend={backend!r} is unknown; usable here: {names}.{hint}")
        if usable[backend] is not None:
            raise ValueError(f"backend={backend!r} cannot run this call: {usable[backend]}; usable here: {names}")
    small, size = _small(call)
    best = "dense" if small else next(n for n, why in usable.items() if why is None)
    chosen = best if backend == "auto" else backend
    reasons = {}
    for name, why in usable.items():
        if name == chosen:
            reasons[name] = f"chosen: {'named by the caller' if backend != 'auto' else size}"
        else:
            reasons[name] = f"cannot run: {why}" if why else f"can run; {size}, where auto takes {best}"
    log.debug("attend %s: %s", call.options.pattern, reasons[chosen])
    return chosen, reasons


def _small(call: Call) -> tuple[bool, str]:
    """Whether computing all scores at once is faster than visiting tiles, and why."""
    d, most = call.dims, small_scores(jax.default_backend())
    size, what = d.T * d.S, f"T x S = {d.T} x {d.S} is"
    config: Any = jax.config
    if config.jax_disable_jit:  # loops over tiles then run in Python, hundreds of times slower
        size, most, what = d.B * d.N * size, UNJITTED, f"jit is switched off and {d.B * d.N * size:,} in all are"
    return size <= most, f"{what} {'at most' if size <= most else 'over'} {most} scores"
