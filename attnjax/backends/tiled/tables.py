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


def found(call: Call, walk: Walk, tiles: Tiles, by_keys: bool = False) -> Table:
    """The planned tiles less those that positions and segments of one sequence leave empty, by rows or by key tiles.

    Every array of facts must have a batch axis of 1.
    """
    codes = jnp.asarray(_codes(tiles, walk))
    rows, cols = codes.shape
    row = positions(rows * walk.tile_q), walk.tile_q
    col = positions(cols * tiles.size), tiles.size
    if call.options.plan_by is not None:
        near = _in_reach(call, _ends(call.q_positions(row[0]), row[1]), _ends(call.k_positions(col[0]), col[1]))
        codes = jnp.where(near, codes, Tile.EMPTY)
    q_ids, k_ids = call.facts.q_ids, call.facts.k_ids
    if q_ids is not None:
        q, k = _ids(q_ids, rows, row[1]), _ids(k_ids, cols, col[1])
        (q_low, q_high), (k_low, k_high) = ((low[:, None], high[:, None]) for low, high in (q, k))
        k_low, k_high = k_low.T, k_high.T
        meet = (q_low <= k_high) & (k_low <= q_high)
        one = (q_low == q_high) & (k_low == k_high) & meet
        pure = one & _pure(q_ids, rows, row[1])[:, None] & _pure(k_ids, cols, col[1])[None]
        codes = jnp.where(meet, jnp.where(pure, codes, jnp.minimum(codes, Tile.PARTIAL)), Tile.EMPTY)
    codes = codes.T if by_keys else codes
    rows, cols = codes.shape
    kept, full = (jnp.sum(x, axis=1, dtype=jnp.int32) for x in (codes != Tile.EMPTY, codes == Tile.FULL))
    columns = jnp.argsort(-codes, axis=1, stable=True).astype(jnp.int32)
    first = cols * positions(rows)
    return Table(columns.reshape(-1), first, first + full, first + kept)


def _codes(tiles: Tiles, walk: Walk) -> np.ndarray:
    """The plan's states, int32 [rows, columns]."""
    codes = np.full((walk.rows, -(-walk.S // tiles.size)), Tile.EMPTY, np.int32)
    for i, (a, b, c) in enumerate(zip(tiles.starts[:-1], tiles.partials, tiles.starts[1:], strict=True)):
        codes[i, tiles.columns[a:b]], codes[i, tiles.columns[b:c]] = Tile.FULL, Tile.PARTIAL
    return codes


def _ends(x: Any, size: int) -> tuple[Any, Any]:
    """Smallest and largest position of each tile, from positions [1, length]."""
    x = x[0].reshape(-1, size)
    return x.min(axis=1), x.max(axis=1)


def _in_reach(call: Call, q: tuple[Any, Any], k: tuple[Any, Any]) -> Any:
    """Whether a tile may hold a visible pair, by the bounds of the pattern's parts: bool [rows, columns]."""
    pattern = call.options.pattern
    patterns = dict.fromkeys(pattern.patterns if isinstance(pattern, PerHead) else (pattern,))
    q_low, q_high, k_low, k_high = q[0][:, None], q[1][:, None], k[0][None], k[1][None]
    near = jnp.zeros((q_low.shape[0], k_low.shape[1]), bool)
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
    """Ids [1, length] as [tiles, size]; what is missing is padding."""
    return jnp.pad(ids[0], (0, tiles * size - ids.shape[1]), constant_values=-1).reshape(tiles, size)


def _ids(ids: Any, tiles: int, size: int) -> tuple[Any, Any]:
    """Smallest and largest id of each tile, padding left out (an empty range where there is nothing else)."""
    x = _padded(ids, tiles, size)
    top = jnp.iinfo(jnp.int32).max
    return jnp.where(x < 0, top, x).min(axis=1), jnp.where(x < 0, -1, x).max(axis=1)


def _pure(ids: Any, tiles: int, size: int) -> Any:
    """Whether a tile holds no padding."""
    return (_padded(ids, tiles, size) >= 0).all(axis=1)
