"""What a task is: batches drawn from a key, and scores of a model's predictions per label."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from train.bands import EVALUATED

BLOCK = 128  # sequences per block of an evaluation


class Batch(NamedTuple):
    """One batch: what the model reads, what it should say, what counts in the loss and where it is scored."""

    tokens: Int[Array, "B T"]
    targets: Int[Array, "B T"]
    weights: Float[Array, "B T"]  # 0 where a position has no target
    group: Int[Array, "B T"]  # index into the task's labels, -1 where a position is not scored


@dataclasses.dataclass(frozen=True)
class Task:
    """A stream of sequences with known answers; subclasses fill in everything that raises here.

    Attributes:
        length: tokens per sequence.
        vocab: number of token values.
    """

    length: int
    vocab: int

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of what is measured, in the order of `Batch.group` (a task may append further measures)."""
        raise NotImplementedError(type(self).__name__)

    @property
    def chance(self) -> float:
        """Accuracy of the best guess that sees nothing of the answer."""
        raise NotImplementedError(type(self).__name__)

    def batch(self, key: PRNGKeyArray, size: int) -> Batch:
        """Draws `size` fresh sequences."""
        raise NotImplementedError(type(self).__name__)

    def evaluation(self, key: PRNGKeyArray) -> Batch:
        """What the task is judged on: blocks of sequences, the block axis in front."""
        return jax.vmap(lambda k: self.batch(k, BLOCK))(jax.random.split(key, EVALUATED // BLOCK))

    def score(self, logits_BTV: Float[Array, "B T V"], batch: Batch) -> Float[Array, "B T"]:
        """What is averaged per label: 1 for a right answer, 0 for a wrong one."""
        return (jnp.argmax(logits_BTV, axis=-1) == batch.targets).astype(jnp.float32)

    def tally(self, logits_BTV: Float[Array, "B T V"], batch: Batch) -> Float[Array, "2 L"]:
        """Sums of `score` and numbers of scored positions, per label."""
        return tally(self.score(logits_BTV, batch), batch.group, len(self.labels))

    def measure(self, model, batch: Batch) -> Float[Array, "2 L"]:
        """Runs the model on a batch; a task that looks inside the model overrides this."""
        return self.tally(model(batch.tokens), batch)


def tally(score_BT: Float[Array, "B T"], group_BT: Int[Array, "B T"], labels: int) -> Float[Array, "2 L"]:
    """Sums of a score and counts per label; positions with group -1 are left out."""
    onehot_BTL = jax.nn.one_hot(group_BT, labels, dtype=jnp.float32)
    sums = jnp.einsum("BT,BTL->L", score_BT, onehot_BTL)
    return jnp.stack([sums, onehot_BTL.sum(axis=(0, 1))])
