"""Multi-head attention with any pattern, as a module that owns its projections and nothing else."""

import typing
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Num

from attnjax.attend import attend
from attnjax.nn.dense import attention_weights, check_backend
from attnjax.nn.norm import RMSNorm
from attnjax.patterns import Pattern, PerHead
from attnjax.patterns.checks import integer
from attnjax.rope import Rope
from attnjax.scores import check_scale, check_soft_cap
from attnjax.visible import check_pattern


class WithWeights(NamedTuple):
    """What a layer returns under `return_weights=True`."""

    y: jax.Array  # [B, T, D]
    weights: jax.Array  # [B, N, T, S]; rows sum to 1, or are 0 where a query sees no key


class Attention(nnx.Module):
    """Attention over a sequence: multi-head (Vaswani et al. 2017), grouped-query (Ainslie et al. 2023) or
    multi-query (Shazeer 2019).

    `num_heads` query heads share `num_kv_heads` key and value heads; query head n uses key head
    n // (num_heads // num_kv_heads).

    Weights are stored [in, out]: `query.kernel` [d_model, N * H], `key.kernel` and `value.kernel`
    [d_model, K * H], `out.kernel` [N * H, d_model].

    Args:
        d_model: size of the input and of the output.
        num_heads: query heads N.
        num_kv_heads: key and value heads K, a divisor of N; None means N, 1 is multi-query.
        head_dim: size H of a head; None means d_model / num_heads.
        pattern: which keys a query may look at. A layer without one would guess, so it must be given.
        rope: rotation of queries and keys: None, a `Rope`, a mapping of its settings, or a number, its theta.
        qk_norm: RMSNorm over each head of q and k, before the rotation (Qwen3, Gemma 3).
        soft_cap: scores become soft_cap * tanh(score / soft_cap); None leaves them.
        scale: factor on q.k; None means 1 / sqrt(H).
        use_bias: biases on query, key and value.
        out_bias: bias on the output; None means as `use_bias`.
        learned_sinks: not available in this version, False only.
        dropout_rate: not available in this version, 0 only.
        dtype: dtype of the computation and of the output; scores and softmax are float32 at least.
        param_dtype: dtype of the parameters.
        rngs: where the first weights come from (truncated normal of variance 1 / fan-in).

    Raises:
        TypeError: if a size is not an int, `pattern` not a pattern or `rope` none of its forms.
        ValueError: if sizes do not fit together or an option has a value that cannot be honoured.

    Example:
        >>> import attnjax as aj, jax.numpy as jnp
        >>> from attnjax import nn
        >>> from flax import nnx
        >>> layer = nn.Attention(64, 4, num_kv_heads=2, pattern=aj.Window(8), rope=1e4, rngs=nnx.Rngs(0))
        >>> layer(jnp.ones((2, 16, 64))).shape
        (2, 16, 64)
    """

    @typing.no_type_check
    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        *,
        pattern: Pattern | PerHead,
        rope: Rope | Mapping[str, Any] | float | None = None,
        qk_norm: bool = False,
        soft_cap: float | None = None,
        scale: float | None = None,
        use_bias: bool = False,
        out_bias: bool | None = None,
        learned_sinks: bool = False,
        dropout_rate: float = 0.0,
        dtype: Any = jnp.float32,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        _check_dropout(dropout_rate)
        _refuse(learned_sinks=learned_sinks or None)
        D, N, K, H = head_sizes(d_model, num_heads, num_kv_heads, head_dim)
        self.d_model, self.num_heads, self.num_kv_heads, self.head_dim = D, N, K, H
        self.pattern = pattern_for(pattern, N)
        self.rope = as_rope(rope, H)
        self.scale, self.soft_cap = check_scale(scale, H), check_soft_cap(soft_cap)
        self.dropout_rate, self.dtype = dropout_rate, dtype

        options = dict(dtype=dtype, param_dtype=param_dtype, rngs=rngs)
        self.query = nnx.Linear(D, N * H, use_bias=use_bias, **options)
        self.key = nnx.Linear(D, K * H, use_bias=use_bias, **options)
        self.value = nnx.Linear(D, K * H, use_bias=use_bias, **options)
        self.out = nnx.Linear(N * H, D, use_bias=use_bias if out_bias is None else out_bias, **options)
        norms = [RMSNorm(H, dtype=dtype, param_dtype=param_dtype) if qk_norm else None for _ in range(2)]
        self.query_norm, self.key_norm = map(nnx.data, norms)

    @typing.no_type_check
    def __call__(
        self,
        x: Float[Array, "... T D"],
        kv: Float[Array, "... S D"] | None = None,
        *,
        positions: Num[Array, "... T"] | None = None,
        segments: Any = None,
        mask: Bool[Array, "..."] | None = None,
        cache: Any = None,
        deterministic: bool = True,
        dropout_key: jax.Array | None = None,
        return_weights: bool = False,
        backend: str = "auto",
    ) -> Float[Array, "... T D"] | WithWeights:
        """Attends from x to itself, or to `kv` (cross attention).

        The pattern always counts rows: query row i is position i and key row j is position j. A pattern that
        depends on positions therefore needs as many rows in `kv` as in x; cross attention normally uses
        `Full()` with `mask=`.

        Args:
            x: [B, T, D] or [T, D].
            kv: [B, S, D] or [S, D], where keys and values come from; None means x.
            positions: where the queries stand for `rope`, [T] or [B, T], and nothing else; None means row
                0, 1, 2, ... In self attention the keys stand there too, rows of `kv` always count from 0.
            segments: not available in this version, None only.
            mask: True = may look, broadcast to [B, N, T, S]; narrows the pattern.
            cache: not available in this version, None only.
            deterministic: True switches dropout off; while `dropout_rate` is 0 only, both values do the same.
            dropout_key: not needed while `dropout_rate` is 0.
            return_weights: also return the attention weights. Runs dense, whatever the length.
            backend: as in `attend`.

        Returns:
            y, or `WithWeights(y, weights)` with `return_weights=True`.

        Raises:
            TypeError: if `mask` is not bool.
            ValueError: if shapes do not fit, the pattern needs T == S, an option is not available, or the
                weights would take over 2 GiB.
        """
        _refuse(cache=cache, segments=segments)
        q, k, v = self.project(x, kv, positions=positions)
        check_lengths(self.pattern, q.shape[-3], k.shape[-3])
        options = dict(scale=self.scale, soft_cap=self.soft_cap, mask=mask)
        if not return_weights:
            return self._combine(attend(q, k, v, self.pattern, backend=backend, **options))
        check_backend(backend)
        y = self._combine(attend(q, k, v, self.pattern, backend="dense", **options))
        return WithWeights(y, attention_weights(q, k, self.pattern, **options))

    @typing.no_type_check
    def project(
        self,
        x: Float[Array, "... T D"],
        kv: Float[Array, "... S D"] | None = None,
        *,
        positions: Num[Array, "... T"] | None = None,
    ) -> tuple[Float[Array, "... T N H"], Float[Array, "... S K H"], Float[Array, "... S K H"]]:
        """Queries, keys and values as they meet in the scores: projected, normalised, rotated."""
        source = x if kv is None else kv
        self._check_inputs(x, source, positions)
        q = self.query(x).reshape(*x.shape[:-1], self.num_heads, self.head_dim)
        k, v = (
            side(source).reshape(*source.shape[:-1], self.num_kv_heads, self.head_dim)
            for side in (self.key, self.value)
        )
        if self.query_norm is not None and self.key_norm is not None:
            q, k = self.query_norm(q), self.key_norm(k)
        if self.rope is not None:
            rows = positions if positions is not None else jnp.arange(x.shape[-2])
            q = self.rope(q, rows)
            k = self.rope(k, rows if kv is None else jnp.arange(source.shape[-2]))
        return q, k, v

    def _combine(self, o: jax.Array) -> jax.Array:
        return self.out(o.reshape(*o.shape[:-2], self.num_heads * self.head_dim))

    def _check_inputs(self, x: Any, source: Any, positions: Any) -> None:
        for name, array in (("x", x), ("kv", source)):
            if array.ndim not in (2, 3) or array.shape[-1] != self.d_model:
                raise ValueError(
                    f"{name}{array.shape} must be [B, T, D] or [T, D] with D = d_model = {self.d_model}"
                )
        if x.shape[:-2] != source.shape[:-2]:
            raise ValueError(f"x{x.shape} and kv{source.shape} must have the same batch axis")
        if positions is not None and self.rope is None:
            raise ValueError("positions= feeds rope only, and this layer has rope=None; leave positions out")


def _refuse(**options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{name}= is not available in this version; leave it None")


def head_sizes(
    d_model: Any, num_heads: Any, num_kv_heads: Any = None, head_dim: Any = None
) -> tuple[int, int, int, int]:
    """(D, N, K, H) as ints that fit together, or an error that names the two that do not."""
    D, N = integer("d_model", d_model, 1), integer("num_heads", num_heads, 1)
    K = N if num_kv_heads is None else integer("num_kv_heads", num_kv_heads, 1)
    if N % K:
        near = max(n for n in range(1, N + 1) if N % n == 0 and n <= K)
        raise ValueError(
            f"num_heads={N} is not a multiple of num_kv_heads={K}; every key head serves the same number of "
            f"query heads, so take num_kv_heads={near} or num_heads={K * -(-N // K)}"
        )
    if head_dim is None and D % N:
        raise ValueError(
            f"d_model={D} is not a multiple of num_heads={N}; give head_dim= (any size works) or take "
            f"d_model={N * -(-D // N)}"
        )
    return D, N, K, D // N if head_dim is None else integer("head_dim", head_dim, 1)


def _check_dropout(dropout_rate: float) -> None:
    if not 0.0 <= dropout_rate < 1.0:
        raise ValueError(f"dropout_rate={dropout_rate} must be at least 0 and below 1")
    if dropout_rate:
        raise ValueError(f"dropout_rate={dropout_rate}: dropout is not available in this version; leave it 0")


def pattern_for(pattern: Any, num_heads: int) -> Any:
    """The pattern, if it is one and has a part for every head."""
    check_pattern(pattern)
    if isinstance(pattern, PerHead) and len(pattern.patterns) != num_heads:
        raise ValueError(f"{pattern} has {len(pattern.patterns)} heads, but num_heads={num_heads}")
    return pattern


def as_rope(rope: Any, head_dim: int) -> Rope | None:
    """The forms that `rope=` takes, as one record that fits heads of this size."""
    if rope is None:
        return None
    if isinstance(rope, Mapping):
        rope = Rope(**rope)
    elif not isinstance(rope, Rope):
        if isinstance(rope, bool) or not isinstance(rope, (int, float)):
            raise TypeError(
                f"rope={rope!r} is a {type(rope).__name__}; give None, Rope(theta=10000.0), a mapping of its "
                "settings or a number (its theta)"
            )
        rope = Rope(theta=rope)
    rope.check_head(head_dim)
    return rope


def check_lengths(pattern: Any, T: int, S: int) -> None:
    if T != S and pattern.depends_on_positions:
        raise ValueError(
            f"x has T={T} rows and kv S={S}, but {pattern} compares positions, and both sides count from 0; "
            "for cross attention use Full() with mask=, or call attend(..., q_offset=) on project(x, kv)"
        )
