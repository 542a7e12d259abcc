"""Why scores are divided by sqrt(d): softmax of what grows with d saturates."""

import functools
import typing
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from attnjax.blend import weights
from attnjax.dropout import check_key
from attnjax.patterns.checks import integer
from attnjax.scores import scores

MOST = 1 << 28  # numbers of one draw: 1 GiB


class Softmaxed(NamedTuple):
    """Scores of one query at a time against some keys, and what softmax makes of them, one row per draw.

    `gradients` are d weight / d score of each key, w (1 - w): how much of a training signal at a weight reaches its
    score. At most 1/4; 0 where the weight is 0 or 1.

    Example:
        >>> from attnjax import heads
        >>> raw = heads.saturation(256).raw
        >>> raw.scores.shape, round(raw.spread), round(raw.largest, 1)
        ((1000, 6), 16, 0.9)
    """

    scores: Float[Array, "draws keys"]
    weights: Float[Array, "draws keys"]
    gradients: Float[Array, "draws keys"]

    @property
    def spread(self) -> float:
        """Standard deviation of the scores."""
        return float(jnp.std(self.scores))

    @property
    def range(self) -> float:
        """From the lowest to the highest score of a draw, on average."""
        return float(jnp.mean(jnp.max(self.scores, axis=1) - jnp.min(self.scores, axis=1)))

    @property
    def largest(self) -> float:
        """The largest weight of a draw, on average."""
        return float(jnp.mean(jnp.max(self.weights, axis=1)))

    @property
    def gradient(self) -> float:
        """Mean of the gradients over keys and draws."""
        return float(jnp.mean(self.gradients))


class Saturation(NamedTuple):
    """The same draws without the division, and with it.

    Example:
        >>> from attnjax import heads
        >>> found = heads.saturation(64, keys=4, draws=10)
        >>> found.d, found.raw.scores.shape, found.scaled.spread < found.raw.spread
        (64, (10, 4), True)
    """

    d: int
    raw: Softmaxed
    scaled: Softmaxed


@typing.no_type_check
def saturation(d: int, *, keys: int = 6, draws: int = 1000, key: PRNGKeyArray | None = None) -> Saturation:
    """Softmax of q . k and of q . k / sqrt(d) for random vectors of size d: what the division is for.

    The entries of q and k are normal with standard deviation 1, so that q . k spreads like sqrt(d). Vaswani et
    al. 2017, "Attention Is All You Need", section 3.2.1.

    Args:
        d: size of a query and of a key.
        keys: how many keys one query is scored against.
        draws: how often all vectors are drawn afresh.
        key: a JAX key; None means `jax.random.key(0)`.

    Raises:
        TypeError: if a size is no int.
        ValueError: if `d` or `draws` is below 1, or `keys` below 2, or one draw would not fit in memory.

    Example:
        >>> from attnjax import heads
        >>> for d in (4, 64, 1024):
        ...     found = heads.saturation(d)
        ...     print(d, *(f"{s.spread:.0f} {s.largest:.1f} {s.gradient:.3f}" for s in (found.raw, found.scaled)))
        4 2 0.6 0.092 1 0.4 0.120
        64 8 0.9 0.028 1 0.4 0.119
        1024 32 1.0 0.005 1 0.4 0.117
    """
    d, draws = integer("d", d, 1), integer("draws", draws, 1)
    keys = integer("keys", keys, 2, "softmax over one key is always 1")
    if d * (keys + 1) > MOST:
        raise ValueError(f"d={d} with keys={keys} draws {d * (keys + 1):,} numbers at once; at most {MOST:,} are held")
    key = jax.random.key(0) if key is None else check_key(key)
    raw = _dot_products(key, d, keys, draws)
    return Saturation(d, _softmaxed(raw), _softmaxed(raw * d**-0.5))


@functools.partial(jax.jit, static_argnames=("d", "keys", "draws"))
def _dot_products(key: Any, d: int, keys: int, draws: int) -> Any:
    """[draws, keys], one draw at a time: vectors of many draws are never held together."""

    def one(key: Any) -> Any:
        vectors = jax.random.normal(key, (keys + 1, 1, d), jnp.float32)
        return scores(vectors[:1], vectors[1:], scale=1.0)[0, 0]

    return jax.lax.map(one, jax.random.split(key, draws))


def _softmaxed(s: Any) -> Softmaxed:
    w = weights(s, jnp.ones((1, 1), bool))
    return Softmaxed(s, w, w * (1 - w))
