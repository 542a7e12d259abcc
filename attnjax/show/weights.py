"""Attention weights as they are drawn: checked at the door, shrunk to a few cells, the sink's share apart."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

SLACK = 1e-3  # by how much a row may sum to more than 1; bfloat16, which rounds each weight by more, may by its eps
SINK = 0.01  # a missing share below this in every row is rounding, no learned sink


class Weights(NamedTuple):
    """weights [layers, heads, T, S] in float64, and the words beside rows and columns."""

    array: np.ndarray
    tokens: tuple[str, ...]
    keys: tuple[str, ...]

    @property
    def missing(self) -> np.ndarray:
        """What each row has left out, [layers, heads, T]: a learned sink took it, or the row saw no key."""
        return np.maximum(1 - self.array.sum(axis=-1), 0)

    @property
    def has_sink(self) -> bool:
        return bool((self.missing > SINK).any())


def checked_weights(weights: Any, tokens: Any, keys: Any) -> Weights:
    """The weights and their words, or an error that says what does not fit."""
    array = np.asarray(weights)
    if array.ndim != 4:
        way = {2: "weights[None, None]", 3: "weights[None]"}.get(array.ndim, "one sequence, without a batch axis")
        raise ValueError(f"weights must be [layers, heads, T, S], got the shape {array.shape}; pass {way}")
    if array.dtype.kind not in "fiub" and "float" not in array.dtype.name:  # bfloat16 is of no NumPy kind
        raise TypeError(f"weights must be numbers, got dtype {array.dtype}")
    slack = SLACK if array.dtype.kind in "iub" else max(SLACK, float(jnp.finfo(array.dtype).eps))
    array = array.astype(np.float64)
    words = _words("tokens", tokens)
    if not words:
        raise ValueError("tokens is empty: there is no word that could look at another; give a sentence of one or more")
    columns = words if keys is None else _words("keys", keys)
    layers, heads, T, S = array.shape
    if 0 in (layers, heads):
        raise ValueError(f"weights {array.shape} hold no head: give at least one layer with one head")
    for name, given, size, axis in (("tokens", words, T, "rows"), ("keys", columns, S, "columns")):
        if len(given) != size:
            given_by = "tokens" if keys is None else name
            way = "; pass keys= where queries and keys are not the same words" if keys is None and T != S else ""
            raise ValueError(f"{given_by} has {len(given)} words, but weights {array.shape} has {size} {axis}{way}")
    _check_rows(array, slack)
    return Weights(array, words, columns)


def _words(name: str, words: Any) -> tuple[str, ...]:
    if isinstance(words, str):
        raise TypeError(f"{name} is one str, {words[:20]!r}: give a list of words, one for each position")
    found = tuple(words)
    for place, word in enumerate(found):
        if not isinstance(word, str):
            kind = type(word).__name__
            raise TypeError(f"{name}[{place}]={word!r} is a {kind}: give the text of each token, not its id")
    return found


def _check_rows(array: np.ndarray, slack: float) -> None:
    """Weights are shares: none below 0, no row above 1."""
    for what, wrong in (("is not a finite number", ~np.isfinite(array)), ("is below 0", array < 0)):
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise ValueError(
                f"weights{list(place)}={array[place]:g} {what}: pass weights after the softmax (aj.weights), not scores"
            )
    sums = array.sum(axis=-1)
    if (sums > 1 + slack).any():
        layer, head, row = (int(i) for i in np.argwhere(sums > 1 + slack)[0])
        raise ValueError(
            f"row {row} of layer {layer}, head {head} sums to {sums[layer, head, row]:.4g}: rows are queries and "
            f"sum to 1, or less where a learned sink takes the rest, but to no more than {1 + slack:g}; pass weights "
            "after the softmax"
        )


def shrunk(matrix: np.ndarray, limit: int) -> np.ndarray:
    """At most `limit` cells a side: sums over neighbouring keys, means over neighbouring queries."""
    rows, columns = (range(0, n, max(1, -(-n // limit))) for n in matrix.shape)
    if len(rows) == matrix.shape[0] and len(columns) == matrix.shape[1]:
        return matrix
    queries = np.diff([*rows, matrix.shape[0]])
    summed = np.add.reduceat(np.add.reduceat(matrix, list(rows), axis=0), list(columns), axis=1)
    return summed / queries[:, None]
