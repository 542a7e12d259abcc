"""Attention weights as pictures: a heat map for every head, or one head with its words and lines."""

import typing
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from attnjax.patterns.checks import integer
from attnjax.show.labels import token_label, width
from attnjax.show.of_pattern import headed
from attnjax.show.sheet import Box, Item, Line, Number, Picture, Words, shifted
from attnjax.show.weights import Weights, checked_weights, shrunk

MAP_CELLS, ONE_CELLS = 24, 64  # cells a side in a map among many, and alone
MOST_WORDS = 40  # with more words than this lines are a tangle and labels do not fit
FAINT = 0.004  # weights below this are not drawn
STEPS = 32  # levels of opacity: boxes of one level are one path in a file


@typing.no_type_check
def heads(
    weights: Float[np.ndarray, "layers heads T S"],
    tokens: Sequence[str],
    *,
    keys: Sequence[str] | None = None,
    head: tuple[int, int] | None = None,
    query: int | None = None,
    names: Mapping[tuple[int, int], str] | None = None,
    title: str | None = None,
) -> Picture:
    """Draws where heads look: one heat map per head, or one head as a heat map and as lines between words.

    Rows are queries, columns are keys. A row that sums to less than 1 gave the rest to a learned sink
    (gpt-oss, 2025): that share is drawn apart, as a column and as a word of its own.

    Args:
        weights: attention weights of one sequence, from `aj.weights` or a layer's `return_weights=True`.
        tokens: the text of each query, one str for each of the T rows.
        keys: the text of each key where keys and queries are not the same words; None means `tokens`.
        head: (layer, head) to draw alone and large; None draws all of them.
        query: with `head`, the row whose lines are drawn; None draws the lines of all rows.
        names: what heads are called, by (layer, head); others are called by their numbers, "4.2".
        title: None means a heading that says what is drawn.

    Returns:
        The picture: a notebook shows it, `save` writes it as .svg or .png.

    Raises:
        TypeError: if tokens are not str.
        ValueError: if the shapes do not fit, the sentence is empty, or a row is no set of shares: below 0, not
            finite, or summing to more than 1.001 (1.008 in bfloat16).

    Example:
        >>> import attnjax as aj
        >>> from attnjax import show
        >>> from attnjax.show import CHAPTER as c
        >>> w = aj.trace(c.x, c.wq, c.wk, c.wv, pattern=aj.Causal()).weights[None, None]
        >>> show.heads(w, c.tokens, head=(0, 0), query=2).description
        'head 0.0: sat looks at cat 0.70, The 0.15, sat 0.15. Rows are queries, columns are keys'
    """
    found = checked_weights(weights, tokens, keys)
    names = {} if names is None else names
    if head is None:
        if query is not None:
            raise ValueError(f"query={query} picks a row of one head: say which with head=(layer, head)")
        return _all_heads(found, names, title)
    layer, n = _place(found, head)
    if query is not None:
        query = integer("query", query, 0)
        if query >= len(found.tokens):
            raise ValueError(f"query={query} is beyond the last row: there are {len(found.tokens)} queries, from 0 on")
    return _one_head(found, layer, n, query, _name(names, layer, n), title)


def _place(found: Weights, head: Any) -> tuple[int, int]:
    """The layer and the head asked for, both there."""
    if not isinstance(head, tuple | list) or len(head) != 2:
        raise TypeError(f"head={head!r} must be a pair (layer, head)")
    layers, count = found.array.shape[:2]
    layer, n = integer("layer", head[0], 0), integer("head", head[1], 0)
    if layer >= layers or n >= count:
        raise ValueError(f"head=({layer}, {n}) is not there: weights hold {layers} layers of {count} heads, from 0 on")
    return layer, n


def _name(names: Mapping[tuple[int, int], str], layer: int, n: int) -> str:
    called = names.get((layer, n))
    return f"{layer}.{n}" if called is None else f"{layer}.{n} {called}"


def _notes(found: Weights) -> list[str]:
    notes = ["Rows are queries, columns are keys"]
    if found.has_sink:
        notes.append("orange: the share that a learned sink took (or all of it, where a row sees no key)")
    if len(found.tokens) == 1 and len(found.keys) == 1:
        notes.append("a single word has only itself to look at")
    return notes


def _all_heads(found: Weights, names: Mapping[tuple[int, int], str], title: str | None) -> Picture:
    """One row of maps for each layer."""
    layers, count, T, S = found.array.shape
    side = max(34.0, min(120.0, 1100 / count))
    panels = [
        _small(found, layer, n, side, _name(names, layer, n)) for layer in range(layers) for n in range(count)
    ]
    heading = f"{layers * count} heads, {T} x {S} words" if title is None else title
    notes = _notes(found)
    items, wide, high = headed(heading, notes, panels, across=count)
    return Picture(heading, ". ".join(notes), wide, high, tuple(items))


def _small(found: Weights, layer: int, n: int, side: Number, name: str) -> tuple[list[Item], float, float]:
    """A map without words, its name above it."""
    size = min(9.0, side / 4.5)
    items: list[Item] = [Words(0, 10, name, size, opacity=0.8)]
    drawn, wide, high = _map(found, layer, n, side, MAP_CELLS)
    return items + shifted(drawn, 0, 14), wide, high + 14


def _map(found: Weights, layer: int, n: int, side: Number, limit: int) -> tuple[list[Item], float, float]:
    """(items, width, height) of a heat map; the learned sink's share is a column of its own, a gap apart."""
    matrix = shrunk(found.array[layer, n], limit)
    rows, columns = matrix.shape
    cell = side / max(rows, columns)
    items: list[Item] = [Box(0, 0, columns * cell, rows * cell, "text", 0.06)]
    items += _cells(matrix, 0, cell, "seen")
    if not found.has_sink:
        return items, columns * cell, rows * cell
    left = (columns + 0.5) * cell
    items.append(Box(left, 0, cell, rows * cell, "text", 0.06))
    items += _cells(shrunk(found.missing[layer, n][:, None], limit), left, cell, "mixed")
    return items, left + cell, rows * cell


def _cells(matrix: np.ndarray, left: Number, cell: Number, ink: str) -> list[Item]:
    return [
        Box(left + column * cell, row * cell, cell, cell, ink, round(float(matrix[row, column]) * STEPS) / STEPS)
        for row, column in zip(*np.nonzero(matrix > max(FAINT, 0.5 / STEPS)), strict=True)
    ]


def _one_head(found: Weights, layer: int, n: int, query: int | None, name: str, title: str | None) -> Picture:
    """The map with its words, and beside it the same weights as lines."""
    T, S = found.array.shape[2:]
    cell = max(13.0, min(26.0, 336 / max(T, S)))
    if max(T, S) > MOST_WORDS:
        panels = [_map(found, layer, n, 420.0, ONE_CELLS)]
    else:
        top = 8 + max(width(token_label(word), min(10.5, cell * 0.75)) for word in [*found.keys, "(sink)"])
        panels = [_worded_map(found, layer, n, cell, top), _lines(found, layer, n, query, cell, top)]
    heading = f"head {name}" if title is None else title
    notes = _notes(found)
    if max(T, S) > MOST_WORDS:
        notes.append(f"words and lines are drawn for up to {MOST_WORDS} words")
    said = [] if query is None else [f"head {name}: {_sentence(found, layer, n, query)}"]
    items, wide, high = headed(heading, [*said, *notes], panels)
    return Picture(heading, ". ".join([*said, *notes]), wide, high, tuple(items))


def _sentence(found: Weights, layer: int, n: int, query: int, most: int = 3) -> str:
    """Where one word looks, largest share first."""
    row = found.array[layer, n, query]
    shares = [(float(row[key]), found.keys[key].strip()) for key in np.argsort(-row, kind="stable")[:most]]
    shares += [(float(found.missing[layer, n, query]), "(sink)")] if found.has_sink else []
    clear = [one for one in shares if one[0] > FAINT] or [one for one in shares if one[0] > 0]
    looks = ", ".join(f"{word} {share:.2f}" if share > FAINT else f"{word} <0.01" for share, word in clear) or "nothing"
    return f"{found.tokens[query].strip()} looks at {looks}"


def _worded_map(found: Weights, layer: int, n: int, cell: Number, top: Number) -> tuple[list[Item], float, float]:
    """A heat map with words beside its rows and above its columns; each cell tells what it is."""
    T, S = found.array.shape[2:]
    size = min(10.5, cell * 0.75)
    rows, columns = ([token_label(word) for word in words] for words in (found.tokens, found.keys))
    left = 8 + max(width(word, size) for word in rows)
    drawn, wide, high = _map(found, layer, n, cell * max(T, S), ONE_CELLS)
    items = shifted(drawn, left, top)
    items += [Words(left - 5, top + (row + 0.5) * cell + 3, word, size, "end") for row, word in enumerate(rows)]
    for column, word in enumerate(columns):
        items.append(Words(left + (column + 0.5) * cell + 3, top - 5, word, size, turned=True))
    if found.has_sink:
        items.append(Words(left + (S + 1) * cell + 3, top - 5, "(sink)", size, opacity=0.7, turned=True))
    for row in range(T):
        for column in range(S):
            share = found.array[layer, n, row, column]
            tip = f"{rows[row]} looks at {columns[column]}: {share:.3f}"
            items.append(Box(left + column * cell, top + row * cell, cell, cell, "text", 0, tip))
    return items, left + wide + 24, top + high


def _lines(
    found: Weights, layer: int, n: int, query: int | None, cell: Number, top: Number
) -> tuple[list[Item], float, float]:
    """Words on both sides, queries on the left; the heavier the weight, the darker and wider the line."""
    T, S = found.array.shape[2:]
    size = min(11.0, cell * 0.8)
    keys = [token_label(word) for word in found.keys] + (["(sink)"] if found.has_sink else [])
    left = 8 + max(width(word, size) for word in map(token_label, found.tokens))
    right = left + 150.0
    items: list[Item] = [Words(left - 5, top - 8, "query", 9, "end", 0.6)]
    items.append(Words(right + 5, top - 8, "key", 9, opacity=0.6))
    shares = np.concatenate([found.array[layer, n], found.missing[layer, n][:, None]], axis=1)[:, : len(keys)]
    rows = range(T) if query is None else [query]
    heights = [top + (place + 0.5) * cell for place in range(max(T, len(keys)))]
    for row in rows:
        for column in np.nonzero(shares[row] > FAINT)[0]:
            share = min(1.0, float(shares[row, column]))
            ink = "mixed" if column == S else "seen"
            ends = (left, heights[row]), (right, heights[column])
            tip = f"{token_label(found.tokens[row])} looks at {keys[column]}: {share:.3f}"
            items.append(Line(ends, ink, round(0.08 + 0.92 * share, 2), 0.75 + 3 * share, tip=tip))
    for row, word in enumerate(found.tokens):
        shade = 1.0 if row in rows else 0.35
        items.append(Words(left - 5, heights[row] + 3.5, token_label(word), size, "end", shade, bold=row == query))
    for column, word in enumerate(keys):
        seen = query is None or shares[query, column] > FAINT
        items.append(Words(right + 5, heights[column] + 3.5, word, size, opacity=1.0 if seen else 0.35))
    return items, right + 8 + max(width(word, size) for word in keys), heights[-1] + cell
