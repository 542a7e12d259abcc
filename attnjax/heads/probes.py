"""Sequences on which heads show what they do: random tokens, said again."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnjax.patterns.checks import integer

FEWEST = 8  # different tokens in a round: chance then is low enough to tell
PERIODS = {2: 64, 4: 25}  # copies -> tokens in a round; four of 25 as in Olsson et al. 2022


def repeats(key: Any, vocab_size: int, *, copies: int, period: Any, draws: Any, bos: Any) -> Any:
    """`bos` and then `copies` of one random round, [draws, 1 + copies * period].

    The tokens of a round are all different, and none is `bos` or from the first or last tenth of the vocabulary:
    byte-pair ids run from common to rare, and both are left out by Olsson et al. 2022.

    Raises:
        TypeError: if a number is no int.
        ValueError: if `bos` is not in the vocabulary, or the vocabulary has too few tokens for a round.
    """
    draws, bos = integer("draws", draws, 1), integer("bos", bos, 0)
    if bos >= vocab_size:
        raise ValueError(f"bos={bos} is not in the vocabulary of {vocab_size} tokens")
    low, high = vocab_size // 10, vocab_size - vocab_size // 10
    pool = np.arange(low, high, dtype=np.int32)
    pool = pool[pool != bos]
    size = min(PERIODS[copies], len(pool)) if period is None else integer("period", period, FEWEST)
    if len(pool) < max(size, FEWEST):
        raise ValueError(
            f"vocab_size={vocab_size} has {len(pool)} tokens for the probes (without bos and the first and last "
            f"tenth); a round takes {max(size, FEWEST)} different ones"
        )
    rounds = jax.vmap(lambda key: jax.random.permutation(key, pool)[:size])(jax.random.split(key, draws))
    rows = jnp.concatenate([rounds] * copies, axis=1)
    return jnp.concatenate([jnp.full((draws, 1), bos, jnp.int32), rows], axis=1)
