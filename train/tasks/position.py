"""Tasks whose answer lies at a place: they draw the pattern itself, read off the accuracy."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from train.tasks.base import Batch, Task


@dataclasses.dataclass(frozen=True)
class Reach(Task):
    """One payload among noise; every other position must name it. Accuracy by distance is the reach.

    The payload comes from the upper half of the vocabulary and the noise from the lower half, so a position
    that information from `at` cannot get to is left with a guess among vocab / 2 values. Positions before the
    payload are asked as well: only a pattern that shows the future can answer there.

    In the spirit of the receptive field of stacked windows in Mistral 7B (Jiang et al., 2023).

    Attributes:
        at: position of the payload.
        ahead: ask only the positions before the payload (what a prefix can see and nothing else can).
    """

    length: int = 64
    vocab: int = 32
    at: int = 0
    ahead: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        """Distances, from the first position to the last; negative ones lie before the payload."""
        return tuple(str(i - self.at) for i in range(self.length))

    @property
    def chance(self) -> float:
        return 2 / self.vocab

    def batch(self, key: PRNGKeyArray, size: int) -> Batch:
        noise_key, payload_key = jax.random.split(key)
        half, shape = self.vocab // 2, (size, self.length)
        payload = jax.random.randint(payload_key, (size, 1), half, self.vocab)
        tokens = jax.random.randint(noise_key, shape, 0, half).at[:, self.at].set(payload[:, 0])
        i = jnp.broadcast_to(jnp.arange(self.length), shape)
        asked = i < self.at if self.ahead else i != self.at
        return Batch(tokens, jnp.broadcast_to(payload, shape), asked.astype(jnp.float32), jnp.where(asked, i, -1))


@dataclasses.dataclass(frozen=True)
class Delay(Task):
    """Say the token that stood `delay` places back (the copying memory of the recurrent-network literature).

    Hochreiter and Schmidhuber, 1997, in the form of Arjovsky et al., 2016.
    """

    length: int = 32
    vocab: int = 16
    delay: int = 16

    @property
    def labels(self) -> tuple[str, ...]:
        return ("delayed",)

    @property
    def chance(self) -> float:
        return 1 / self.vocab

    def batch(self, key: PRNGKeyArray, size: int) -> Batch:
        shape = (size, self.length)
        tokens = jax.random.randint(key, shape, 0, self.vocab)
        asked = jnp.broadcast_to(jnp.arange(self.length) >= self.delay, shape)
        targets = jnp.roll(tokens, self.delay, axis=1)
        return Batch(tokens, targets, asked.astype(jnp.float32), jnp.where(asked, 0, -1))
