"""One call cut into tiles: arrays laid out tile by tile, and the questions that every pass asks of a tile."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from attnjax.call import Call
from attnjax.plan import Plan, plan
from attnjax.scores import capped, matmul_precision
from attnjax.shapes import compute_dtype
from attnjax.visible import positions

TILE = 128  # rows and columns; shorter sequences take one tile of their length


def plan_of(call: Call) -> Plan:
    """The tiles that the call visits."""
    d, o = call.dims, call.options
    tile_q, tile_k = o.tile or (min(TILE, d.T), min(TILE, d.S))
    narrowed = o.plan_by is not None or call.mask is not None or "q_ids" in call.facts
    return plan(o.pattern if o.plan_by is None else o.plan_by, d.T, d.S, o.q_offset, tile_q, tile_k, narrowed)


class Tiled(NamedTuple):
    """One call cut into tiles: the letters are those of the package, r = G * tile_q rows of one key head."""

    call: Call
    plan: Plan
    dtype: Any
    q: Any  # [rows of tiles, B, K, r, H]
    k: Any  # [columns of tiles, B, K, tile_k, H]
    v: Any  # [columns of tiles, B, K, tile_k, h]
    bias: Any  # [B|1, N|1, T'|1, S'|1], lengths padded to whole tiles
    mask: Any

    @property
    def params(self) -> Any:
        return self.call.diff.get("score_params")

    def einsum(self, subscripts: str, a: Any, b: Any) -> Any:
        precision = matmul_precision(self.call.options.precision, self.call.q, self.call.k, self.call.v)
        return jnp.einsum(subscripts, a.astype(self.dtype), b.astype(self.dtype), precision=precision)

    def grouped(self, x_BNts: Any) -> Any:
        """[b, n, t, s] -> [b, K|1, G|1, t, s], for arrays that broadcast over heads."""
        d = self.call.dims
        b, n, t, s = x_BNts.shape
        return x_BNts.reshape((b, d.K, d.N // d.K, t, s) if n == d.N else (b, 1, 1, t, s))

    def corner(self, x: Any, i: Any, j: Any) -> tuple[Any, ...]:
        """Where tile (i, j) begins in an array that broadcasts over queries or keys."""
        row = i * self.plan.tile_q if x.shape[2] > 1 else jnp.int32(0)
        return jnp.int32(0), jnp.int32(0), row, j * self.plan.tile_k if x.shape[3] > 1 else jnp.int32(0)

    def slice(self, x: Any, i: Any, j: Any) -> Any:
        """Tile (i, j) of bias or mask, with heads grouped."""
        size = (*x.shape[:2], min(x.shape[2], self.plan.tile_q), min(x.shape[3], self.plan.tile_k))
        return self.grouped(lax.dynamic_slice(x, self.corner(x, i, j), size))

    def place(self, i: Any, j: Any) -> tuple[Any, Any]:
        """Row and column indices of tile (i, j)."""
        p = self.plan
        return i * p.tile_q + positions(p.tile_q), j * p.tile_k + positions(p.tile_k)

    def seen(self, i: Any, j: Any) -> Any:
        """Which pairs of tile (i, j) are visible, [b, K|1, G|1, tile_q, tile_k]: positions decide, then the mask."""
        row, col = self.place(i, j)
        inside = (row < self.plan.T)[:, None] & (col < self.plan.S)[None, :]
        seen = self.grouped(self.call.shown(row, col) & inside[None, None])
        return seen if self.mask is None else seen & self.slice(self.mask, i, j)

    def rescored(self, dots: Any, i: Any, j: Any, params: Any) -> Any:
        """score_fn on one tile [B, K, r, tile_k]."""
        s = self.split(dots)
        flat = s.reshape(s.shape[0], -1, *s.shape[3:])  # [B, N, tile_q, tile_k]
        return self.call.rescored(flat, *self.place(i, j), params).reshape(dots.shape)

    def scores(self, i: Any, j: Any, q_tile: Any, k_tile: Any, partial: bool) -> tuple[Any, Any]:
        """(scores after the cap, scores with score_fn, bias and mask), each [B, K, r, tile_k]."""
        o = self.call.options
        dots = capped(self.einsum("bkrh,bksh->bkrs", q_tile, k_tile) * o.scale, o.soft_cap)
        s = self.split(dots if o.score_fn is None else self.rescored(dots, i, j, self.params))
        if self.bias is not None:
            s = s + self.slice(self.bias, i, j).astype(s.dtype)
        if partial:
            s = jnp.where(self.seen(i, j), s, -jnp.inf)
        return dots, s.reshape(dots.shape)

    def keep(self, i: Any, j: Any, p: Any) -> Any:
        """Weights [B, K, r, tile_k] after dropout."""
        factor = self.call.dropout(*self.place(i, j), self.dtype)
        return p if factor is None else p * self.grouped(factor).reshape(p.shape)

    def split(self, x: Any) -> Any:
        """[B, K, r, tile_k] -> [B, K, G, tile_q, tile_k]."""
        B, K, r, s = x.shape
        return x.reshape(B, K, r // self.plan.tile_q, self.plan.tile_q, s)

    def cap_slope(self, dots: Any) -> Any:
        """Derivative of the soft cap, from its value, times the scale."""
        o = self.call.options
        return o.scale if o.soft_cap is None else o.scale * (1 - (dots / o.soft_cap) ** 2)

    def sinks(self, x_BN: Any) -> Any:
        """[B|1, N] -> [B|1, K, r], one number for each row of a tile; None stays None."""
        if x_BN is None:
            return None
        d = self.call.dims
        x = x_BN.reshape(-1, d.K, d.N // d.K, 1).astype(self.dtype)
        return jnp.broadcast_to(x, (*x.shape[:3], self.plan.tile_q)).reshape(x.shape[0], d.K, -1)

    def rows(self, row: Callable[..., Any], carry: Any, per_row: tuple[Any, ...]) -> Any:
        """Scan over rows of tiles: row(carry, i, visit, *tiles of per_row) -> (carry, output)."""
        p = self.plan
        columns = jnp.asarray(p.columns if len(p.columns) else p.starts)  # never indexed when there is no tile
        tables = (positions(p.rows), *map(jnp.asarray, (p.starts[:-1], p.partials, p.starts[1:])))

        def step(carry: Any, xs: Any) -> Any:
            (i, first, middle, last), tiles = xs

            def visit(body: Callable[..., Any], state: Any) -> Any:
                """body(state, j, partial) over the row's tiles, FULL ones first."""
                state = lax.fori_loop(first, middle, lambda n, c: body(c, columns[n], False), state)
                return lax.fori_loop(middle, last, lambda n, c: body(c, columns[n], True), state)

            return row(carry, i, visit, *tiles)

        return lax.scan(step, carry, (tables, per_row))


def cut(call: Call) -> Tiled:
    """The call laid out for its plan."""
    p = plan_of(call)
    lengths = (p.rows * p.tile_q, -(-p.S // p.tile_k) * p.tile_k)
    bias, mask = (None if x is None else pad_scores(x, lengths) for x in (call.bias, call.mask))
    k, v = (key_tiles(x, p.tile_k) for x in (call.k, call.v))
    dtype = compute_dtype(call.q, call.k, call.v)
    return Tiled(call, p, dtype, query_tiles(call.q, call.k.shape[2], p.tile_q), k, v, bias, mask)


def _pad(x: Any, axis: int, size: int) -> Any:
    pads = [(0, size - n if a == axis else 0) for a, n in enumerate(x.shape)]
    return x if size == x.shape[axis] else jnp.pad(x, pads)


def pad_scores(x: Any, lengths: tuple[int, int]) -> Any:
    """Bias or mask padded to whole tiles along the axes that do not broadcast."""
    for axis, size in zip((2, 3), lengths, strict=True):
        x = _pad(x, axis, size) if x.shape[axis] > 1 else x
    return x


def query_tiles(x_BTNH: Any, K: int, tile: int) -> Any:
    """[B, T, N, H] -> [rows of tiles, B, K, G * tile, H]."""
    B, T, N, H = x_BTNH.shape
    rows = -(-T // tile)
    x = _pad(x_BTNH, 1, rows * tile).reshape(B, rows, tile, K, N // K, H)
    return x.transpose(1, 0, 3, 4, 2, 5).reshape(rows, B, K, N // K * tile, H)


def from_query_tiles(x: Any, T: int, tile: int) -> Any:
    """[rows of tiles, B, K, G * tile, H] -> [B, T, N, H]."""
    rows, B, K, r, H = x.shape
    x = x.reshape(rows, B, K, r // tile, tile, H).transpose(1, 0, 4, 2, 3, 5)
    return x.reshape(B, rows * tile, K * (r // tile), H)[:, :T]


def key_tiles(x_BSKH: Any, tile: int) -> Any:
    """[B, S, K, H] -> [columns of tiles, B, K, tile, H]."""
    B, S, K, H = x_BSKH.shape
    columns = -(-S // tile)
    return _pad(x_BSKH, 1, columns * tile).reshape(B, columns, tile, K, H).transpose(1, 0, 3, 2, 4)


def from_key_tiles(x: Any, S: int) -> Any:
    """[columns of tiles, B, K, tile, H] -> [B, S, K, H]."""
    columns, B, K, tile, H = x.shape
    return x.transpose(1, 0, 3, 2, 4).reshape(B, columns * tile, K, H)[:, :S]
