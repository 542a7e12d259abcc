"""Real text as a task: the next byte, judged in nats against counts of bytes."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from train import baselines, corpus
from train.loss import nats
from train.tasks.base import Batch, Task

BLOCK = 64  # windows per block of an evaluation


@functools.cache
def bigram() -> float:
    """Nats per byte of counted byte pairs on the validation part of the default text."""
    return baselines.byte_counts(corpus.default(), order=2)


@dataclasses.dataclass(frozen=True)
class Text(Task):
    """Next-byte prediction on the default text, in units of the byte bigram's loss: below 1 beats it.

    Training draws windows from the first nine tenths; judged is the last tenth.
    """

    length: int = 64
    vocab: int = 256

    @property
    def labels(self) -> tuple[str, ...]:
        """Nats per byte as a share of what the byte bigram needs."""
        return ("bigram",)

    @property
    def chance(self) -> float:
        return float(np.log(self.vocab)) / bigram()

    def batch(self, key: PRNGKeyArray, size: int) -> Batch:
        text = jnp.asarray(corpus.default().train)
        start = jax.random.randint(key, (size, 1), 0, text.shape[0] - self.length)
        return self._targets(text[start + jnp.arange(self.length + 1)].astype(jnp.int32))

    def evaluation(self, key: PRNGKeyArray) -> Batch:
        """The validation part in windows without overlap; the key changes nothing."""
        text = corpus.default().validation
        blocks = (len(text) - 1) // (self.length * BLOCK)
        start = self.length * np.arange(blocks * BLOCK)[:, None]
        rows = jnp.asarray(text[start + np.arange(self.length + 1)].astype(np.int32))
        return jax.tree.map(lambda x: x.reshape(blocks, BLOCK, self.length), self._targets(rows))

    def score(self, logits_BTV: Float[Array, "B T V"], batch: Batch) -> Float[Array, "B T"]:
        return nats(logits_BTV, batch.targets) / bigram()

    def _targets(self, rows) -> Batch:
        tokens = rows[:, :-1]
        return Batch(tokens, rows[:, 1:], jnp.ones(tokens.shape), jnp.zeros(tokens.shape, jnp.int32))
