"""What attention computes of a call, drawn: visits with a mask, without one, and what is never visited."""

from typing import NamedTuple

import numpy as np

from attnjax.explain import Explanation
from attnjax.patterns import PerHead, Tile
from attnjax.plan import Plan
from attnjax.show.labels import broken
from attnjax.show.of_pattern import headed, scale_marks
from attnjax.show.sheet import Box, Item, Line, Picture, Words
from attnjax.walks import Walk

LIMIT = 64  # cells a side
SIDE = 336.0
STATES = {Tile.FULL: ("seen", 0.95), Tile.PARTIAL: ("mixed", 0.9)}
LEGEND = "FULL (computed without a mask): blue; PARTIAL (with one): orange; EMPTY (never visited): blank"


class Grid(NamedTuple):
    """One walk as cells of `q_size` x `k_size` pairs, in the walk's own rows: codes of `Tile`."""

    about: str
    states: np.ndarray  # int8 [rows, columns]
    q_size: int
    k_size: int
    tile_q: int = 0  # where tiles end, in pairs; 0 where they are no lattice
    tile_k: int = 0


class Computed(NamedTuple):
    """What a picture of a plan says: needed is None where positions are known at run time only."""

    name: str
    notes: tuple[str, ...]
    grids: tuple[Grid, ...]


def computed(what: Plan | Explanation) -> Computed:
    """The grids of a plan (one head) or of all that `explain` found (all heads)."""
    if isinstance(what, Plan):
        shape = f"{what.T:,} queries (rows) x {what.S:,} keys (columns), one head"
        needed = None if isinstance(what.pattern, PerHead) else what.pattern.count(what.T, what.S, what.q_offset)
        grids = tuple(walk_grid(walk, "") for walk in what.walks)
        notes = shape, *_counts(needed, what.scores, {"full": what.full, "partial": what.partial})
        return Computed(f"plan of {what.pattern}", notes, grids)
    shape = f"{what.T:,} queries (rows) x {what.S:,} keys (columns), backend {what.backend}"
    notes = shape, *_counts(what.scores_needed, what.scores_computed, what.tiles)
    if what.tiles is None:
        return Computed(what.pattern, notes, _everything(what))
    grids = tuple(
        walk_grid(walk, "" if len(what.plans) == 1 else f"{_whose(heads)}: ")
        for heads, plan in what.plans
        for walk in plan.walks
    )
    return Computed(what.pattern, notes, grids)


def _everything(what: Explanation) -> tuple[Grid, ...]:
    """A backend without tiles computes all pairs, under a mask if some are hidden."""
    if 0 in (what.T, what.S):
        return ()
    q_size, k_size = max(1, -(-what.T // LIMIT)), max(1, -(-what.S // LIMIT))
    state = Tile.FULL if what.scores_needed == what.scores_computed else Tile.PARTIAL
    states = np.full((-(-what.T // q_size), -(-what.S // k_size)), state, np.int8)
    return (Grid(f"{what.backend}: all scores at once", states, q_size, k_size),)


def _whose(heads: tuple[int, ...]) -> str:
    return f"head {heads[0]}" if len(heads) == 1 else f"heads {', '.join(map(str, heads))}"


def _counts(needed: int | None, scores: int, tiles: dict[str, int] | None) -> tuple[str, ...]:
    """The lines of numbers."""
    if needed is None:
        first = f"scores: as positions or heads say, {scores:,} computed at most"
    else:
        waste = f" ({scores / needed:.2f}x)" if needed else ""
        first = f"scores: {needed:,} needed, {scores:,} computed{waste}"
    if tiles is None:
        return (first,)
    return first, f"visits: {tiles['full']:,} FULL, {tiles['partial']:,} PARTIAL (one head)"


def walk_grid(walk: Walk, whose: str) -> Grid:
    """A walk as at most 64 x 64 cells; a cell is FULL only if all of its pairs are computed without a mask."""
    q_size, k_size = max(1, -(-walk.T // LIMIT)), max(1, -(-walk.S // LIMIT))
    q_edges, k_edges = _edges(walk.T, q_size), _edges(walk.S, k_size)
    full, some = (np.zeros((len(q_edges) - 1, len(k_edges) - 1), np.int64) for _ in range(2))
    for row in range(walk.rows):
        q0, q1 = row * walk.tile_q, min((row + 1) * walk.tile_q, walk.T)
        rows = slice(q0 // q_size, -(-q1 // q_size))
        high = _overlap(np.array([q0]), np.array([q1]), q_edges[rows.start : rows.stop + 1])
        for kind, starts, size in _visits(walk, row):
            wide = _overlap(starts, np.minimum(starts + size, walk.S), k_edges)
            some[rows] += np.outer(high, wide)
            if kind is Tile.FULL:
                full[rows] += np.outer(high, wide)
    area = np.outer(np.diff(q_edges), np.diff(k_edges))
    states = np.where(full >= area, Tile.FULL, np.where(some > 0, Tile.PARTIAL, Tile.EMPTY)).astype(np.int8)
    own = "" if walk.step == 1 else f"; row m of a class is query {walk.step} m + class, all classes are alike"
    return Grid(f"{whose}{walk}{own}", states, q_size, k_size, walk.tile_q, walk.tiles.size if walk.tiles else 0)


def _visits(walk: Walk, row: int) -> list[tuple[Tile, np.ndarray, int]]:
    """(state, first keys, number of keys) of everything that one row of tiles computes."""
    found = [(Tile.PARTIAL, stretch.starts[row : row + 1], stretch.size) for stretch in walk.stretches]
    if walk.tiles:
        first, middle, last = walk.tiles.starts[row], walk.tiles.partials[row], walk.tiles.starts[row + 1]
        keys = walk.tiles.columns.astype(np.int64) * walk.tiles.size
        found += [(Tile.FULL, keys[first:middle], walk.tiles.size), (Tile.PARTIAL, keys[middle:last], walk.tiles.size)]
    return found


def _edges(length: int, size: int) -> np.ndarray:
    return np.append(np.arange(0, length, size), length)


def _overlap(starts: np.ndarray, stops: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """How many numbers of all stretches lie between neighbouring edges."""
    inside = np.minimum(stops[:, None], edges[None, 1:]) - np.maximum(starts[:, None], edges[None, :-1])
    return np.maximum(inside, 0).sum(axis=0)


def plan_picture(what: Plan | Explanation, title: str | None) -> Picture:
    """A panel for each walk, under the numbers."""
    said = computed(what)
    name = said.name if title is None else title
    notes = [*said.notes, *([LEGEND] if said.grids else [])]
    items, width, height = headed(name, notes, [_panel(grid) for grid in said.grids], across=2)
    return Picture(name, ". ".join([*notes, *(grid.about for grid in said.grids)]), width, height, tuple(items))


def _panel(grid: Grid) -> tuple[list[Item], float, float]:
    rows, columns = grid.states.shape
    longest = max(rows * grid.q_size, columns * grid.k_size)
    high, wide = SIDE * grid.q_size / longest, SIDE * grid.k_size / longest
    left, top = 48.0, 26.0 + 16 * len(lines := broken(grid.about, 68))
    items: list[Item] = [Words(0, 12 + 14 * i, line, 9, opacity=0.75) for i, line in enumerate(lines)]
    items.append(Box(left, top, columns * wide, rows * high, "text", 0.06))
    for row, column in zip(*np.nonzero(grid.states), strict=True):
        ink, shade = STATES[Tile(int(grid.states[row, column]))]
        items.append(Box(left + column * wide, top + row * high, wide, high, ink, shade))
    for y in _lattice(grid.tile_q, rows * grid.q_size):
        at = top + y * high / grid.q_size
        items.append(Line(((left, at), (left + columns * wide, at)), "text", 0.15, 0.6))
    for x in _lattice(grid.tile_k, columns * grid.k_size):
        at = left + x * wide / grid.k_size
        items.append(Line(((at, top), (at, top + rows * high)), "text", 0.15, 0.6))
    items += scale_marks(left, top, rows, columns, wide, high, 0, grid.q_size, grid.k_size)
    return items, left + columns * wide + 10, top + rows * high + 4


def _lattice(tile: int, length: int) -> range:
    """Where tiles meet, if there are few enough to draw."""
    return range(tile, length, tile) if tile and length // tile <= LIMIT else range(0)
