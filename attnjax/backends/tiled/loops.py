"""The loops over the tiles of a job: by rows of queries, one by one or several at once, and by key tiles."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from attnjax import tables
from attnjax.backends.tiled.jobs import at_run_time
from attnjax.backends.tiled.layout import Tiled, Visit, pad
from attnjax.varying import vary
from attnjax.visible import positions
from attnjax.walks import Tiles


class Pass(NamedTuple):
    """What a pass does with a row of tiles.

    begin(row) -> (what stays, state); take(what stays, state, visit) -> (state, parcel); gather(sums, visit,
    parcel) -> sums, which all rows share; end(what stays, state) -> outputs [B, tile_q, ...]. State None is told
    apart from the first visit on (only where a stretch comes first).

    Where rows are taken together gather is asked row after row, or gather_rows once for all of them: it is given
    visits and parcels with the rows' axis in front, parcels of rows that make no visit being 0.
    """

    begin: Callable[..., Any]
    take: Callable[..., Any]
    gather: Callable[..., Any]
    end: Callable[..., Any]
    gather_rows: Callable[..., Any] | None = None


def by_rows(t: Tiled, steps: Pass, sums: Any, together: int = 1) -> tuple[Any, list[Any]]:
    """A pass over all rows of tiles, `together` of them at once.

    Returns:
        (sums, outputs [B, T, ...]).
    """
    walk = t.walk
    starts = tuple(jnp.asarray(stretch.starts) for stretch in walk.stretches)
    table = None
    if walk.tiles is not None:
        table = tables.found(_states(t, walk.tiles)) if at_run_time(t.call) else tables.planned(walk.tiles)
    per_row = positions(walk.rows), starts, () if table is None else table[1:]
    if together > 1:
        per_row = _blocks(per_row, walk.rows, together)
    columns = None if table is None else table.columns
    sums, per_row = vary((sums, per_row), t.call.varies)  # a row's loop starts from both
    one = _one_row if together == 1 else _some_rows
    sums, out = lax.scan(lambda sums, xs: one(t, steps, sums, columns, *xs), sums, per_row)
    if together > 1:
        out = [_unblocked(x, walk.rows) for x in out]
    return sums, [_joined(x, walk.T) for x in out]


def by_keys(t: Tiled, steps: Pass, together: int) -> list[Any]:
    """A pass over all key tiles, `together` of them at once: each visits the rows of tiles that visit it.

    `steps.begin` is asked with the number of a key tile and `steps.end` gives outputs [B, size, ...]; nothing is summed
    over key tiles. Stretches are left out.

    Returns:
        Outputs [B, S, ...].
    """
    walk, tiles = t.walk, t.walk.tiles
    assert tiles is not None, "there are no tiles"
    turned = tiles.transposed(walk.S, walk.tile_q)
    table = tables.found(_states(t, tiles).T) if at_run_time(t.call) else tables.planned(turned)
    count = len(turned.partials)
    per_tile = vary(_blocks((positions(count), table[1:]), count, together), t.call.varies)

    def at(j: Any, row: Any, masked: bool) -> Visit:
        return Visit(row, j * tiles.size, tiles.size, masked, tiles.parts)

    def one(_: None, xs: Any) -> Any:
        j, bounds = xs
        fixed, state = vary(jax.vmap(steps.begin)(j), t.call.varies)
        state, _ = _some_tiles(steps, fixed, (state, None), table.columns, j, bounds, at)
        return None, jax.vmap(steps.end)(fixed, state)

    return [_joined(_unblocked(x, count), walk.S) for x in lax.scan(one, None, per_tile)[1]]


def _states(t: Tiled, tiles: Tiles) -> Any:
    """States of tiles [rows, columns], found at run time; all sequences of a visit walk through one table."""
    return tables.common(tables.states(t.call, t.walk, tiles))


def _one_row(t: Tiled, steps: Pass, sums: Any, columns: Any, i: Any, starts: Any, bounds: Any) -> Any:
    walk = t.walk
    fixed, state = vary(steps.begin(i), t.call.varies)

    def visit(at: Visit, carry: Any) -> Any:
        state, parcel = steps.take(fixed, carry[0], at)
        return state, steps.gather(carry[1], at, parcel)

    for stretch, start in zip(walk.stretches, starts, strict=True):
        state, sums = visit(Visit(i, start, stretch.size, True, stretch.parts, True), (state, sums))
    if walk.tiles is not None:
        size, parts, carry = walk.tiles.size, walk.tiles.parts, (state, sums)
        for masked, low, high in ((False, bounds[0], bounds[1]), (True, bounds[1], bounds[2])):

            def loop(n: Any, carry: Any, masked: bool = masked) -> Any:
                return visit(Visit(i, columns[n] * size, size, masked, parts), carry)

            carry = lax.fori_loop(low, high, loop, carry)
        state, sums = carry
    return sums, steps.end(fixed, state)


def _some_rows(t: Tiled, steps: Pass, sums: Any, columns: Any, i: Any, starts: Any, bounds: Any) -> Any:
    """As `_one_row` for several rows: the n-th visit of each of them is one batch of tiles."""
    walk = t.walk
    fixed, state = vary(jax.vmap(steps.begin)(i), t.call.varies)
    real = (i > 0) | (positions(i.shape[0]) == 0)  # padding repeats row 0
    for stretch, start in zip(walk.stretches, starts, strict=True):
        at = Visit(i, start, stretch.size, True, stretch.parts, True)
        state, sums = _visit(steps, fixed, at, real, state, sums)
    if walk.tiles is not None:
        tiles: Tiles = walk.tiles

        def at_tile(i: Any, column: Any, masked: bool) -> Visit:
            return Visit(i, column * tiles.size, tiles.size, masked, tiles.parts)

        state, sums = _some_tiles(steps, fixed, (state, sums), columns, i, bounds, at_tile)
    return sums, jax.vmap(steps.end)(fixed, state)


def _some_tiles(
    steps: Pass, fixed: Any, carry: tuple[Any, Any], columns: Any, i: Any, bounds: Any, at: Callable[..., Visit]
) -> tuple[Any, Any]:
    """(state, sums) after the visits that a table gives to several rows, first those without a mask."""
    for masked, low, high in ((False, bounds[0], bounds[1]), (True, bounds[1], bounds[2])):

        def loop(n: Any, carry: Any, masked: bool = masked, low: Any = low, high: Any = high) -> Any:
            active = low + n < high
            tile = columns[jnp.where(active, low + n, jnp.zeros_like(low))]
            return _visit(steps, fixed, at(i, tile, masked), active, *carry)

        carry = lax.fori_loop(0, jnp.max(high - low), loop, carry)
    return carry


def _visit(steps: Pass, fixed: Any, at: Visit, active: Any, state: Any, sums: Any) -> Any:
    """(state, sums) after one visit of several rows, of which those that are not active make none."""

    def of(n: Any) -> Visit:
        return at._replace(row=at.row[n], start=at.start[n])

    def one(fixed: Any, state: Any, row: Any, start: Any) -> Any:
        return steps.take(fixed, state, at._replace(row=row, start=start))

    new, parcels = jax.vmap(one, in_axes=(0, None if state is None else 0, 0, 0))(fixed, state, at.row, at.start)
    if state is not None:
        new = jax.tree.map(lambda a, b: jnp.where(_column(active, a), a, b), new, state)
    if sums is None:
        return new, sums
    if steps.gather_rows is not None:
        parcels = jax.tree.map(lambda x: jnp.where(_column(active, x), x, jnp.zeros_like(x)), parcels)
        return new, steps.gather_rows(sums, at, parcels)

    def add(n: Any, sums: Any) -> Any:
        parcel = jax.tree.map(lambda x: jnp.where(active[n], x[n], jnp.zeros_like(x[n])), parcels)
        return steps.gather(sums, of(n), parcel)

    return new, lax.fori_loop(0, at.row.shape[0], add, sums)


def _blocks(per_row: Any, rows: int, together: int) -> Any:
    """What belongs to rows, as [blocks, together, ...]; rows of padding add nothing, and what they give is cut off."""
    blocks = -(-rows // together)
    return jax.tree.map(lambda x: pad(x, 0, blocks * together).reshape(blocks, together), per_row)


def _unblocked(x: Any, rows: int) -> Any:
    return x.reshape(-1, *x.shape[2:])[:rows]


def _joined(x: Any, length: int) -> Any:
    """[rows of tiles, B, size, ...] -> [B, length, ...]."""
    x = jnp.moveaxis(x, 0, 1)
    return x.reshape(x.shape[0], -1, *x.shape[3:])[:, :length]


def _column(active: Any, like: Any) -> Any:
    """[rows] with axes of 1 behind, as many as `like` has."""
    return active.reshape(active.shape + (1,) * (like.ndim - 1))
