"""Which tiles each row visits: known when the call is traced, or found from positions and segments at run time."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from attnjax.call import Call
from attnjax.patterns import PerHead, Tile
from attnjax.patterns.checks import LARGEST
from attnjax.patterns.regions import FAR
from attnjax.visible import positions
from attnjax.walks import Tiles, Walk


class Table(NamedTuple):
    """Row i visits columns[first[i] : last[i]]; those before middle[i] need no mask. By keys, rows are key tiles."""

    columns: Any
    first: Any
    middle: Any
    last: Any


def planned(tiles: Tiles) -> Table:
    """The table of a plan."""
    return Table(*(jnp.asarray(x) for x in (tiles.columns, tiles.starts[:-1], tiles.partials, tiles.starts[1:])))


def states(call: Call, walk: Walk, tiles: Tiles) -> Any:
    """Codes of `Tile`, int32 [b, rows, columns]: the planned ones, EMPTY where positions and segments leave nothing.

    b is B, or 1 where all sequences have the same positions and segments.
    """
    codes = jnp.asarray(_codes(tiles, walk))[None]
    _, rows, cols = codes.shape
    row = positions(rows * walk.tile_q), walk.tile_q
    col = positions(cols * tiles.size), tiles.size
    if call.options.plan_by is not None:
        near = _in_reach(call, _ends(call.q_positions(row[0]), row[1]), _ends(call.k_positions(col[0]), col[1]))
        codes = jnp.where(near, codes, Tile.EMPTY)
    q_ids, k_ids = call.facts.q_ids, call.facts.k_ids
    if q_ids is not None:
        q, k = _padded(q_ids, rows, row[1]), _padded(k_ids, cols, col[1])
        (q_low, q_high), (k_low, k_high) = (_ids(x) for x in (q, k))
        q_low, q_high, k_low, k_high = q_low[:, :, None], q_high[:, :, None], k_low[:, None], k_high[:, None]
        meet = (q_low <= k_high) & (k_low <= q_high)
        one = (q_low == q_high) & (k_low == k_high) & meet
        pure = one & _pure(q)[:, :, None] & _pure(k)[:, None]
        codes = jnp.where(meet, jnp.where(pure, codes, jnp.minimum(codes, Tile.PARTIAL)), Tile.EMPTY)
    return codes


def common(codes: Any) -> Any:
    """States [rows, columns] of tiles that all sequences visit together, from those of each."""
    low, high = codes.min(axis=0), codes.max(axis=0)
    return jnp.where(low == high, low, jnp.minimum(high, Tile.PARTIAL))


def found(codes: Any) -> Table:
    """The table of states [..., rows, columns], one for each of the leading axes."""
    rows, cols = codes.shape[-2:]
    kept, full = (jnp.sum(x, axis=-1, dtype=jnp.int32) for x in (codes != Tile.EMPTY, codes == Tile.FULL))
    columns = jnp.argsort(-codes, axis=-1, stable=True).astype(jnp.int32)
    first = jnp.broadcast_to(cols * positions(rows), kept.shape)
    return Table(columns.reshape(*codes.shape[:-2], rows * cols), first, first + full, first + kept)


def _codes(tiles: Tiles, walk: Walk) -> np.ndarray:
    """The plan's states, int32 [rows, columns]."""
    codes = np.full((walk.rows, -(-walk.S // tiles.size)), Tile.EMPTY, np.int32)
    for i, (a, b, c) in enumerate(zip(tiles.starts[:-1], tiles.partials, tiles.starts[1:], strict=True)):
        codes[i, tiles.columns[a:b]], codes[i, tiles.columns[b:c]] = Tile.FULL, Tile.PARTIAL
    return codes


def _ends(x: Any, size: int) -> tuple[Any, Any]:
    """Smallest and largest position of each tile [b, tiles], from positions [b, length]."""
    x = x.reshape(x.shape[0], -1, size)
    return x.min(axis=2), x.max(axis=2)


def _in_reach(call: Call, q: tuple[Any, Any], k: tuple[Any, Any]) -> Any:
    """Whether a tile may hold a visible pair, by the bounds of the pattern's parts: bool [b, rows, columns]."""
    pattern = call.options.pattern
    patterns = dict.fromkeys(pattern.patterns if isinstance(pattern, PerHead) else (pattern,))
    q_low, q_high, k_low, k_high = q[0][:, :, None], q[1][:, :, None], k[0][:, None], k[1][:, None]
    near = jnp.zeros(jnp.broadcast_shapes(q_low.shape, k_low.shape), bool)
    for cell in dict.fromkeys(part.cell for one in patterns for part in one.parts()):
        asked = ((q_high, q_low, cell.q0, cell.q1), (k_high, k_low, cell.k0, cell.k1),
                 (q_high - k_low, q_low - k_high, cell.d0, cell.d1))  # fmt: skip
        inside = jnp.ones_like(near)
        for highest, lowest, low, high in asked:
            inside = inside & (highest >= min(low, LARGEST)) if low > -FAR else inside
            inside = inside & (lowest < high) if high <= LARGEST else inside
        near = near | inside
    return near


def _padded(ids: Any, tiles: int, size: int) -> Any:
    """Ids [b, length] as [b, tiles, size]; what is missing is padding."""
    missing = tiles * size - ids.shape[1]
    return jnp.pad(ids, ((0, 0), (0, missing)), constant_values=-1).reshape(ids.shape[0], tiles, size)


def _ids(x: Any) -> tuple[Any, Any]:
    """Smallest and largest id of each tile, padding left out (an empty range where there is nothing else)."""
    top = jnp.iinfo(jnp.int32).max
    return jnp.where(x < 0, top, x).min(axis=2), jnp.where(x < 0, -1, x).max(axis=2)


def _pure(x: Any) -> Any:
    """Whether a tile holds no padding."""
    return (x >= 0).all(axis=2)
