"""A pattern of any length as a small grid: exact shares where that is cheap, tiles where it is not."""

import dataclasses
import typing

import numpy as np

from attnjax.explain import Explanation
from attnjax.patterns import Causal
from attnjax.plan import Plan

# Above this many pairs the grid asks `tile` about a few thousand rectangles instead of looking at every pair.
MOST_PAIRS = 1 << 24


@typing.runtime_checkable
class Drawable(typing.Protocol):
    """What a picture asks of a pattern; any object that answers can be drawn."""

    def mask(self, T: int, S: int | None = None, *, q_offset: int | None = None) -> np.ndarray: ...
    def count(self, T: int, S: int | None = None, *, q_offset: int | None = None) -> int: ...
    def tile(self, q0, q1, k0, k1): ...


@dataclasses.dataclass(frozen=True)
class Cells:
    """Rows are queries, columns are keys; each cell stands for up to `size` x `size` pairs.

    `share` is the visible part of a cell's pairs, 0 to 1. Where `exact` is False only "none", "all" and "in
    between, or not known" were asked for, and the last one stands as 0.5. `scores` is the exact number of
    visible pairs, `row_scores` that of each row of cells (None where not exact), `causal_scores` that of
    Causal; all three are sums over the heads of a PerHead.
    """

    share: np.ndarray
    size: int
    exact: bool
    scores: int
    row_scores: tuple[int, ...] | None
    causal_scores: int
    heads: int
    queries: range
    keys: int

    @property
    def summary(self) -> str:
        """The one line of numbers under every picture."""
        full = len(self.queries) * self.keys * self.heads
        return f"{self.scores:,} scores; causal() has {self.causal_scores:,}, full() {full:,}"


def checked(what: object, T: int | None, S: int | None, q_offset: int | None) -> None:
    """Whether `what` can be drawn with these lengths: a pattern needs them, what `explain` returned has its own."""
    if isinstance(what, Explanation | Plan):
        given = {"T": T, "S": S, "q_offset": q_offset}
        extra = ", ".join(f"{name}={value}" for name, value in given.items() if value is not None)
        if extra:
            raise TypeError(f"{extra}: what explain returned has its own lengths; leave them out")
    elif not isinstance(what, Drawable):
        hint = f"; write aj.parse({what!r})" if isinstance(what, str) else ""
        raise TypeError(
            f"a {type(what).__name__} cannot be drawn: give a pattern such as Window(4) or aj.explain(...){hint}"
        )
    elif T is None:
        raise TypeError("a pattern has no length: say how many queries to draw, e.g. show.text(Window(4), 16)")


def cells(pattern: Drawable, T: int, S: int | None, q_offset: int | None, limit: int) -> Cells:
    """Aggregates the T x S pairs of a pattern to at most `limit` cells a side."""
    scores = pattern.count(T, S, q_offset=q_offset)  # refuses what is no length, and T != S without an offset
    S = T if S is None else S
    first = 0 if q_offset is None else q_offset
    queries = range(first, first + T)
    size = max(1, -(-max(T, S) // limit))
    rows, columns = np.arange(0, T, size), np.arange(0, S, size)
    probe = np.asarray(pattern.mask(1, 1, q_offset=first))
    heads = probe.shape[0] if probe.ndim == 3 else 1
    share, row_scores = np.zeros((len(rows), len(columns))), None
    if T * S > MOST_PAIRS:
        q0, k0 = rows[:, None], columns[None, :]
        states = pattern.tile(first + q0, first + np.minimum(q0 + size, T), k0, np.minimum(k0 + size, S))
        share = np.asarray(states) / 2
    elif share.size:
        visible = np.array([_column_sums(pattern, int(q0), size, queries, S) for q0 in rows])
        pairs = np.outer(np.diff(np.append(rows, T)), np.diff(np.append(columns, S))) * heads
        sums = np.add.reduceat(visible, columns, axis=1)
        share, row_scores = sums / pairs, tuple(sums.sum(axis=1).tolist())
    causal = Causal().count(T, S, q_offset=first) * heads
    return Cells(share, size, T * S <= MOST_PAIRS, int(scores), row_scores, causal, heads, queries, S)


def _column_sums(pattern: Drawable, q0: int, size: int, queries: range, S: int) -> np.ndarray:
    """How many of the queries (and heads) of one band of rows see each key."""
    band = queries[q0 : q0 + size]
    mask = np.asarray(pattern.mask(len(band), S, q_offset=band.start))
    return mask.reshape(-1, S).sum(axis=0)
