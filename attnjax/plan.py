"""pattern x lengths x tile sizes -> which tiles to compute, in which order. Integers only; cached by value."""

import dataclasses
import functools

import numpy as np

from attnjax.patterns import Pattern, PerHead, Tile


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """The tiles of one call, row of tiles by row of tiles; in each row FULL ones first, then PARTIAL ones.

    Tile (i, j) covers query rows [i * tile_q, ...) and key rows [j * tile_k, ...), clipped to T and S. Row i
    computes the key tiles columns[starts[i] : starts[i + 1]]; those before partials[i] are FULL.
    """

    T: int
    S: int
    q_offset: int
    tile_q: int
    tile_k: int
    columns: np.ndarray  # int32 [tiles]
    starts: np.ndarray  # int32 [rows + 1]
    partials: np.ndarray  # int32 [rows]

    @property
    def rows(self) -> int:
        return len(self.partials)

    @property
    def full(self) -> int:
        return int(np.sum(self.partials - self.starts[:-1]))

    @property
    def partial(self) -> int:
        return len(self.columns) - self.full

    @property
    def empty(self) -> int:
        return self.rows * -(-self.S // self.tile_k) - len(self.columns)

    @property
    def scores(self) -> int:
        """Scores computed for one head: whole tiles, the overhang of the last ones included."""
        return len(self.columns) * self.tile_q * self.tile_k


@functools.lru_cache(maxsize=256)
def plan(
    pattern: Pattern | PerHead, T: int, S: int, q_offset: int, tile_q: int, tile_k: int, masked: bool = False
) -> Plan:
    """Lists the tiles that hold a visible pair.

    Args:
        pattern: which keys a query position may look at.
        T, S: number of queries and keys, at least 1.
        q_offset: position of query row 0.
        tile_q, tile_k: rows and columns of a tile.
        masked: whether a mask array may hide more at run time: then no tile counts as FULL.

    Returns:
        The plan. A tile that reaches over T or S is never FULL, so padding is always masked.
    """
    rows, cols = np.arange(0, T, tile_q), np.arange(0, S, tile_k)
    q0, k0 = rows[:, None], cols[None, :]
    states = pattern.tile(
        q0 + q_offset, np.minimum(q0 + tile_q, T) + q_offset, k0, np.minimum(k0 + tile_k, S)
    )
    over = (q0 + tile_q > T) | (k0 + tile_k > S)
    states = np.where((states == Tile.FULL) & (over | masked), Tile.PARTIAL, states)
    kept = (states != Tile.EMPTY).sum(axis=1)
    ranked = np.argsort(-states, axis=1, kind="stable")  # FULL, PARTIAL, EMPTY; each from left to right
    columns = ranked[np.arange(len(cols))[None, :] < kept[:, None]].astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(kept)]).astype(np.int32)
    partials = (starts[:-1] + (states == Tile.FULL).sum(axis=1)).astype(np.int32)
    return Plan(T, S, q_offset, tile_q, tile_k, columns, starts, partials)
