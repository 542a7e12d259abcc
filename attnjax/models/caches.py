"""Caches: one cache for each layer of a decoder, each of the kind that the layer's pattern picks."""

import dataclasses
import functools
import typing
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Bool, Int

from attnjax.cache import Cache
from attnjax.cache.checks import check_tokens
from attnjax.models.config import Config
from attnjax.nn.cached import check_options
from attnjax.segments import Segments


@typing.no_type_check
@functools.partial(jax.tree_util.register_dataclass, data_fields=("periods", "rest"), meta_fields=())
@dataclasses.dataclass(frozen=True)
class Caches:
    """The caches of a decoder's layers; `caches[i]` is that of layer i. Made by `Decoder.init_cache`.

    A pytree of static shape, like `Cache`: a donated one is dead, go on with the one that came back.

    Args:
        periods: one stack for each place in the layout, with a leading axis of whole periods; () if none are
            stacked.
        rest: the caches of the layers that are not stacked.

    Raises:
        IndexError: if there is no such layer.
        TypeError, ValueError: as the methods of `Cache` of the same name.

    Example:
        >>> from attnjax import models
        >>> from flax import nnx
        >>> config = models.Config(vocab_size=32, d_model=16, num_layers=4, num_heads=2, layout="LG",
        ...                        legend={"L": "window(4) | sink(1)", "G": "causal()"})
        >>> caches = models.Decoder(config, rngs=nnx.Rngs(0)).init_cache(batch=1, max_length=64)
        >>> [cache.slots.size for cache in caches], caches.length.tolist()
        ([5, 64, 5, 64], [0])
    """

    periods: tuple[Cache, ...]
    rest: tuple[Cache, ...]

    @classmethod
    def create(cls, config: Config, **options: Any) -> "Caches":
        """Empty caches; the options are those of `Cache.create` that do not follow from the config."""
        stacked = config.num_periods * len(config.layout)
        periods = tuple(_create(config, letter, options) for letter in config.layout) if stacked else ()
        stack = tuple(jax.tree.map(lambda x: jnp.stack([x] * config.num_periods), cache) for cache in periods)
        return cls(stack, tuple(_create(config, letter, options) for letter in config.letters[stacked:]))

    def __len__(self) -> int:
        return len(self.periods) * self._num_periods + len(self.rest)

    def __getitem__(self, i: int) -> Cache:
        if not 0 <= i < len(self):
            raise IndexError(f"layer {i} of {len(self)}")
        period, place = divmod(i, max(1, len(self.periods)))
        if self.periods and period < self._num_periods:
            return jax.tree.map(lambda x: x[period], self.periods[place])
        return self.rest[i - len(self.periods) * self._num_periods]

    @property
    def _num_periods(self) -> int:
        return self.periods[0].length.shape[0] if self.periods else 0

    @property
    def length(self) -> Int[Array, "B"]:
        """How many tokens went by in each row."""
        return self.periods[0].length[0] if self.periods else self.rest[0].length

    @property
    def refused(self) -> Bool[Array, "B"]:
        """Rows in which some layer refused something inside jit."""
        flags = [jnp.any(cache.refused, axis=0) for cache in self.periods] + [cache.refused for cache in self.rest]
        return functools.reduce(jnp.logical_or, flags)

    @property
    def nbytes(self) -> int:
        """Bytes of all kept keys and values."""
        return sum(cache.nbytes for cache in self.periods + self.rest)

    @typing.no_type_check
    def reset(self, rows: Bool[Array, "B"] | Int[Array, "n"] | None = None) -> "Caches":
        """As `Cache.reset`, in every layer."""
        return self._each(lambda cache: cache.reset(rows))

    @typing.no_type_check
    def fork(self, rows: Int[Array, "n"]) -> "Caches":
        """As `Cache.fork`, in every layer."""
        return self._each(lambda cache: cache.fork(rows))

    @typing.no_type_check
    def trim(self, tokens: int | Int[Array, "B"]) -> "Caches":
        """As `Cache.trim`, in every layer. A row that one layer cannot trim, all layers refuse."""
        tokens = check_tokens(tokens, self.length.size)
        refused = ~functools.reduce(jnp.logical_and, [cache.trimmable(tokens) for cache in self])
        tokens = jnp.where(refused, jnp.int32(0), tokens)
        return self._each(lambda cache: cache.trim(tokens)).refusing(refused)

    def refusing(self, rows: Bool[Array, "B"]) -> "Caches":
        """These rows marked as refused in every layer."""
        periods, rest = (
            tuple(dataclasses.replace(cache, refused=cache.refused | one) for cache in caches)
            for caches, one in ((self.periods, rows[None]), (self.rest, rows))
        )
        return Caches(periods, rest)

    def _each(self, act: Callable[[Cache], Cache]) -> "Caches":
        """`act` on every layer's cache; a stack is taken apart, so that what is wrong is said outside jit."""
        found = [act(cache) for cache in self]
        places, stacked = len(self.periods), len(self.periods) * self._num_periods
        stack = tuple(jax.tree.map(lambda *x: jnp.stack(x), *found[place:stacked:places]) for place in range(places))
        return Caches(stack, tuple(found[stacked:]))

    def refusals(self, config: Config, B: int, T: int, lengths: Any = None) -> Bool[Array, "B"]:
        """Rows that some layer has no room for T more tokens in (or lengths[b] of them): an error outside jit, True
        inside.

        Raises:
            ValueError: naming such a row; or if these are caches of another model, or of another batch size than B.
        """
        patterns = [cache.pattern for cache in self.periods] * self._num_periods + [c.pattern for c in self.rest]
        wanted = [config.legend[letter] for letter in config.letters]
        if patterns != wanted or self._num_periods != config.num_periods:
            raise ValueError(
                f"these are caches of {', '.join(map(str, patterns))}, but the model has layers of "
                f"{', '.join(map(str, wanted))}; make them with its init_cache"
            )
        first = [dataclasses.replace(cache, length=cache.length[0]) for cache in self.periods]
        if B != self.length.size:
            raise ValueError(f"tokens of batch {B} came with caches of batch {self.length.size}")
        kinds = {cache.pattern: cache for cache in [*first, *self.rest]}.values()
        return functools.reduce(jnp.logical_or, [cache.refusals(T, lengths) for cache in kinds])


def enter(
    caches: Any, config: Config, shape: tuple[int, int], positions: Any, segments: Any, dropping: bool
) -> tuple[Any, Any]:
    """(segments, rows that are refused or None) of a call with caches. Such a row gets no token in any layer, so that
    all stay as they were; outside jit it is an error.

    Raises:
        TypeError: if these are no Caches.
        ValueError: if they are another model's, have no room, or stand beside an option that has no place there.
    """
    if not isinstance(caches, Caches):
        raise TypeError(f"cache is a {type(caches).__name__}; take the one that init_cache made or a call returned")
    check_options(positions, segments)
    if dropping:
        raise ValueError("cache= with deterministic=False: decoding drops nothing; leave deterministic True")
    lengths = None if segments is None else segments.q_lengths
    refused = caches.refusals(config, *shape, lengths)
    if not isinstance(refused, Tracer):
        return segments, None
    lengths = jnp.full(shape[:1], shape[1], jnp.int32) if lengths is None else lengths
    return Segments.from_lengths(q=jnp.where(refused, jnp.int32(0), lengths)), refused


def _create(config: Config, letter: str, options: dict[str, Any]) -> Cache:
    K = config.num_heads if config.num_kv_heads is None else config.num_kv_heads
    H = config.d_model // config.num_heads if config.head_dim is None else config.head_dim
    return Cache.create(config.legend[letter], num_kv_heads=K, head_dim=H, rope=config.rope(letter), **options)
