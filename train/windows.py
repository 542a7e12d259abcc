"""Text as batches: random windows to train on, all windows to judge by, always in one shape."""

import grain
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from attnjax import models
from train.tasks.base import Batch


def honest(config: models.Config, length: int) -> np.ndarray:
    """Weight per position: 0 where the layers let a position see its own target, else 1.

    Only a prefix does (its positions see each other), and training on what is already in sight teaches nothing.
    Position i may use whatever any chain of layers hands to it.

    Example:
        >>> config = models.Config(vocab_size=8, d_model=8, num_layers=1, num_heads=1, layout="P",
        ...                        legend={"P": "prefix(3)"})
        >>> honest(config, 5).tolist()
        [0.0, 0.0, 1.0, 1.0, 1.0]
    """
    if not any(config.legend[letter].sees_future for letter in config.letters):
        return np.ones(length, np.float32)
    itself = np.eye(length + 1, dtype=np.float32)
    masks = {letter: config.legend[letter].mask(length + 1) for letter in set(config.letters)}
    masks = {letter: np.maximum(mask.reshape(-1, *itself.shape).any(axis=0), itself) for letter, mask in masks.items()}
    arrives = itself
    for letter in config.letters:
        arrives = np.minimum(masks[letter] @ arrives, 1)
    return 1 - np.diagonal(arrives, 1)


def drawn(text: np.ndarray, length: int, size: int, seed: int) -> grain.DatasetIterator:
    """Endless rows [size, length + 1] of text: every place of it once in random order, then in another one.

    One byte more than the model reads gives the last target. The iterator's state is its position.

    Example:
        >>> rows = drawn(np.arange(100, dtype=np.uint8), length=4, size=2, seed=0)
        >>> next(rows).shape, rows.get_state()
        ((2, 5), {'next_index': 1})
    """
    count = len(text) - length
    # A number of rounds, because grain cannot count endless ones in batches of one.
    places = grain.MapDataset.range(count).seed(seed % 2**32).shuffle().repeat(2**62 // count).batch(size)
    # A batch costs a quarter of a millisecond; one thread reads ahead.
    reading = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)
    return iter(places.map(lambda at: text[at[:, None] + np.arange(length + 1)]).to_iter_dataset(reading))


def every(text: np.ndarray, size: int, weights_T: np.ndarray) -> Batch:
    """All of a text in windows without overlap, as blocks of `size`, the block axis in front.

    Every byte but the first is a target once. The last window and the last block are filled up with weight 0,
    so that one shape, and one compiled program, serves them all.
    """
    length = len(weights_T)
    blocks = -(-(len(text) - 1) // (length * size))
    targets = np.arange(blocks * size * length).reshape(-1, length)
    padded = np.zeros(targets.size + 1, np.int32)
    padded[: len(text)] = text
    rows = padded[targets[:, :1] + np.arange(length + 1)]
    batch = batch_of(jnp.asarray(rows), jnp.asarray(weights_T * (targets < len(text) - 1)))
    return jax.tree.map(lambda x: x.reshape(blocks, size, length), batch)


def batch_of(rows: Array, weights: Array) -> Batch:
    """Rows [B, T + 1] of bytes as a batch with these weights, [T] or [B, T]."""
    rows = rows.astype(jnp.int32)
    tokens = rows[:, :-1]
    return Batch(tokens, rows[:, 1:], jnp.broadcast_to(weights, tokens.shape), jnp.zeros_like(tokens))
