"""Tasks that carry a state forward over an unknown number of steps."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from train.tasks.base import Batch, Task

READ, WRITE, IGNORE, BIT = 0, 1, 2, 3  # BIT + 0 and BIT + 1 are the two bits
NEAR = 8  # two layers of window(8) reach 14 tokens back; a bit stands one after its instruction
FAR = 14


@dataclasses.dataclass(frozen=True)
class FlipFlop(Task):
    """Flip-flop language: instruction, bit, instruction, bit; a read repeats the last written bit.

    Liu et al., 2023. Scored are the reads only, apart by how far back the bit was last said.

    Attributes:
        ignore: probability of an instruction whose bit must be ignored; the rest is shared by write and read.
    """

    length: int = 64
    vocab: int = 5
    ignore: float = 0.8

    @property
    def labels(self) -> tuple[str, ...]:
        return ("near", "between", "far")

    @property
    def chance(self) -> float:
        return 0.5

    def batch(self, key: PRNGKeyArray, size: int) -> Batch:
        kind_key, bit_key = jax.random.split(key)
        pairs = self.length // 2
        u = jax.random.uniform(kind_key, (size, pairs))
        kind = jnp.where(u < self.ignore, IGNORE, jnp.where(u < (1 + self.ignore) / 2, WRITE, READ))
        kind = kind.at[:, 0].set(WRITE)
        drawn = jax.random.bernoulli(bit_key, 0.5, (size, pairs)).astype(jnp.int32)
        index = jnp.arange(pairs)
        written = jax.lax.cummax(jnp.where(kind == WRITE, index, 0), axis=1)
        bit = jnp.where(kind == READ, jnp.take_along_axis(drawn, written, axis=1), drawn)
        tokens = jnp.stack([kind, bit + BIT], axis=-1).reshape(size, self.length)
        # A read says the bit again, so what counts is the last pair that was not ignored; at a read in pair p
        # its bit stands 2 * (p - said) - 1 tokens back.
        said = jax.lax.cummax(jnp.where(kind != IGNORE, index, 0), axis=1)
        said = jnp.pad(said[:, :-1], ((0, 0), (1, 0)))
        back = 2 * (index - said) - 1
        near_far = jnp.where(back <= NEAR, 0, jnp.where(back <= FAR, 1, 2))
        group = jnp.where(kind == READ, near_far, -1)
        group = jnp.stack([group, jnp.full_like(group, -1)], axis=-1).reshape(size, self.length)
        targets = jnp.roll(tokens, -1, axis=1)
        return Batch(tokens, targets, (group >= 0).astype(jnp.float32), group)
