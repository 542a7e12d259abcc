"""A decoder-only language model whose layers may each have a pattern of their own."""

import typing
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int, Num

from attnjax.dropout import check_rate
from attnjax.models.caches import Caches, enter
from attnjax.models.config import Config
from attnjax.models.run import Options, run_blocks, scan_periods
from attnjax.nn.attention import Attention
from attnjax.nn.block import Block
from attnjax.nn.embed import Embedding, Head
from attnjax.nn.inputs import check_tokens
from attnjax.nn.mlp import SwiGLU
from attnjax.nn.norm import RMSNorm
from attnjax.scores import capped
from attnjax.segments import Segments


class WithWeights(NamedTuple):
    """What the decoder returns under `return_weights=True`.

    Example:
        >>> import jax.numpy as jnp
        >>> from attnjax import models
        >>> from flax import nnx
        >>> config = models.Config(vocab_size=32, d_model=16, num_layers=2, num_heads=2, layout="G",
        ...                        legend={"G": "causal()"})
        >>> model = models.Decoder(config, rngs=nnx.Rngs(0))
        >>> logits, weights = model(jnp.zeros((1, 5), int), return_weights=True)
        >>> logits.shape, len(weights), weights[0].shape
        ((1, 5, 32), 2, (1, 2, 5, 5))
    """

    logits: jax.Array  # [B, T, vocab]
    weights: tuple[jax.Array, ...]  # one [B, N, T, T] per layer


class WithCache(NamedTuple):
    """What the decoder returns under `cache=`."""

    logits: jax.Array
    cache: Caches


class WithCacheAndWeights(NamedTuple):
    """What the decoder returns under `cache=` and `return_weights=True`."""

    logits: jax.Array
    cache: Caches
    weights: tuple[jax.Array, ...]  # one [B, N, T, slots + T] per layer, see `Cache.step`


class Period(nnx.Module):
    """The blocks of one pass through the layout."""

    def __init__(self, blocks: list[Block]):
        self.blocks = nnx.List(blocks)


class Decoder(nnx.Module):
    """Token embedding, blocks, final norm, output head.

    Whole periods of the layout live stacked in `periods` (a leading axis on every parameter) and run under
    `jax.lax.scan`; what is left over, or everything with `config.scan=False`, lives in `rest`. `block(i)` is
    layer i either way. Call it under `jax.jit`.

    Args:
        config: the shape of the model.
        rngs: where the first weights come from. Layer i draws the same numbers with and without `scan`.
        allow_future: accept patterns that look ahead. Next-token training then leaks the target; the switch
            is for experiments that measure what leaking does.

    Raises:
        TypeError: if `config` is no Config.
        ValueError: if a layer's pattern sees the future and is not exactly `Prefix(n)`. With a prefix, give
            the targets inside it weight 0 in training.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from attnjax import models
        >>> from flax import nnx
        >>> config = models.Config(vocab_size=32, d_model=16, num_layers=2, num_heads=2, layout="LG",
        ...                        legend={"L": "window(4)", "G": "causal()"})
        >>> graph, params = nnx.split(models.Decoder(config, rngs=nnx.Rngs(0)), nnx.Param)
        >>> logits = jax.jit(lambda params, tokens: nnx.merge(graph, params)(tokens))
        >>> logits(params, jnp.zeros((1, 8), int)).shape
        (1, 8, 32)
    """

    @typing.no_type_check
    def __init__(self, config: Config, *, rngs: nnx.Rngs, allow_future: bool = False):
        if not isinstance(config, Config):
            raise TypeError(f"config is a {type(config).__name__}; give a Config")
        if not allow_future:
            _refuse_future(config)
        self.config = config
        tables = dict(dtype=config.dtype, param_dtype=config.param_dtype, rngs=rngs)
        self.embedding = Embedding(config.vocab_size, config.d_model, scale=config.embedding_scale, **tables)
        self.head = nnx.data(
            None if config.tie_embeddings else Head(config.d_model, config.vocab_size, **tables)
        )
        self.norm = RMSNorm(
            config.d_model, eps=config.norm_eps, dtype=config.dtype, param_dtype=config.param_dtype
        )
        keys = layer_keys(rngs.params(), config.num_layers)
        stacked = config.num_periods * len(config.layout)
        self.periods = nnx.data(_stacked(config, by_period(keys[:stacked], config)) if stacked else None)
        self.rest = nnx.List(
            [make_block(config, config.letters[i], keys[i]) for i in range(stacked, config.num_layers)]
        )

    @typing.no_type_check
    def __call__(
        self,
        tokens: Int[Array, "B T"],
        *,
        positions: Num[Array, "... T"] | None = None,
        segments: Segments | None = None,
        cache: Caches | None = None,
        deterministic: bool = True,
        dropout_key: jax.Array | None = None,
        return_weights: bool = False,
        backend: str = "auto",
    ) -> Float[Array, "B T vocab"] | WithCache | WithWeights | WithCacheAndWeights:
        """Logits for the token after each position.

        Args:
            tokens: ids in [0, vocab_size). Outside `jax.jit` any other id is an error; inside, where ids are
                not known, its vector is NaN, which the logits show.
            positions: where the tokens stand for the rotary embedding, [T] or [B, T], and nothing else; None
                means 0, 1, 2, ... Patterns count rows.
            segments: documents packed into one row, or padding, see `Segments`. With its positions="segment"
                patterns restart at every document, and so does the rotary embedding unless `positions` say
                where the tokens stand.
            cache: from `init_cache` or an earlier call: tokens are the next of each row. Excludes positions and
                dropout; segments may only be the rows' lengths, `Segments.from_lengths(q=)`. A row that one layer
                has no room for is an error; inside jit it stays as it was in every layer, its logits are NaN and
                `refused` of the caches is True.
            deterministic: True switches dropout off.
            dropout_key: a JAX key, folded with each layer's number; needed with `deterministic=False` and a
                `config.dropout_rate` above 0.
            return_weights: also return every layer's attention weights; runs dense.
            backend: as in `attend`.

        Returns:
            Logits, float32 (float64 when config.dtype is), or with `cache` and `return_weights` a named tuple
            (logits, cache), (logits, weights) or (logits, cache, weights).

        Raises:
            TypeError: if tokens are no array of integers.
            ValueError: if tokens are not [B, T], an id is outside the vocabulary, positions are given to a
                model without rotation, dropout lacks its key, or the cache is another model's or has no room.
        """
        check_tokens(tokens)
        if tokens.ndim != 2:
            raise ValueError(f"tokens{tuple(tokens.shape)} must be [B, T]; a single sequence is tokens[None]")
        if positions is not None and all(self.config.rope(letter) is None for letter in self.config.letters):
            raise ValueError("positions= feeds the rotary embedding only, and this model has theta=None")
        refused = None
        if cache is not None:
            dropping = not deterministic and self.config.dropout_rate > 0
            segments, refused = enter(cache, self.config, tokens.shape, positions, segments, dropping)
        options = Options(return_weights, backend, self.config.remat)
        keys = self._dropout_keys(deterministic, dropout_key)
        x, weights, caches = self.run_layers(self.embedding(tokens), (positions, segments), keys, cache, options)
        logits = self.logits(x)
        if refused is not None:
            logits = jnp.where(refused[:, None, None], jnp.asarray(jnp.nan, logits.dtype), logits)
            caches = caches.refusing(refused)
        if cache is None:
            return WithWeights(logits, weights) if return_weights else logits
        return WithCacheAndWeights(logits, caches, weights) if return_weights else WithCache(logits, caches)

    def logits(self, x: jax.Array) -> jax.Array:
        """The head's answer to what comes out of the last block."""
        logits = (self.embedding if self.head is None else self.head).logits(self.norm(x))
        return capped(logits, self.config.logits_soft_cap)

    def init_cache(self, *, batch: int, max_length: int, dtype: Any = None, positions: str = "text") -> Caches:
        """Empty caches for `batch` rows of up to `max_length` tokens, one for each layer.

        Args:
            batch, max_length: as in `Cache.create`. Layers that keep fewer tokens have no end.
            dtype: in which keys and values are kept; None is `config.dtype`.
            positions: where tokens stand for the rotary embedding, "text" or "cache", see `Cache.create`.
        """
        dtype = self.config.dtype if dtype is None else dtype
        return Caches.create(self.config, batch=batch, max_length=max_length, dtype=dtype, positions=positions)

    def run_layers(self, x: Any, where: Any, keys: Any, cache: Caches | None, options: Options) -> tuple[Any, Any, Any]:
        """(x after the last block, every layer's weights, the caches afterwards)."""
        stacked = self.config.num_periods * len(self.config.layout)
        periods, rest = ((), ()) if cache is None else (cache.periods, cache.rest)
        weights: tuple[Any, ...] = ()
        if self.periods is not None:
            graph, stack = nnx.split(self.periods)
            per_period = None if keys is None else by_period(keys[:stacked], self.config)
            x, weights, periods = scan_periods(graph, stack, x, where, per_period, periods, options)
        x, more, rest = run_blocks(self.rest, x, where, None if keys is None else keys[stacked:], rest, options)
        return x, weights + more, None if cache is None else Caches(periods, rest)

    def _dropout_keys(self, deterministic: bool, key: Any) -> Any:
        """A key for every layer, or None where nothing is dropped."""
        if deterministic or not check_rate(self.config.dropout_rate, key):
            return None
        return layer_keys(key, self.config.num_layers)

    def block(self, i: int) -> Block:
        """Layer i with its own parameters (a copy, where layers are stacked).

        Raises:
            IndexError: if there is no layer i.
        """
        if not 0 <= i < self.config.num_layers:
            raise IndexError(f"layer {i} of {self.config.num_layers}")
        period, place = divmod(i, len(self.config.layout))
        if self.periods is None or period >= self.config.num_periods:
            return self.rest[i - self.config.num_periods * len(self.config.layout)]
        graph, state = nnx.split(self.periods.blocks[place])
        return nnx.merge(graph, jax.tree.map(lambda stack: stack[period], state))


def _refuse_future(config: Config) -> None:
    for letter in dict.fromkeys(config.letters):
        pattern = config.legend[letter]
        if pattern.sees_future and not pattern.is_prefix:
            raise ValueError(
                f"legend[{letter!r}] = {pattern} looks at tokens after the query, so a next-token model sees "
                "its own target; write it & causal(), use prefix(n), or pass allow_future=True on purpose"
            )


def layer_keys(key: jax.Array, num_layers: int) -> jax.Array:
    """One key per layer; the first n do not depend on how many layers follow."""
    return jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(num_layers, dtype=jnp.uint32))


def by_period(keys: jax.Array, config: Config) -> jax.Array:
    """Keys of layers [L] as [period, layer]."""
    return keys.reshape(-1, len(config.layout), *keys.shape[1:])


def make_block(config: Config, letter: str, key: jax.Array) -> Block:
    """A block of this letter. Both projections into the residual stream start 1 / sqrt(2 num_layers) smaller
    (Radford et al. 2019, GPT-2), so that the stream keeps its size with depth."""
    rngs = nnx.Rngs(key)
    shared = dict(dtype=config.dtype, param_dtype=config.param_dtype)
    attention = make_attention(config, letter, rngs)
    options = dict(use_bias=config.mlp_bias, activation=config.activation)
    mlp = SwiGLU(config.d_model, config.ff_dim, rngs=rngs, **options, **shared)
    for kernel in (attention.out.kernel, mlp.down.kernel):
        kernel[...] = kernel[...] * jnp.asarray((2 * config.num_layers) ** -0.5, config.param_dtype)
    return Block(attention, mlp, norm_eps=config.norm_eps, post_norms=config.post_norms, **shared)


def make_attention(config: Config, letter: str, rngs: nnx.Rngs) -> Attention:
    """The attention of a block of this letter."""
    return Attention(
        config.d_model,
        config.num_heads,
        config.num_kv_heads,
        config.head_dim,
        pattern=config.legend[letter],
        rope=config.rope(letter),
        qk_norm=config.qk_norm,
        qk_norm_eps=config.qk_norm_eps,
        scale=config.scale,
        soft_cap=config.soft_cap,
        precision=config.precision,
        use_bias=config.use_bias,
        out_bias=config.out_bias,
        learned_sinks=config.learned_sinks,
        dropout_rate=config.dropout_rate,
        dtype=config.dtype,
        param_dtype=config.param_dtype,
        rngs=rngs,
    )


def _stacked(config: Config, keys: jax.Array) -> Period:
    """All whole periods as one Period whose parameters have a leading axis; keys are [period, layer]."""
    graphs = []

    def parameters(keys: jax.Array) -> Any:
        blocks = [make_block(config, letter, keys[i]) for i, letter in enumerate(config.layout)]
        graph, state = nnx.split(Period(blocks))
        graphs.append(graph)
        return state

    stack = jax.vmap(parameters)(keys)
    return nnx.merge(graphs[0], stack)
