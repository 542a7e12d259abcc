"""Tasks that copy: a token before a trigger, a whole round, or marked tokens among noise."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from train.tasks.base import Batch, Task, tally

REST_FROM = 8  # the first token is asked about only where a window(8) no longer holds it


@dataclasses.dataclass(frozen=True)
class Backcopy(Task):
    """Bigram-Backcopy: a Markov chain, but after a trigger comes the token before it (Guo et al., 2024).

    A head is needed at triggers only. Elsewhere it has nothing to do and, where the pattern lets it, learns to
    rest on the first token. Besides the accuracy at triggers the share of attention on the first token is
    measured, at ordinary tokens and at triggers; attention spread evenly would put 0.036 there.
    """

    length: int = 64
    vocab: int = 32
    triggers: int = 8

    @property
    def labels(self) -> tuple[str, ...]:
        return ("trigger", "ordinary", "rest at ordinary", "rest at trigger")

    @property
    def chance(self) -> float:
        return 1 / self.vocab

    def chain(self) -> Float[Array, "V V"]:
        """Log-odds of the fixed chain. Token 0 starts every row and never returns.

        The chain is nearly flat: where the own token says much about the next one, a head rests on itself.
        """
        logits = 0.5 * jax.random.normal(jax.random.key(0), (self.vocab, self.vocab))
        logits = logits.at[:, 0].set(-jnp.inf)
        # The start token is no answer to a copy, so no trigger may follow it at once.
        return logits.at[0, self.vocab - self.triggers :].set(-jnp.inf)

    def batch(self, key: PRNGKeyArray, size: int) -> Batch:
        chain, first_trigger = self.chain(), self.vocab - self.triggers

        # The noise of all steps in one draw: a draw per step costs more than the model.
        noise = jax.random.gumbel(key, (self.length, size, self.vocab))

        def grow(state, noise_BV):
            before, now = state
            drawn = jnp.argmax(chain[now] + noise_BV, axis=-1).astype(jnp.int32)
            following = jnp.where(now >= first_trigger, before, drawn)
            return (now, following), following

        start = jnp.zeros(size, jnp.int32)
        _, grown = jax.lax.scan(grow, (start, start), noise)
        rows = jnp.concatenate([start[:, None], grown.T], axis=1)
        tokens = rows[:, :-1]
        group = jnp.where(tokens >= first_trigger, 0, 1)
        return Batch(tokens, rows[:, 1:], jnp.ones(tokens.shape), group)

    def measure(self, model, batch: Batch) -> Float[Array, "2 L"]:
        """Adds to the accuracies the attention on the first token, of the head that rests there most.

        Which head of a layer that is depends on its first weights, so it is looked up and not fixed.
        """
        logits, weights = model(batch.tokens, return_weights=True)
        mass_NBT = jnp.concatenate([w_BNTS[..., 0].swapaxes(0, 1) for w_BNTS in weights])
        late = jnp.arange(self.length) >= REST_FROM
        resting = (mass_NBT * (late & (batch.group == 1))).sum(axis=(1, 2)).argmax()
        rest_group = jnp.where(late, 3 - batch.group, -1)
        return self.tally(logits, batch) + tally(mass_NBT[resting], rest_group, len(self.labels))


@dataclasses.dataclass(frozen=True)
class Repeat(Task):
    """A random round said again and again; its period differs per row, so no fixed offset solves it.

    Attributes:
        period: the longest round; the shortest is half of it.
    """

    length: int = 64
    vocab: int = 64
    period: int = 24

    @property
    def labels(self) -> tuple[str, ...]:
        return ("repeated",)

    @property
    def chance(self) -> float:
        return 1 / self.vocab

    def batch(self, key: PRNGKeyArray, size: int) -> Batch:
        period_key, token_key = jax.random.split(key)
        period = jax.random.randint(period_key, (size, 1), self.period // 2, self.period + 1)
        round_ = jax.random.randint(token_key, (size, self.period), 0, self.vocab)
        i = jnp.arange(self.length + 1)
        rows = jnp.take_along_axis(round_, i % period, axis=1)
        asked = i[1:] >= period + 1
        return Batch(rows[:, :-1], rows[:, 1:], asked.astype(jnp.float32), jnp.where(asked, 0, -1))


@dataclasses.dataclass(frozen=True)
class SelectiveCopy(Task):
    """Data tokens among blanks, then as many markers: say the data in order (Gu and Dao, 2023).

    Token 0 is the blank, token 1 the marker, the rest is data.

    Attributes:
        data: number of data tokens, and of markers behind the `length - data` slots.
    """

    length: int = 32
    vocab: int = 12
    data: int = 4

    @property
    def labels(self) -> tuple[str, ...]:
        return ("copied",)

    @property
    def chance(self) -> float:
        return 1 / (self.vocab - 2)

    def batch(self, key: PRNGKeyArray, size: int) -> Batch:
        slot_key, data_key = jax.random.split(key)
        slots = self.length - self.data
        at = jnp.sort(jax.vmap(lambda k: jax.random.choice(k, slots, (self.data,), replace=False))(
            jax.random.split(slot_key, size)), axis=1)
        data: Array = jax.random.randint(data_key, (size, self.data), 2, self.vocab)
        rows = jnp.arange(size)[:, None]
        tokens = jnp.zeros((size, self.length), jnp.int32).at[:, slots:].set(1).at[rows, at].set(data)
        targets = jnp.zeros((size, self.length), jnp.int32).at[:, slots:].set(data)
        asked = jnp.broadcast_to(jnp.arange(self.length) >= slots, tokens.shape)
        return Batch(tokens, targets, asked.astype(jnp.float32), jnp.where(asked, 0, -1))
