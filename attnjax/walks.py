"""A walk: one layout of queries and keys, and the tiles that it visits there.

In place, a walk's rows are those of the call. In the residue classes of a comb's step s, query row i is row
i // s of class i % s, and the keys that it may see are a class of their own. In its own rows every walk is an
ordinary short attention.
"""

from collections.abc import Callable
from typing import NamedTuple, NoReturn

import numpy as np

from attnjax import tile_sizes
from attnjax.patterns import Tile
from attnjax.patterns.parts import Part
from attnjax.patterns.regions import Region
from attnjax.tile_sizes import Heads, Sizes

BLOCK = 8  # tiles a side that are asked about together first
MOST_TILES = 1 << 27  # of one table, a byte or two for each while it is made
ASKED_AT_ONCE = 4096  # tiles of a table that is too small for a first look at blocks of them

States = Callable[..., np.ndarray]  # (q0, q1, k0, k1) -> codes of Tile, in the walk's own rows


class Local(NamedTuple):
    """A part in the rows of a walk: outside of `outer` nothing is visible, inside `inner` everything.

    The distances m - n of `outer` are exact in every class; where queries and keys begin and end differs by a row
    from class to class: `Plan.in_rows` has those of one. In place a comb shows only some of these distances.
    """

    part: Part
    outer: Region
    inner: Region | None = None


class Stretch(NamedTuple):
    """`size` keys from starts[row] on, taken in one pass; `parts` says what is visible there."""

    size: int
    starts: np.ndarray  # int32 [rows]
    parts: tuple[Part, ...] | None  # None: whatever the pattern shows
    bounds: tuple[Local, ...] = ()  # of these parts, in the walk's rows


class Tiles(NamedTuple):
    """Tiles of one size, row by row; in each row FULL ones first, then PARTIAL ones.

    Row i computes the key tiles columns[starts[i] : starts[i + 1]]; those before partials[i] are FULL.
    """

    size: int  # keys of a tile
    columns: np.ndarray  # int32 [tiles]
    starts: np.ndarray  # int32 [rows + 1]
    partials: np.ndarray  # int32 [rows]
    parts: tuple[Part, ...] | None
    bounds: tuple[Local, ...] = ()  # of these parts, in the walk's rows
    masks: np.ndarray | None = None  # int32 [tiles]: 0 of FULL ones, else which mask (from 1); None: not asked

    @property
    def full(self) -> int:
        return int(np.sum(self.partials - self.starts[:-1]))

    @property
    def row_of(self) -> np.ndarray:
        """int32 [tiles]: the row of each tile."""
        return np.repeat(np.arange(len(self.partials), dtype=np.int32), np.diff(self.starts))

    @property
    def is_full(self) -> np.ndarray:
        """bool [tiles]: which tiles need no mask."""
        return np.arange(len(self.columns)) < self.partials[self.row_of]

    def transposed(self, S: int, tile_q: int) -> "Tiles":
        """The same tiles with the key tiles as rows: what a backward visits for the gradients of keys and values.

        Rows and columns change places: row i is the key tile i, `columns` are row tiles of queries, and `size` is
        `tile_q`. In each row FULL tiles come first, as before. Bounds and masks stay those of (queries, keys).

        Args:
            S: keys of the walk.
            tile_q: queries of a tile.

        Example:
            >>> import attnjax as aj
            >>> from attnjax.plan import plan
            >>> walk = plan(aj.Causal(), 12, 12, 0, tile=(4, 4)).walks[0]
            >>> by_keys = walk.tiles.transposed(walk.S, walk.tile_q)
            >>> by_keys.columns.tolist(), by_keys.starts.tolist(), by_keys.partials.tolist()
            ([1, 2, 0, 2, 1, 2], [0, 3, 5, 6], [2, 4, 5])
        """
        full, rows = self.is_full, -(-S // self.size)
        order = np.lexsort((self.row_of, ~full, self.columns))
        found, whole = (np.bincount(x, minlength=rows) for x in (self.columns, self.columns[full]))
        starts = np.concatenate([[0], np.cumsum(found)]).astype(np.int32)
        return self._replace(
            size=tile_q, columns=self.row_of[order], starts=starts, partials=(starts[:-1] + whole).astype(np.int32),
            masks=None if self.masks is None else self.masks[order],
        )  # fmt: skip


class Walk(NamedTuple):
    """One layout and what it visits."""

    step: int  # 1: in place; else how many residue classes there are
    shift: int  # padding before key row 0, so that classes of queries and keys line up
    T: int
    S: int
    tile_q: int
    stretches: tuple[Stretch, ...]
    tiles: Tiles | None

    def __str__(self) -> str:
        where = "in place" if self.step == 1 else f"in residue classes of {self.step}"
        sizes = [f"one pass over {stretch.size} keys" for stretch in self.stretches]
        if self.tiles:
            found, size, full = len(self.tiles.columns), self.tiles.size, self.tiles.full
            sizes.append(f"{found} tiles of {size} keys ({full} without a mask)")
        return f"{where}: {self.rows} rows of {self.tile_q} queries, {' and '.join(sizes)}"

    @property
    def rows(self) -> int:
        return -(-self.T // self.tile_q)

    @property
    def tile_k(self) -> int:
        """Keys of the widest visit."""
        return max([stretch.size for stretch in self.stretches] + ([self.tiles.size] if self.tiles else []))

    @property
    def full(self) -> int:
        """Visits without a mask, in one class."""
        return self.tiles.full if self.tiles else 0

    @property
    def partial(self) -> int:
        """Visits with a mask, in one class."""
        return self.rows * len(self.stretches) + (len(self.tiles.columns) - self.tiles.full if self.tiles else 0)

    @property
    def scores(self) -> int:
        """Scores computed in one class for one head: whole tiles, the overhang of the last ones included."""
        looped = len(self.tiles.columns) * self.tiles.size if self.tiles else 0
        return self.tile_q * (looped + self.rows * sum(stretch.size for stretch in self.stretches))


class Problem(NamedTuple):
    """What one walk has to compute. `whole`: no other walk computes a part of the pattern."""

    step: int
    shift: int
    T: int
    S: int
    parts: tuple[Local, ...]
    whole: bool
    states_of: Callable[[tuple[Local, ...]], States]

    def shown_by(self, chosen: tuple[Local, ...]) -> tuple[Part, ...] | None:
        """What a visit is told to show: None where the pattern itself says it."""
        return None if self.whole and chosen == self.parts else tuple(local.part for local in chosen)


def cheapest(problem: Problem, heads: Heads, sizes: Sizes) -> Walk | None:
    """The walk that costs least; None where nothing is visible."""
    p = problem
    few = tuple(x for x in p.parts if x.part.kind == "column" and x.outer.k1 <= sizes.few and x.outer.k0 < p.S)
    rest = tuple(x for x in p.parts if x not in few)
    loops = tile_sizes.loop_sizes(heads, p.T, p.S, sizes)
    listable = [size for size in loops if _listable(p, *size)]
    found = [loop(p, *_askable(p, p.parts, *size), (), p.parts) for size in listable]
    if few and rest:
        found += [loop(p, *_askable(p, rest, *size), few, rest) for size in listable]
    stretches = tile_sizes.stretch_sizes(heads, p.T, sizes)
    found += [one_pass(p, size, few, rest, sizes.stretch) for size in stretches]
    walks = [walk for walk in found if walk is not None]
    if not walks and p.parts and not listable:
        _refuse_tiles(p, *loops[0])
    if not walks:
        return None
    most = tile_sizes.SLACK * min(walk.scores for walk in walks)
    thrifty = [walk for walk in walks if walk.scores <= most]
    return min(thrifty, key=lambda w: tile_sizes.cost(heads, w.full + w.partial, w.tile_q, w.scores, sizes))


def loop(problem: Problem, tile_q: int, tile_k: int, few: tuple[Local, ...], rest: tuple[Local, ...]) -> Walk | None:
    """A walk over tiles of one size, the few keys that all queries see apart."""
    p = problem
    if not _listable(p, tile_q, tile_k):
        _refuse_tiles(p, tile_q, tile_k)
    table = tiles(p.states_of(rest), p.T, p.S, tile_q, tile_k, p.shown_by(rest))._replace(bounds=rest)
    stretches = (_few(p, tile_q, few),) if few else ()
    if not len(table.columns):
        return Walk(p.step, p.shift, p.T, p.S, tile_q, stretches, None) if few else None
    return Walk(p.step, p.shift, p.T, p.S, tile_q, stretches, table)


def one_pass(
    problem: Problem, tile_q: int, few: tuple[Local, ...], rest: tuple[Local, ...], most: int
) -> Walk | None:
    """A walk that takes the keys of each row of tiles as one stretch, of `most` keys (and the few that all see)."""
    p = problem
    first = np.arange(0, p.T, tile_q)
    low, high = _reach(rest, first, np.minimum(first + tile_q, p.T), p.S)
    longest = int(np.max(high - low, initial=0))
    if longest > most or not (longest or few):
        return None
    stretches = (_few(p, tile_q, few),) if few else ()
    if longest:
        size = min(-(-longest // 16) * 16, p.S)
        starts = np.clip(np.where(high > low, low, 0), 0, p.S - size).astype(np.int32)
        stretches += (Stretch(size, starts, p.shown_by(rest), rest),)
    return Walk(p.step, p.shift, p.T, p.S, tile_q, stretches, None)


def _listable(problem: Problem, tile_q: int, tile_k: int) -> bool:
    return -(-problem.T // tile_q) * -(-problem.S // tile_k) <= MOST_TILES


def _refuse_tiles(p: Problem, tile_q: int, tile_k: int) -> NoReturn:
    found = -(-p.T // tile_q) * -(-p.S // tile_k)
    raise ValueError(
        f"T={p.T} queries and S={p.S} keys make {found:,} tiles of {tile_q} x {tile_k}; a plan lists at most "
        f"{MOST_TILES:,}: give fewer queries at a time, with q_offset= where they stand"
    )


def _askable(problem: Problem, chosen: tuple[Local, ...], tile_q: int, tile_k: int) -> tuple[int, int]:
    """The size, widened until a plan need not ask about too many tiles one by one (where each holds a hidden pair)."""
    p, states = problem, problem.states_of(chosen)
    while tile_k < p.S and -(-p.T // tile_q) * -(-p.S // tile_k) > tile_sizes.QUESTIONS:
        blocks = _codes(states, p.T, p.S, BLOCK * tile_q, BLOCK * tile_k)
        if np.count_nonzero(blocks == Tile.PARTIAL) * BLOCK**2 <= tile_sizes.QUESTIONS:
            break
        tile_k = min(2 * tile_k, p.S)
    return tile_q, tile_k


def _few(problem: Problem, tile_q: int, few: tuple[Local, ...]) -> Stretch:
    first = max(0, min(local.outer.k0 for local in few))
    size = min(max(local.outer.k1 for local in few), problem.S) - first
    rows = -(-problem.T // tile_q)
    return Stretch(size, np.full(rows, first, np.int32), problem.shown_by(few), few)


def _reach(chosen: tuple[Local, ...], q0: np.ndarray, q1: np.ndarray, S: int) -> tuple[np.ndarray, np.ndarray]:
    """[low, high) of the keys that rows [q0, q1) may see; low >= high where there is none."""
    low, high = np.full(q0.shape, S), np.zeros(q0.shape, int)
    for _, c, _ in chosen:
        a, b = np.maximum(q0, c.q0), np.minimum(q1, c.q1)
        first, last = np.maximum(max(c.k0, 0), a - c.d1 + 1), np.minimum(min(c.k1, S), b - c.d0)
        any_key = (a < b) & (first < last)
        low, high = np.where(any_key, np.minimum(low, first), low), np.where(any_key, np.maximum(high, last), high)
    return low, high


def tiles(states: States, T: int, S: int, tile_q: int, tile_k: int, parts: tuple[Part, ...] | None) -> Tiles:
    """Lists the tiles that hold a visible pair."""
    codes = _codes(states, T, S, tile_q, tile_k)
    full, partial = codes == Tile.FULL, codes == Tile.PARTIAL
    columns = (np.nonzero(np.concatenate([full, partial], axis=1))[1] % codes.shape[1]).astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(full.sum(axis=1) + partial.sum(axis=1))]).astype(np.int32)
    return Tiles(tile_k, columns, starts, (starts[:-1] + full.sum(axis=1)).astype(np.int32), parts)


def _codes(states: States, T: int, S: int, tile_q: int, tile_k: int) -> np.ndarray:
    """States of all tiles [rows, columns]; of many, blocks of them are asked about first, as they often agree."""
    rows, cols = np.arange(0, T, tile_q)[:, None], np.arange(0, S, tile_k)[None, :]
    if rows.size * cols.size <= ASKED_AT_ONCE:
        return states(rows, rows + tile_q, cols, cols + tile_k)
    blocks = _codes(states, T, S, BLOCK * tile_q, BLOCK * tile_k)
    codes = blocks.repeat(BLOCK, axis=0).repeat(BLOCK, axis=1)[: rows.size, : cols.size]
    unsure = np.nonzero(codes == Tile.PARTIAL)
    q0, k0 = unsure[0] * tile_q, unsure[1] * tile_k
    codes[unsure] = states(q0, q0 + tile_q, k0, k0 + tile_k)
    return codes
