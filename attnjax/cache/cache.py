"""Cache: the keys and values that a pattern still needs, and how tokens pass through it."""

import dataclasses
import functools
import typing
from typing import Any, Unpack

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from attnjax.cache import checks, places, store
from attnjax.cache.step import look_and_write
from attnjax.cache.store import Store
from attnjax.door import scoring
from attnjax.options import ScoreOptions, check_names
from attnjax.patterns import Pattern, PerHead, Slots
from attnjax.patterns.checks import LARGEST, integer, size
from attnjax.rope import Rope
from attnjax.shapes import Dims, check_heads, compute_dtype, shown
from attnjax.varying import axes_of


@typing.no_type_check
@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("k", "v", "positions", "length", "refused"),
    meta_fields=("pattern", "slots", "max_length", "mode", "rope"),
)
@dataclasses.dataclass(frozen=True)
class Cache:
    """Keys and values of the tokens that went by, as far as a pattern still needs them.

    The pattern picks the kind: a window keeps a ring of its size, `Window | Sink` the first tokens and a ring
    (Xiao et al. 2023, "StreamingLLM"), `Chunked` one chunk; what needs all keys keeps all. A pytree of static
    shape: it goes through jit, scan and donation, and one trace serves a whole stream. A donated cache is dead:
    go on with the one that came back. Rows of a batch have lengths of their own.

    Make one with `Cache.create`.

    Args:
        k, v: what the slots hold, [B, slots, K, H] and [B, slots, K, h].
        positions: which token a slot holds, [B, slots]; -1 for none.
        length: how many tokens went by, [B].
        refused: rows in which something was refused inside jit (a full cache, say) since they were made or reset.
        pattern, slots, max_length, mode, rope: as given to `create`; `slots` is `pattern.slots(max_length)`.

    Example:
        >>> import attnjax as aj, jax.numpy as jnp
        >>> cache = aj.Cache.create(aj.Window(4) | aj.Sink(1), batch=1, num_kv_heads=2, head_dim=8, max_length=99)
        >>> prompt, token = jnp.ones((1, 7, 2, 8)), jnp.ones((1, 1, 2, 8))
        >>> o, cache = cache.step(prompt, prompt, prompt)
        >>> o, cache = cache.step(token, token, token)
        >>> o.shape, int(cache.length[0]), sorted(cache.positions[0].tolist())
        ((1, 1, 2, 8), 8, [0, 4, 5, 6, 7])
    """

    k: Float[Array, "B slots K H"]
    v: Float[Array, "B slots K h"]
    positions: Int[Array, "B slots"]
    length: Int[Array, "B"]
    refused: Bool[Array, "B"]
    pattern: Pattern | PerHead
    slots: Slots
    max_length: int
    mode: str
    rope: Rope | None

    @classmethod
    @typing.no_type_check
    def create(
        cls, pattern: Pattern | PerHead, *, batch: int, num_kv_heads: int, head_dim: int, value_dim: int | None = None,
        max_length: int, dtype: Any = jnp.float32, positions: str = "text", rope: Rope | None = None,
    ) -> "Cache":  # fmt: skip
        """An empty cache.

        Args:
            pattern: which keys a query may look at; it decides what is kept.
            batch: rows B.
            num_kv_heads, head_dim, value_dim: K, H and h of the keys and values; h is H when None.
            max_length: the longest row of a cache that keeps every token. One that keeps fewer has no end.
            dtype: in which keys and values are kept; what comes in is converted.
            positions: where tokens stand for `rope`: "text", or "cache" for places 0, 1, ... in the cache with
                the query last (StreamingLLM). The pattern reads positions in the text in both.
            rope: how `step` turns queries and keys; None: they come in turned already, or are not turned at all.

        Raises:
            TypeError: if an argument has the wrong type.
            ValueError: if a size is below 1 or too large, a mode unknown, or the pattern sees the future (but for
                `Prefix`).

        Example:
            >>> import attnjax as aj
            >>> aj.Cache.create(aj.Causal(), batch=2, num_kv_heads=1, head_dim=4, max_length=10).k.shape
            (2, 10, 1, 4)
        """
        checks.check_decodable(pattern)
        B, K = integer("batch", batch, 1), integer("num_kv_heads", num_kv_heads, 1)
        H = integer("head_dim", head_dim, 1)
        h = H if value_dim is None else integer("value_dim", value_dim, 1)
        S = size("max_length", max_length, 1, "it is that of the longest row, at least 1")
        dtype = checks.check_dtype(dtype)
        checks.check_positions(positions, rope, H)
        slots = pattern.slots(S)
        shapes = (B, slots.size, K, H), (B, slots.size, K, h)
        k, v = checks.zeros(shapes, dtype)
        where, length = jnp.full((B, slots.size), -1, jnp.int32), jnp.zeros((B,), jnp.int32)
        return cls(k, v, where, length, jnp.zeros((B,), bool), pattern, slots, S, positions, rope)

    @property
    def batch(self) -> int:
        """Rows B."""
        return self.length.shape[-1]

    @property
    def dtype(self) -> Any:
        """In which keys and values are kept."""
        return self.k.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the kept keys and values."""
        return self.k.nbytes + self.v.nbytes

    @property
    def store(self) -> Store:
        """The slots alone."""
        return Store(self.k, self.v, self.positions, self.length)

    @property
    def turns_late(self) -> bool:
        """Whether keys are kept as they came, and turned anew in every step."""
        return places.turns_late(self.rope, self.mode)

    def holding(self, kept: Store, refused: Any) -> "Cache":
        """This cache with other contents."""
        return dataclasses.replace(self, **kept._asdict(), refused=refused)

    @typing.no_type_check
    def refusals(self, T: int, lengths: Int[Array, "B"] | None = None) -> Bool[Array, "B"]:
        """Rows that cannot take T more tokens (or lengths[b] of them): an error outside jit, True inside.

        Raises:
            ValueError: naming the row, what it holds and what it was to get.
        """
        lengths = checks.check_lengths(lengths, self.batch, T)
        tokens = jnp.full((self.batch,), T, jnp.int32) if lengths is None else lengths
        full = store.overflow(self.slots, LARGEST, self.length, tokens)
        short = (self.length == 0) & (tokens > 0) & (tokens < self.pattern.prefix_length)
        checks.check_room(self, self.length, full, short, tokens)
        return full | short | (tokens < 0) | (tokens > T)

    @typing.no_type_check
    def step(
        self, q: Float[Array, "B T N H"], k: Float[Array, "B T K H"], v: Float[Array, "B T K h"], *,
        lengths: Int[Array, "B"] | None = None, backend: str = "auto", return_weights: bool = False,
        **options: Unpack[ScoreOptions],
    ) -> tuple[Any, ...]:  # fmt: skip
        """The next T tokens of each row look at what is kept and at each other, and are then kept themselves.

        Exact for any T at any length: a prompt longer than the ring, a chunk, one token. Query i of row b
        stands at position length[b] + i.

        Args:
            q, k, v: of the new tokens.
            lengths: how many tokens of each row are real, 0 to T, the rest is padding behind them; None: all.
            backend: as in `attend`.
            return_weights: also return the weights [B, N, T, slots + T], dense: first of the tokens in the slots
                as they were before the step (see `positions`), then of the new ones.
            options: scale, soft_cap, score_fn, score_params, sink_logits and precision, as `ScoreOptions` says.

        Returns:
            (o, cache), or (o, cache, weights). Padding gives 0. A row without room, or a wrong length, is an error;
            inside jit, where lengths are not known, the row stays as it was, its o is NaN and `cache.refused` is True.

        Raises:
            TypeError: if an array has the wrong dtype.
            ValueError: if shapes do not fit the cache, a row has no room, or a first chunk is shorter than a
                prefix.

        Example:
            >>> import attnjax as aj, jax.numpy as jnp
            >>> cache = aj.Cache.create(aj.Window(4), batch=2, num_kv_heads=1, head_dim=8, max_length=99)
            >>> q, k = jnp.ones((2, 5, 4, 8)), jnp.ones((2, 5, 1, 8))
            >>> o, cache = cache.step(q, k, k, lengths=jnp.array([5, 3]))
            >>> o.shape, cache.length.tolist()
            ((2, 5, 4, 8), [5, 3])
        """
        checks.check_chunk(self, q, k, v)
        lengths = checks.check_lengths(lengths, self.batch, k.shape[1])
        refused = self.refusals(k.shape[1], lengths)
        check_names(options, ScoreOptions, "Cache.step", ("lengths", "backend", "return_weights"))
        (B, T, N, H), (K, h) = q.shape, v.shape[2:]
        check_heads(N, K, shown(q=q, k=k, v=v))
        dims = Dims(B, T, self.slots.size + T, N, K, H, h, True)
        bound = scoring(self.pattern, dims, compute_dtype(q, self.k), axes_of((q, k, v)), options)
        q, k, v = (jnp.asarray(x) for x in (q, k, v))
        o, cache, weights = look_and_write(self, q, k, v, lengths, refused, bound, backend, return_weights)
        return (o, cache, weights) if return_weights else (o, cache)

    @typing.no_type_check
    def append(
        self, k: Float[Array, "B T K H"], v: Float[Array, "B T K h"], *, lengths: Int[Array, "B"] | None = None
    ) -> "Cache":
        """The next T tokens of each row are kept, and no query looks. Arguments as in `step`."""
        checks.check_chunk(self, None, k, v)
        lengths = checks.check_lengths(lengths, self.batch, k.shape[1])
        refused = self.refusals(k.shape[1], lengths)
        k, v = jnp.asarray(k).astype(self.dtype), jnp.asarray(v)
        at = store.chunk_positions(self.length, k.shape[1], lengths)
        if self.rope is not None and not self.turns_late:
            k = self.rope(k, jnp.maximum(at, 0))
        return self.holding(store.write(self.slots, self.store, k, v, at, refused), self.refused | refused)

    @typing.no_type_check
    def reset(self, rows: Bool[Array, "B"] | Int[Array, "n"] | None = None) -> "Cache":
        """The cache with some rows as new; the other rows are not touched.

        Args:
            rows: which, bool [B] or their numbers; None: all. Inside jit a number that no row has is passed over.

        Raises:
            TypeError: if rows are neither.
            ValueError: if there is no such row.

        Example:
            >>> import attnjax as aj, jax.numpy as jnp
            >>> cache = aj.Cache.create(aj.Window(4), batch=2, num_kv_heads=1, head_dim=8, max_length=99)
            >>> cache = cache.append(jnp.ones((2, 3, 1, 8)), jnp.ones((2, 3, 1, 8)))
            >>> cache.reset([1]).length.tolist(), cache.fork([0, 0, 0]).length.tolist(), cache.trim(1).length.tolist()
            ([3, 0], [3, 3, 3], [2, 2])
        """
        rows = checks.check_chosen(rows, self.batch)
        return self.holding(store.clear(self.store, rows), self.refused & ~rows)

    @typing.no_type_check
    def fork(self, rows: Int[Array, "n"]) -> "Cache":
        """A cache of n rows, row i a copy of row rows[i]: for beams, or several answers to one prompt.

        Raises:
            TypeError: if rows are not integers.
            ValueError: outside jit, if there is no such row. Inside the copy is as new, and `refused` is True.
        """
        rows = checks.check_rows("rows", rows, self.batch)
        at = jnp.where(rows < 0, self.batch, rows)  # below 0 JAX would count from the end
        none = {"k": 0, "v": 0, "positions": -1, "length": 0, "refused": True}
        kept = {name: jnp.take(getattr(self, name), at, axis=0, fill_value=value) for name, value in none.items()}
        return dataclasses.replace(self, **kept)

    @typing.no_type_check
    def trim(self, tokens: int | Int[Array, "B"]) -> "Cache":
        """The cache without its last tokens: one number, or one per row.

        A ring gives back one token at any time, and more only as long as nothing was overwritten that the next
        query needs. The tokens of a `Prefix` have seen each other, so none of them goes without all of them.

        Raises:
            TypeError: if `tokens` are not integers.
            ValueError: outside jit, if a row cannot give them back. Inside it stays as it was, and
                `refused` is True.
        """
        tokens = checks.check_tokens(tokens, self.batch)
        allowed = self.trimmable(tokens)
        return self.holding(store.trim(self.store, tokens, allowed), self.refused | ~allowed)

    @typing.no_type_check
    def trimmable(self, tokens: int | Int[Array, "B"]) -> Bool[Array, "B"]:
        """Rows that can give these tokens back: an error outside jit where one cannot, False inside. As in `trim`."""
        tokens = checks.check_tokens(tokens, self.batch)
        allowed = store.trimmable(self.slots, self.store, tokens, self.pattern.prefix_length)
        checks.check_trim(self, allowed, tokens)
        return allowed
