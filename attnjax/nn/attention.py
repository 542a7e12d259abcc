"""Multi-head attention with any pattern, as a module that owns its projections and nothing else."""

import typing
from collections.abc import Mapping
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Num

from attnjax.attend import attend
from attnjax.cache import Cache
from attnjax.dropout import check_rate
from attnjax.nn.cached import check_cached
from attnjax.nn.inputs import check_sequences
from attnjax.nn.norm import RMSNorm
from attnjax.nn.score_module import ModuleRule
from attnjax.nn.settings import as_rope, head_sizes, pattern_for
from attnjax.nn.standing import restarts, standing
from attnjax.nn.weights import attention_weights, check_size, holding_weights
from attnjax.options import RuleOptions, ScoreOptions, check_names
from attnjax.patterns import Pattern, PerHead
from attnjax.rope import Rope
from attnjax.score_rule import rule_of
from attnjax.scores import check_precision
from attnjax.segments import Segments
from attnjax.shapes import wide_dtype
from attnjax.visible import positions as rows_from_0


class WithWeights(NamedTuple):
    """What a layer returns under `return_weights=True`.

    Example:
        >>> import attnjax as aj, jax.numpy as jnp
        >>> from attnjax import nn
        >>> from flax import nnx
        >>> layer = nn.Attention(8, 2, pattern=aj.Causal(), rngs=nnx.Rngs(0))
        >>> y, weights = layer(jnp.ones((1, 5, 8)), return_weights=True)
        >>> y.shape, weights.shape
        ((1, 5, 8), (1, 2, 5, 5))
    """

    y: jax.Array  # [B, T, D]
    weights: jax.Array  # [B, N, T, S] after dropout; without it and sinks rows sum to 1, or 0 if they see no key


class WithCache(NamedTuple):
    """What a layer returns under `cache=`."""

    y: jax.Array
    cache: Cache


class WithCacheAndWeights(NamedTuple):
    """What a layer returns under `cache=` and `return_weights=True`."""

    y: jax.Array
    cache: Cache
    weights: jax.Array  # [B, N, T, slots + T], see `Cache.step`


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
        qk_norm_eps: its eps.
        use_bias: biases on query, key and value.
        out_bias: bias on the output; None means as `use_bias`.
        learned_sinks: one learned logit per query head, `sinks` [N], that joins every softmax without a value
            (gpt-oss 2025), so that a head may look at nothing. They start at 0 and are neither scaled nor capped.
        dropout_rate: share of the attention weights that a call with `deterministic=False` drops.
        dtype: dtype of the computation and of the output; scores and softmax are float32 at least.
        param_dtype: dtype of the parameters.
        rngs: where the first weights come from (truncated normal of variance 1 / fan-in).
        options: scale, soft_cap, score_fn and precision, as `RuleOptions` says. A score_fn may be an `nnx.Module`,
            whose parameters then belong to the layer and learn; it is called without score_params (None).

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
        qk_norm_eps: float = 1e-6,
        use_bias: bool = False,
        out_bias: bool | None = None,
        learned_sinks: bool = False,
        dropout_rate: float = 0.0,
        dtype: Any = jnp.float32,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
        **options: Unpack[RuleOptions],
    ):
        check_names(options, RuleOptions, "nn.Attention")
        D, N, K, H = head_sizes(d_model, num_heads, num_kv_heads, head_dim)
        self.d_model, self.num_heads, self.num_kv_heads, self.head_dim = D, N, K, H
        self.pattern = pattern_for(pattern, N)
        self.rope = as_rope(rope, H)
        module = options["score_fn"] if isinstance(options.get("score_fn"), nnx.Module) else None
        given = options if module is None else options | {"score_fn": None}
        self.rule, self.precision = rule_of(given, H, wide_dtype(dtype)), check_precision(options.get("precision"))
        self.score_module = nnx.data(module)
        self.dropout_rate = check_rate(dropout_rate, key="given with each call")
        self.dtype = dtype

        kind = dict(dtype=dtype, param_dtype=param_dtype, rngs=rngs)
        self.query = nnx.Linear(D, N * H, use_bias=use_bias, **kind)
        self.key = nnx.Linear(D, K * H, use_bias=use_bias, **kind)
        self.value = nnx.Linear(D, K * H, use_bias=use_bias, **kind)
        self.out = nnx.Linear(N * H, D, use_bias=use_bias if out_bias is None else out_bias, **kind)
        norm = dict(eps=qk_norm_eps, dtype=dtype, param_dtype=param_dtype)
        norms = [RMSNorm(H, **norm) if qk_norm else None for _ in range(2)]
        self.query_norm, self.key_norm = map(nnx.data, norms)
        self.sinks = nnx.data(nnx.Param(jnp.zeros((N,), param_dtype)) if learned_sinks else None)

    @typing.no_type_check
    def __call__(
        self,
        x: Float[Array, "... T D"],
        kv: Float[Array, "... S D"] | None = None,
        *,
        positions: Num[Array, "... T"] | None = None,
        segments: Segments | None = None,
        mask: Bool[Array, "..."] | None = None,
        bias: Float[Array, "..."] | None = None,
        cache: Any = None,
        deterministic: bool = True,
        dropout_key: jax.Array | None = None,
        return_weights: bool = False,
        backend: str = "auto",
        **options: Unpack[ScoreOptions],
    ) -> Float[Array, "... T D"] | WithWeights:
        """Attends from x to itself, or to `kv` (cross attention).

        The pattern counts rows, query row i being position i and key row j position j, unless
        `segments` restart it. A pattern that depends on positions therefore needs as many rows in `kv` as in x;
        cross attention normally uses `Full()` with `mask=` or `segments=`.

        Args:
            x: [B, T, D] or [T, D].
            kv: [B, S, D] or [S, D], where keys and values come from; None means x.
            positions: where the queries stand for `rope`, [T] or [B, T], and nothing else; None means row
                0, 1, 2, ... In self attention the keys stand there too; rows of `kv` count from 0.
            segments: documents packed into one row, padding or lengths; see `Segments`. Its positions="segment"
                restarts pattern and rope at every document, but for the rows that `positions` places.
            mask: True = may look, broadcast to [B, N, T, S]; narrows the pattern.
            bias: floating, broadcast to [B, N, T, S], added to the scores; -inf hides.
            cache: from `init_cache` or an earlier call; x are the next T tokens of each row. Excludes kv, mask, bias,
                positions and dropout; segments may only be the rows' lengths, `Segments.from_lengths(q=)`.
            deterministic: True switches dropout off.
            dropout_key: a JAX key; needed with `deterministic=False` and a `dropout_rate` above 0. Layers that
                share a key drop the same pairs, so fold the layer's number into it.
            return_weights: also return the attention weights, after dropout. Runs dense, whatever the length.
            backend: as in `attend`.
            options: score_params and sink_logits, as `ScoreOptions` says (how scores are made was said to the layer).

        Returns:
            y, (y, cache), (y, weights) or (y, cache, weights), as named tuples.

        Raises:
            TypeError: if x or `kv` is no floating array, `mask` not bool, or `cache` no Cache.
            ValueError: if shapes or the cache do not fit, the pattern needs T == S, or weights take over 2 GiB.
        """
        scored = self.scored(options)
        if cache is not None:
            check_cached(self, cache, x, kv, positions, segments, mask, bias, deterministic)
            return self._with_cache(x, cache, segments, return_weights, backend, scored)
        q, k, v = self.project(x, kv, positions=positions, segments=segments)
        if not restarts(segments):
            check_lengths(self.pattern, q.shape[-3], k.shape[-3])
        rate = 0.0 if deterministic else self.dropout_rate
        more = dict(
            mask=mask, bias=bias, segments=segments, dropout_rate=rate, dropout_key=dropout_key if rate else None
        )  # fmt: skip
        if not return_weights:
            return self._combine(attend(q, k, v, self.pattern, backend=backend, **scored, **more))
        backend = holding_weights(backend)
        weights = attention_weights(q, k, v, self.pattern, **scored, **more)
        return WithWeights(self._combine(attend(q, k, v, self.pattern, backend=backend, **scored, **more)), weights)

    def scored(self, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """How this layer makes scores, as `attend` takes it, with what a call may add.

        Raises:
            TypeError: for an option that was fixed when the layer was made, or that there is not.
            ValueError: if the layer has what is given, as parameters of its own.
        """
        options = dict(options or {})
        for name in options:
            if name in typing.get_type_hints(RuleOptions):
                raise TypeError(f"{name}= was fixed when the layer was made: nn.Attention(..., {name}=)")
        check_names(options, ScoreOptions, "a call of nn.Attention")
        found: Any = self.rule.options | {"precision": self.precision} | options
        for own, name in ((self.sinks, "sink_logits"), (self.score_module, "score_params")):
            if own is not None and options.get(name) is not None:
                raise ValueError(f"this layer has {name} of its own, which learn; leave {name}= out")
        if self.sinks is not None:
            found["sink_logits"] = self.sinks[...]
        if self.score_module is not None:
            graph, found["score_params"] = nnx.split(self.score_module)
            found["score_fn"] = ModuleRule(graph)
        return found

    @typing.no_type_check
    def project(
        self,
        x: Float[Array, "... T D"],
        kv: Float[Array, "... S D"] | None = None,
        *,
        positions: Num[Array, "... T"] | None = None,
        segments: Segments | None = None,
    ) -> tuple[Float[Array, "... T N H"], Float[Array, "... S K H"], Float[Array, "... S K H"]]:
        """Queries, keys and values as they meet in the scores: projected, normalised, rotated."""
        check_sequences(x, kv, self.d_model)
        if positions is not None and self.rope is None:
            raise ValueError("positions= feeds rope only, and this layer has rope=None; leave positions out")
        at = None if self.rope is None else standing(self.rope, x, kv, positions, segments)
        q, k, v = self._heads(x, x if kv is None else kv)
        if at is not None:
            q, k = self.rope(q, at.q, at.q_length), self.rope(k, at.k, at.k_length)
        return q, k, v

    def init_cache(self, *, batch: int, max_length: int, dtype: Any = None, positions: str = "text") -> Cache:
        """An empty cache for this layer, as `Cache.create` makes it; dtype None is the layer's own."""
        return Cache.create(
            self.pattern, batch=batch, num_kv_heads=self.num_kv_heads, head_dim=self.head_dim, max_length=max_length,
            dtype=self.dtype if dtype is None else dtype, positions=positions, rope=self.rope,
        )  # fmt: skip

    def _with_cache(
        self, x: Any, cache: Cache, segments: Any, return_weights: bool, backend: str, scored: dict[str, Any],
    ) -> Any:  # fmt: skip
        if return_weights:
            holding_weights(backend)
            check_size((cache.batch, self.num_heads, x.shape[1], cache.slots.size + x.shape[1]))
        q, k, v = self._heads(x, x)
        if self.rope is not None and cache.rope is None:
            rows = cache.length[:, None] + rows_from_0(x.shape[1])[None]
            q, k = self.rope(q, rows), self.rope(k, rows)
        found = cache.step(
            q, k, v, lengths=None if segments is None else segments.q_lengths, backend=backend,
            return_weights=return_weights, **scored,
        )  # fmt: skip
        y = self._combine(found[0])
        return WithCacheAndWeights(y, *found[1:]) if return_weights else WithCache(y, found[1])

    def _heads(self, x: Any, source: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Queries, keys and values, projected and normalised."""
        q = self.query(x).reshape(*x.shape[:-1], self.num_heads, self.head_dim)
        k, v = (
            side(source).reshape(*source.shape[:-1], self.num_kv_heads, self.head_dim)
            for side in (self.key, self.value)
        )
        if self.query_norm is not None and self.key_norm is not None:
            q, k = self.query_norm(q), self.key_norm(k)
        return q, k, v

    def _combine(self, o: jax.Array) -> jax.Array:
        return self.out(o.reshape(*o.shape[:-2], self.num_heads * self.head_dim))


def check_lengths(pattern: Any, T: int, S: int) -> None:
    if T != S and pattern.depends_on_positions:
        raise ValueError(
            f"x has T={T} rows and kv S={S}, but {pattern} compares positions, and both sides count from 0; "
            "for cross attention use Full() with mask=, or call attend(..., q_offset=) on project(x, kv)"
        )
