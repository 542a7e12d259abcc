"""Tasks whose answer lies at a content: a key was bound to a value earlier in the sequence."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from train.tasks.base import Batch, Task

NEAR = 8  # a key seen at most this many tokens ago; its value is then at most 7 tokens back
FAR = 16  # a key last seen more than this many tokens ago: beyond two layers of window(8), which reach 14


def last_seen(keys_BP: Int[Array, "B P"]) -> Int[Array, "B P"]:
    """How many pairs ago the same key last occurred; 0 where it never did.

    Example:
        >>> last_seen(jnp.array([[3, 1, 3, 3]])).tolist()
        [[0, 0, 2, 1]]
    """
    pairs = keys_BP.shape[1]
    index = jnp.arange(pairs)
    same_BPP = (keys_BP[:, :, None] == keys_BP[:, None, :]) & (index[:, None] > index[None, :])
    latest_BP = jnp.where(same_BPP, index, -1).max(axis=-1)
    return jnp.where(latest_BP >= 0, index - latest_BP, 0)


@dataclasses.dataclass(frozen=True)
class Recall(Task):
    """In-context recall: `key value key value ...`, at a key seen before say its value (Poli et al., 2024).

    Values are bound afresh in every sequence and independently of each other, so that a far key, whose value
    lies out of reach, leaves a guess among vocab / 2 values.
    """

    length: int = 64
    vocab: int = 16

    @property
    def labels(self) -> tuple[str, ...]:
        return ("near", "between", "far")

    @property
    def chance(self) -> float:
        return 2 / self.vocab

    def batch(self, key: PRNGKeyArray, size: int) -> Batch:
        key_key, value_key = jax.random.split(key)
        half, pairs = self.vocab // 2, self.length // 2
        keys = jax.random.randint(key_key, (size, pairs), 0, half)
        table = jax.random.randint(value_key, (size, half), half, self.vocab)
        values = jnp.take_along_axis(table, keys, axis=1)
        ago = 2 * last_seen(keys)
        group = jnp.where(ago == 0, -1, jnp.where(ago <= NEAR, 0, jnp.where(ago <= FAR, 1, 2)))
        group = interleave(group, jnp.full_like(group, -1))
        weights = (group >= 0).astype(jnp.float32)
        return Batch(interleave(keys, values), interleave(values, values), weights, group)


@dataclasses.dataclass(frozen=True)
class Mqar(Task):
    """Multi-query associative recall: pairs first, then each key once, among blanks (Arora et al., 2023).

    Guessing one of the values in sight is right once in `pairs` times: that, and not 1 / vocab, is chance.
    """

    length: int = 32
    vocab: int = 32
    pairs: int = 4

    @property
    def labels(self) -> tuple[str, ...]:
        return ("asked",)

    @property
    def chance(self) -> float:
        return 1 / self.pairs

    def batch(self, key: PRNGKeyArray, size: int) -> Batch:
        key_key, value_key, slot_key = jax.random.split(key, 3)
        half, n = self.vocab // 2, self.pairs
        keys = 1 + distinct(key_key, jnp.zeros(half - 1), size, n)
        values = jax.random.randint(value_key, (size, n), half, self.vocab)
        slots = jnp.arange((self.length - 2 * n) // 2)
        # Zoology's power law over gaps with exponent 0.01 - 1: most keys are asked again soon.
        asked_at = 2 * n + 2 * distinct(slot_key, -0.99 * jnp.log(slots + 1.0), size, n)
        rows = jnp.arange(size)[:, None]
        blank = jnp.zeros((size, self.length), jnp.int32)
        tokens = blank.at[:, : 2 * n].set(interleave(keys, values)).at[rows, asked_at].set(keys)
        weights = blank.astype(jnp.float32).at[rows, asked_at].set(1.0)
        return Batch(tokens, blank.at[rows, asked_at].set(values), weights, jnp.where(weights > 0, 0, -1))


def distinct(key: PRNGKeyArray, log_weights: Array, size: int, n: int) -> Int[Array, "size n"]:
    """`n` different indices per row, drawn by weight (the Gumbel trick)."""
    gumbel = jax.random.gumbel(key, (size, log_weights.shape[0]))
    return jax.lax.top_k(gumbel + log_weights, n)[1]


def interleave(a_BP: Int[Array, "B P"], b_BP: Int[Array, "B P"]) -> Int[Array, "B 2P"]:
    """a0 b0 a1 b1 ... along the row."""
    return jnp.stack([a_BP, b_BP], axis=-1).reshape(a_BP.shape[0], -1)
