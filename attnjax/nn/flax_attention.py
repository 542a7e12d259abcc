"""Our patterns inside flax's own `nnx.MultiHeadAttention`."""

import math
import typing
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from flax.nnx.nn.dtypes import promote_dtype

from attnjax.attend import attend
from attnjax.nn.settings import pattern_for
from attnjax.nn.weights import attention_weights, check_size
from attnjax.patterns import Causal, Pattern, PerHead
from attnjax.shapes import broadcasts, check_float, check_heads, shown, to_rank
from attnjax.visible import check_pattern


@typing.no_type_check
def attention_fn(pattern: Pattern | PerHead) -> Callable[..., jax.Array]:
    """A function for `nnx.MultiHeadAttention(attention_fn=...)` that attends by `pattern`.

    It takes what flax's `dot_product_attention` takes: query, key and value with the same leading axes, `mask`
    (flax's helpers make it of floats: nonzero = may look), `bias`, `is_causal`, `dtype`, `precision`, dropout
    (`broadcast_dropout` drops alike in all sequences and heads, as in flax by default), and
    `sow_weights=True` of the module. `is_causal` and `mask` only narrow the pattern. A query that sees no key
    gives 0, where flax gives the mean of all values.

    Args:
        pattern: which keys a query may look at.

    Returns:
        The function.

    Raises:
        TypeError: if `pattern` is not a pattern.
        ValueError: (the function) if query, key, value, bias or mask do not fit together; if T != S and the pattern
            depends on positions, as in flax's decode mode, which does not say where the query stands; if dropout
            is on without an rng; if `input_positions` are given.

    Example:
        >>> import attnjax as aj, jax.numpy as jnp
        >>> from attnjax import nn
        >>> from flax import nnx
        >>> layer = nnx.MultiHeadAttention(
        ...     2, 16, decode=False, rngs=nnx.Rngs(0), attention_fn=nn.attention_fn(aj.Window(4)))
        >>> layer(jnp.ones((1, 8, 16))).shape
        (1, 8, 16)
    """
    return _AttentionFn(check_pattern(pattern))


class _AttentionFn:
    """Compares by its pattern, so that two modules with equal patterns share one compiled program."""

    def __init__(self, pattern: Any):
        self.pattern = pattern

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _AttentionFn) and self.pattern == other.pattern

    def __hash__(self) -> int:
        return hash((_AttentionFn, self.pattern))

    def __repr__(self) -> str:
        return f"attention_fn({self.pattern})"

    def __call__(
        self,
        query: Any,
        key: Any,
        value: Any,
        bias: Any = None,
        mask: Any = None,
        broadcast_dropout: bool = True,
        dropout_rng: Any = None,
        dropout_rate: float = 0.0,
        deterministic: bool = False,
        dtype: Any = None,
        precision: Any = None,
        module: Any = None,
        promote_dtype: Any = promote_dtype,
        is_causal: bool = False,
        input_positions: Any = None,
    ) -> jax.Array:
        if input_positions is not None:
            raise ValueError("input_positions= is for a rope, and attention_fn has none; use nn.Attention")
        query, key, value = promote_dtype((query, key, value), dtype=dtype)
        _check_shapes(query, key, value)
        lead, (T, N), S = query.shape[:-3], query.shape[-3:-1], key.shape[-3]
        pattern = pattern_for(_narrowed(self.pattern, is_causal), N)
        _check_lengths(pattern, T, S)
        if module is not None:
            check_size((*lead, N, T, S), "sow_weights=True")
        q, k, v = (x.reshape(math.prod(lead), *x.shape[-3:]) for x in (query, key, value))
        options = dict(
            bias=None if bias is None else _flat("bias", bias, lead, (N, T, S)),
            mask=None if mask is None else _flat("mask", mask, lead, (N, T, S)) != 0,
            dropout_rate=0.0 if deterministic else dropout_rate,
            dropout_key=dropout_rng,
            dropout_shared=broadcast_dropout,
            precision=precision,
        )
        o: Any = attend(q, k, v, pattern, **options)
        if module is not None:
            weights = attention_weights(q, k, v, pattern, **options)
            module.sow(nnx.Intermediate, "attention_weights", weights.reshape(*lead, N, T, S))
        return o.reshape(*lead, *o.shape[1:])


def _narrowed(pattern: Any, is_causal: bool) -> Any:
    if not is_causal:
        return pattern
    if isinstance(pattern, PerHead):
        return PerHead(tuple(p & Causal() for p in pattern.patterns))
    return pattern & Causal()


def _flat(name: str, x: Any, lead: tuple[int, ...], last: tuple[int, int, int]) -> Any:
    """`x`, broadcastable to [*lead, N, T, S], with its leading axes as one: all of them, or 1."""
    x = jnp.asarray(x)
    if not broadcasts(x, (*lead, *last)):
        raise ValueError(f"{name}{x.shape} does not broadcast to the scores [batch..., N, T, S] = {(*lead, *last)}")
    x = to_rank(x, len(lead) + 3)
    if math.prod(x.shape[: len(lead)]) != 1:
        x = jnp.broadcast_to(x, (*lead, *x.shape[len(lead) :]))
    return x.reshape(math.prod(x.shape[: len(lead)]), *x.shape[len(lead) :])


def _check_shapes(query: Any, key: Any, value: Any) -> None:
    """What `attend` checks, of the arrays as they came: their leading axes are about to become one."""
    check_float(query=query, key=key, value=value)
    got = f"got {shown(query=query, key=key, value=value)}"
    if not query.ndim == key.ndim == value.ndim >= 3:
        raise ValueError(f"query, key and value must be [batch..., length, heads, head size], of one rank; {got}")
    for rule, sizes in (
        ("query, key and value must have the same leading axes", [x.shape[:-3] for x in (query, key, value)]),
        ("key and value must have the same length", [x.shape[-3] for x in (key, value)]),
        ("key and value must have the same heads", [x.shape[-2] for x in (key, value)]),
        ("query and key must have the same head size, at least 1", [query.shape[-1] or None, key.shape[-1]]),
    ):
        if len(set(sizes)) > 1:
            raise ValueError(f"{rule}; {got}")
    check_heads(query.shape[-2], key.shape[-2], got)


def _check_lengths(pattern: Any, T: int, S: int) -> None:
    if T != S and pattern.depends_on_positions:
        raise ValueError(
            f"{T} queries and {S} keys: {pattern} compares positions, and flax does not say where queries "
            "are. In decode use nn.Attention with a Cache; for cross attention Full() with mask="
        )
