"""The options of a call, each named, typed and explained once: `attend`, `explain`, caches and layers take these.

A function that passes options on declares `**options: Unpack[AttendOptions]`, so that editors complete them.
"""

import difflib
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from jax import Array
from jaxtyping import Bool, Float, Int

from attnjax.scores import Precision
from attnjax.segments import Segments


class RuleOptions(TypedDict, total=False):
    """How scores are made and multiplied: options of `attend` and `Cache.step`, and of `nn.Attention` when it is made.

    scale: factor on q . k; None means 1 / sqrt(H).
    soft_cap: scores become soft_cap * tanh(score / soft_cap); None means no cap.
    score_fn: score_fn(s, q_pos, k_pos, head, score_params) -> scores, elementwise on arrays that broadcast
        to [B, N, T, S] (ALiBi: Press et al. 2022); finite at hidden pairs too. Compared by identity. JAX arrays
        that it closes over are arguments like any other, as are those of a `Where`: traced, differentiable.
    precision: of the matrix products; None means HIGHEST with float32 inputs, DEFAULT with 16-bit ones.

    Example:
        >>> import attnjax as aj, jax.numpy as jnp
        >>> x, rule = jnp.ones((8, 2, 4)), aj.RuleOptions(scale=1.0, soft_cap=30.0)
        >>> aj.attend(x, x, x, aj.Causal(), **rule).shape
        (8, 2, 4)
    """

    scale: float | None
    soft_cap: float | None
    score_fn: Callable[..., Any] | None
    precision: Precision


class ScoreOptions(RuleOptions, total=False):
    """`RuleOptions`, and arrays without a length: options of `attend`, `Cache.step` and each call of `nn.Attention`.

    score_params: arrays for `score_fn`, any tree; differentiable.
    sink_logits: [N], logits that join each softmax without a value (gpt-oss 2025), neither scaled nor capped.

    Example:
        >>> import attnjax as aj, jax.numpy as jnp
        >>> x, sinks = jnp.ones((8, 2, 4)), aj.ScoreOptions(sink_logits=jnp.zeros(2))
        >>> aj.attend(x, x, x, aj.Causal(), **sinks)[0, 0, 0]  # exp(2) of exp(2) + exp(0)
        Array(0.8807971, dtype=float32)
    """

    score_params: Any
    sink_logits: Float[Array, "N"] | None


class AttendOptions(ScoreOptions, total=False):
    """Everything that `attend` and `explain` take beside q, k, v, the pattern and the backend.

    q_offset: position of query row 0. None means 0 when T == S; with T != S a pattern that depends on
        positions needs it: S - T aligns the ends (flash-attn), 0 the starts (jax.nn). An int plans tiles
        exactly; an integer array (one, or [B]) may be traced and is one program for all values.
    bias: floating, broadcasts to [*B, N, T, S], added last; -inf hides.
    mask: bool, broadcasts to [*B, N, T, S]; True means may look. It narrows the pattern.
    segments: packed documents, padding or lengths (see `Segments`); they narrow the pattern.
    dropout_rate: share of weights dropped, in [0, 1); which ones follows from `dropout_key` and position alone.
    dropout_key, dropout_shared: a JAX key, needed above rate 0; True drops alike in all sequences and heads.

    Example:
        >>> import attnjax as aj, jax.numpy as jnp
        >>> from typing import Unpack
        >>> def mine(q, k, v, **options: Unpack[aj.AttendOptions]):
        ...     return aj.attend(q, k, v, aj.Window(4), **options)
        >>> x = jnp.ones((8, 2, 4))
        >>> mine(x, x, x, mask=jnp.arange(8) > 0).shape
        (8, 2, 4)
    """

    q_offset: int | Int[Array, "*B"] | None
    bias: Float[Array, "..."] | None
    mask: Bool[Array, "..."] | None
    segments: Segments | None
    dropout_rate: float
    dropout_key: Array | None
    dropout_shared: bool


def check_names(options: Mapping[str, Any], known: type, where: str, more: tuple[str, ...] = ()) -> None:
    """Raises a TypeError for a name that is no option of `where`: neither of the typed dict `known` nor of `more`."""
    names = (*typing.get_type_hints(known), *more)
    for name in options:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{where} got an unexpected keyword argument {name!r}{hint} It takes {', '.join(names)}")
