"""pattern x lengths -> which keys each row of tiles computes, part by part. Integers only; cached by value.

Bands, columns, blocks and the rest are walked in place; combs in the residue classes of their step. The parts
that walks cover are disjoint, so their results merge exactly.
"""

import functools
from typing import NamedTuple

import numpy as np

from attnjax import notebook, tile_sizes
from attnjax.patterns import Pattern, PerHead, Tile
from attnjax.patterns.parts import Part
from attnjax.patterns.regions import FAR, Region
from attnjax.patterns.same_mask import same_mask
from attnjax.patterns.tiles import Rects
from attnjax.tile_sizes import Heads, Sizes
from attnjax.walks import Local, Problem, States, Tiles, Walk, cheapest, loop

ONE = Heads(1, 1, 1)
MOST_MASKS = 16  # a branch of a kernel for each is code for each
LONGEST = 1 << 24  # a plan keeps a number or two for every sixteen queries


class Masks(NamedTuple):
    """Which PARTIAL tiles of a walk have the same mask, bool [tile_q, size], False past the walk's queries and keys."""

    tiles: Tiles | None  # the walk's, with `masks`; as they were where nobody can tell
    first: tuple[tuple[int, int], ...]  # (row, column) of the first tile with mask 1, 2, ...
    why_not: str | None  # a sentence, if a kernel cannot hold a branch for each of them


class Plan(NamedTuple):
    """Everything that one call visits, for one head."""

    T: int
    S: int
    q_offset: int
    walks: tuple[Walk, ...]
    pattern: Pattern | PerHead  # that it was made of

    _repr_html_ = notebook.html

    def classes(self, walk: Walk) -> int:
        """In how many residue classes there is a query."""
        return min(walk.step, self.T)

    @property
    def full(self) -> int:
        return sum(self.classes(walk) * walk.full for walk in self.walks)

    @property
    def partial(self) -> int:
        return sum(self.classes(walk) * walk.partial for walk in self.walks)

    @property
    def scores(self) -> int:
        """Scores computed for one head."""
        return sum(self.classes(walk) * walk.scores for walk in self.walks)

    def in_rows(self, walk: Walk, cell: Region, z: int = 0) -> Region:
        """A cell of positions in the rows of one class of a walk, exactly; only queries and keys of the call are in it.

        Query row m sees key row n of its class if q0 <= m < q1, k0 <= n < k1 and d0 <= m - n < d1 of the cell of one
        of the visit's parts (if that part is `plain`: else its own rule is left to ask).

        Args:
            walk: one of the plan's.
            cell: of a part, or any other.
            z: the class, below `classes(walk)`; 0 in place.

        Example:
            >>> import attnjax as aj
            >>> from attnjax.plan import plan
            >>> p = plan(aj.Strided(4) | aj.Window(2), 10, 10, 0)
            >>> comb = p.walks[1]
            >>> p.in_rows(comb, comb.tiles.bounds[0].part.cell, z=3)[:4]  # queries and keys 3 and 7
            (0, 2, 0, 2)
        """
        step, moved = walk.step, -self.q_offset
        q = max(_moved(cell.q0, moved), 0) - z, min(_moved(cell.q1, moved), self.T) - z
        k = max(cell.k0, 0) + walk.shift - z, min(cell.k1, self.S) + walk.shift - z
        (q0, q1), (k0, k1) = ((_up(low, step), _up(end, step)) for low, end in (q, k))
        base = (self.q_offset + walk.shift) // step
        d0, d1 = (_moved(_up(bound, step), -base) for bound in (cell.d0, cell.d1))
        return Region(q0, q1, k0, k1, d0, d1)

    def masks(self, walk: Walk) -> Masks:
        """Tells the masks of a walk's PARTIAL tiles apart by the bounds of its parts: no pair is asked.

        In residue classes a mask says which distances show; where one class begins and ends, `in_rows` says. What
        segments, positions or a mask array hide at run time is in none of them.

        Example:
            >>> import attnjax as aj
            >>> from attnjax.plan import plan
            >>> p = plan(aj.Window(1024) | aj.Sink(4), 8192, 8192, 0, tile=(1024, 1024))
            >>> p.masks(p.walks[0]).first  # causal, window and sink, the sink, the end of the window
            ((0, 0), (1, 0), (2, 0), (2, 1))
        """
        tiles, why_not = walk.tiles, self._without_masks(walk)
        if tiles is None or why_not is not None:
            return Masks(tiles, (), why_not)
        found = np.nonzero(~tiles.is_full)[0]
        masks, first = np.zeros(len(tiles.columns), np.int32), found[:0]
        if len(found):
            row, column = tiles.row_of[found].astype(np.int64), tiles.columns[found].astype(np.int64)
            q, k = row * walk.tile_q, column * tiles.size
            parts, ahead = tuple(x.part for x in tiles.bounds), self.q_offset
            if walk.step > 1:
                parts, ahead = tuple(Part("band", _diagonals(x.outer)) for x in tiles.bounds), 0
            q1, k1 = np.minimum(q + walk.tile_q, walk.T), np.minimum(k + tiles.size, walk.S)
            number, first = same_mask(parts, Rects(q + ahead, q1 + ahead, k, k1))
            masks[found], first = number + 1, found[first]
        if len(first) > MOST_MASKS:
            why_not = (
                f"{len(first)} masks among the PARTIAL tiles of {walk.tile_q} x {tiles.size}, over {MOST_MASKS}: "
                "take other tiles, or the masks as data"
            )
        places = zip(tiles.row_of[first].tolist(), tiles.columns[first].tolist(), strict=True)
        return Masks(tiles._replace(masks=masks), tuple(places), why_not)

    def _without_masks(self, walk: Walk) -> str | None:
        """Why bounds do not tell a walk's masks apart."""
        if isinstance(self.pattern, PerHead):
            return f"one plan for the heads of {self.pattern}: plan each head's pattern by itself"
        if self.pattern.has_rule:
            return f"{self.pattern} asks a rule pair by pair: the mask of each PARTIAL tile may be another"
        parts = [x.part for x in walk.tiles.bounds] if walk.tiles else []
        alike = all(part.plain for part in parts) and len({part.cell[:4] for part in parts}) < 2
        if walk.step > 1 and not alike:
            return f"{self.pattern}: in residue classes of {walk.step} more than distance decides, masks differ there"
        return None


@functools.lru_cache(maxsize=256)
def plan(
    pattern: Pattern | PerHead, T: int, S: int, q_offset: int, heads: Heads = ONE, masked: bool = False,
    tile: tuple[int, int] | None = None, sizes: Sizes | None = None,
) -> Plan:  # fmt: skip
    """Splits a pattern into walks and picks tiles for each.

    Args:
        pattern: which keys a query position may look at.
        T, S: number of queries and keys, at least 1.
        q_offset: position of query row 0.
        heads: what multiplies a tile.
        masked: whether a mask array may hide more at run time: then no tile counts as FULL.
        tile: rows and columns of a tile: everything in place, in one loop over tiles of this size.
        sizes: what to try, as `tile_sizes.sizes_for` has it for a device; None: what suits a CPU.

    Returns:
        The plan. A tile that reaches over the keys is never FULL, so padding is always masked.
    """
    if max(T, S) > LONGEST:
        raise ValueError(f"T={T} queries, S={S} keys: a plan is for at most {LONGEST:,} of each; give fewer at a time")
    parts: tuple[Part, ...] = ()
    if not isinstance(pattern, PerHead):
        parts = tuple(x for part in pattern.parts() for x in _within_reach(part, T, S, q_offset))
    steps = sorted({1} | {part.step for part in parts}) if tile is None else [1]
    walks: list[Walk | None] = []
    for step in steps:
        chosen = parts if tile is not None else tuple(part for part in parts if part.step == step)
        if step > 1:
            problem = _in_classes(chosen, T, S, q_offset, step, masked)
        else:
            problem = _in_place(pattern, chosen, T, S, q_offset, masked, whole=len(steps) == 1)
        if tile is not None:
            walks.append(loop(problem, *tile, (), problem.parts))
        else:
            walks.append(cheapest(problem, heads._replace(batch=heads.batch * min(step, T)), sizes or tile_sizes.CPU))
    return Plan(T, S, q_offset, tuple(walk for walk in walks if walk is not None), pattern)


def _diagonals(cell: Region) -> Region:
    """The cell's diagonals, wherever they are."""
    return Region(-FAR, FAR, -FAR, FAR, cell.d0, cell.d1)


def _within_reach(part: Part, T: int, S: int, q_offset: int) -> list[Part]:
    """A comb that is wider than the arrays as the one or two diagonals of it inside them: its classes are padding."""
    if part.step <= max(T, S):
        return [part]
    cell, step = part.cell, part.step
    first, end = max(cell.d0, q_offset - S + 1), min(cell.d1, q_offset + T)
    diagonals = range(-(-first // step) * step, end, step)
    return [part._replace(kind="band", cell=cell._replace(d0=d, d1=d + 1), step=1) for d in diagonals]


def _in_place(
    pattern: Pattern | PerHead, chosen: tuple[Part, ...], T: int, S: int, q_offset: int, masked: bool, whole: bool
) -> Problem:
    """Parts in the rows of the call."""
    local = tuple(Local(part, _rows(part.cell, q_offset)) for part in chosen)
    if isinstance(pattern, PerHead):  # what any head may see, in one loop
        everything = Region(-FAR, FAR, -FAR, FAR, -FAR, FAR)
        local = (Local(Part("rest", everything, plain=False), everything),)

    def states_of(some: tuple[Local, ...]) -> States:
        def states(q0: np.ndarray, q1: np.ndarray, k0: np.ndarray, k1: np.ndarray) -> np.ndarray:
            rects = q0 + q_offset, np.minimum(q1, T) + q_offset, k0, np.minimum(k1, S)
            if isinstance(pattern, PerHead) or (whole and some == local):
                found = pattern.tile(*rects)
            else:
                found = pattern.tile_in(tuple(x.part for x in some), *rects)
            return np.where((found == Tile.FULL) & ((q1 > T) | (k1 > S) | masked), Tile.PARTIAL, found)

        return states

    return Problem(1, 0, T, S, local, whole, states_of)


def _rows(cell: Region, q_offset: int) -> Region:
    """A cell of positions in rows of the call."""
    q0, q1, d0, d1 = (_moved(bound, -q_offset) for bound in (cell.q0, cell.q1, cell.d0, cell.d1))
    return cell._replace(q0=q0, q1=q1, d0=d0, d1=d1)


def _in_classes(chosen: tuple[Part, ...], T: int, S: int, q_offset: int, step: int, masked: bool) -> Problem:
    """Combs of one step in the rows of its residue classes: row m of class z is query z + m * step."""
    shift = -q_offset % step
    local = tuple(Local(part, *_class_rows(part, S, q_offset, step, shift, masked)) for part in chosen)

    def states_of(some: tuple[Local, ...]) -> States:
        def states(q0: np.ndarray, q1: np.ndarray, k0: np.ndarray, k1: np.ndarray) -> np.ndarray:
            rects = Rects(*np.broadcast_arrays(q0, q1, k0, k1))
            seen, full = np.zeros(rects.q0.shape, bool), np.zeros(rects.q0.shape, bool)
            for x in some:
                seen |= rects.within(x.outer)[3]
                if x.inner is not None:
                    full |= rects.inside(x.inner)
            return np.where(full, Tile.FULL, np.where(seen, Tile.PARTIAL, Tile.EMPTY))

        return states

    return Problem(step, shift, -(-T // step), -(-(S + shift) // step), local, False, states_of)


def _class_rows(
    part: Part, S: int, q_offset: int, step: int, shift: int, masked: bool
) -> tuple[Region, Region | None]:
    """(outer, inner) of a comb: a row stands for the positions of all classes, `step` in a row."""
    c, last, base = part.cell, step - 1, (q_offset + shift) // step  # rows m and n are base + m - n steps apart
    d0, d1 = (_moved(_up(bound, step), -base) for bound in (c.d0, c.d1))
    q0, q1 = _moved(c.q0, -q_offset), _moved(c.q1, -q_offset)
    k0, k1 = _moved(c.k0, shift), _moved(c.k1, shift)
    outer = Region(_up(_moved(q0, -last), step), _up(q1, step), _up(_moved(k0, -last), step), _up(k1, step), d0, d1)
    if masked or part.earlier or not part.plain:
        return outer, None
    keys = max(_up(k0, step), _up(shift, step)), min(_down(k1, step), (S + shift) // step)  # no padding among them
    return outer, Region(_up(q0, step), _down(q1, step), *keys, d0, d1)


def _moved(bound: int, by: int) -> int:
    return bound if abs(bound) >= FAR else bound + by


def _up(bound: int, step: int) -> int:
    return bound if abs(bound) >= FAR else -(-bound // step)


def _down(bound: int, step: int) -> int:
    return bound if abs(bound) >= FAR else bound // step
