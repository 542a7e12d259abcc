"""What counting bytes achieves: the floor that a trained model has to get under."""

import numpy as np

from train.corpus import Corpus

BYTES = 256


def byte_counts(corpus: Corpus, order: int) -> float:
    """Nats per byte on the validation part of an n-gram model counted on the training part.

    p(byte | the order - 1 bytes before) is interpolated with the next lower order, down to the uniform
    distribution: (count + d * p_lower) / (total + d) with d = number of different bytes seen in that context
    (Witten and Bell, 1991). Contexts never seen fall through to the lower order.

    Args:
        corpus: counted on its training part, measured on its validation part.
        order: 1 for single bytes, 2 for pairs, 3 for triples.

    Raises:
        ValueError: if order is not 1, 2 or 3.

    Example:
        >>> from train.corpus import split
        >>> text = split(b"ab" * 500)
        >>> [round(byte_counts(text, order), 2) for order in (1, 2)]
        [0.7, 0.0]
    """
    if order not in (1, 2, 3):
        raise ValueError(f"order={order} is not one of 1, 2, 3; longer contexts need more text than bytes can count")
    p = np.full(len(corpus.validation) - 2, 1 / BYTES)
    for n in range(1, order + 1):
        seen, asked = _grams(corpus.train, n), _grams(corpus.validation, n)[3 - n :]
        grams, gram_counts = np.unique(seen, return_counts=True)
        contexts, firsts = np.unique(grams // BYTES, return_index=True)
        totals = np.add.reduceat(gram_counts, firsts)
        kinds = np.diff(np.append(firsts, len(grams)))
        count = _lookup(grams, gram_counts, asked)
        total, kind = (_lookup(contexts, x, asked // BYTES) for x in (totals, kinds))
        p = np.where(total > 0, (count + kind * p) / np.maximum(total + kind, 1), p)
    return float(-np.log(p).mean())


def _grams(data: np.ndarray, n: int) -> np.ndarray:
    """Every run of n bytes as one number, the last byte lowest."""
    data = data.astype(np.int64)
    runs = np.lib.stride_tricks.sliding_window_view(data, n)
    return runs @ BYTES ** np.arange(n - 1, -1, -1)


def _lookup(keys: np.ndarray, values: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """values[keys == asked], 0 where the key is unknown."""
    at = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    return np.where(keys[at] == asked, values[at], 0)
