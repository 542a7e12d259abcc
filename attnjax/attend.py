"""attend: one call of attention, by the backend that suits it, behind the one derivative seam."""

import functools
import typing
from typing import Unpack

import jax
from jax.ad_checkpoint import checkpoint_name

from attnjax import seam
from attnjax.backends import BACKENDS, settled
from attnjax.backends.base import default_target
from attnjax.call import Call, without_hidden_keys
from attnjax.door import bind
from attnjax.options import AttendOptions, check_names
from attnjax.patterns import Pattern, PerHead
from attnjax.shapes import Keys, Lse, Output, Queries, Values
from attnjax.sharded import run_split, split_of


@typing.no_type_check
def attend(
    q: Queries, k: Keys, v: Values, pattern: Pattern | PerHead, *, backend: str = "auto", return_lse: bool = False,
    **options: Unpack[AttendOptions],
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
        backend: "auto", or one of the names that `explain` lists.
        return_lse: also return the log-sum-exp of each row, [*B, T, N] in float32 (float64 for float64 inputs).
        options: scale, soft_cap, score_fn, score_params, bias, mask, sink_logits, segments, q_offset, dropout and
            precision, each as `AttendOptions` says.

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
    check_names(options, AttendOptions, "attend", attend)
    call, dims = bind(q, k, v, pattern, **options)
    needs_lse = return_lse or call.diff.sink_logits is not None
    o, lse = run(call, settled(call, backend, needs_lse), needs_lse)
    o, lse = (o, lse) if dims.batched else (o[0], lse[0])
    return (o, lse) if return_lse else o


@functools.partial(jax.jit, static_argnames=("backend", "lse"))
def run(call: Call, backend: str, lse: bool) -> tuple[jax.Array, jax.Array]:
    """(output, log-sum-exp) of a call, whose backend is `settled`; jitted, so that equal options share one trace.

    The log-sum-exp may be NaN where it is not asked for.
    """
    split = split_of(call)
    if split is not None:
        return run_split(functools.partial(_run, backend=backend, lse=lse), call, split)
    return _run(call, backend, lse)


def _run(call: Call, backend: str, lse: bool) -> tuple[jax.Array, jax.Array]:
    call = without_hidden_keys(call)
    if backend != "auto" and BACKENDS[backend].plain:
        o, of_rows = map(checkpoint_name, BACKENDS[backend].forward(call, default_target()), seam.SAVED)
        return o, of_rows
    return seam.run(call, backend, lse)
