"""Attention over the plan's tiles: online softmax, own backward and tangent, O(T) memory, on any platform.

All three passes walk the same tables: a scan over rows of tiles, and inside it one loop over FULL tiles (no
mask) and one over PARTIAL tiles. EMPTY tiles are never visited. The program's size does not grow with T.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from attnjax.blend import Partial, finish, finite_max, merge, of_scores, start
from attnjax.call import Call
from attnjax.plan import Plan, plan
from attnjax.scores import capped, matmul_precision
from attnjax.shapes import compute_dtype
from attnjax.visible import positions, visible_at

HAS_BACKWARD = True
TILE = 128  # rows and columns; shorter sequences take one tile of their length


def why_not(call: Call) -> str | None:
    """A sentence if the call cannot run here."""
    d = call.dims
    if 0 in (d.B, d.T, d.S, d.N, d.h):
        return f"an axis has size 0 (B={d.B} T={d.T} S={d.S} N={d.N} h={d.h}), so there is no tile"
    return None


def plan_of(call: Call) -> Plan:
    """The tiles that the call visits."""
    d, o = call.dims, call.options
    tile_q, tile_k = o.tile or (min(TILE, d.T), min(TILE, d.S))
    return plan(o.pattern, d.T, d.S, o.q_offset, tile_q, tile_k, call.mask is not None)


def work(call: Call) -> dict[str, Any]:
    """What running the call costs: tiles by state, scores computed, bytes of temporaries."""
    d, p = call.dims, plan_of(call)
    width = jnp.dtype(compute_dtype(call.q, call.k, call.v)).itemsize
    tile = p.tile_q * p.tile_k + p.tile_q * (d.H + 2 * d.h) + p.tile_k * (d.H + d.h)
    return {
        "tiles": {"empty": p.empty, "partial": p.partial, "full": p.full},
        "tile_size": (p.tile_q, p.tile_k),
        "scores": d.B * d.N * p.scores,
        "bytes": d.B * d.N * tile * width + 2 * (call.q.size * call.q.dtype.itemsize),
    }


class _Tiled(NamedTuple):
    """One call cut into tiles: the letters are those of the package, r = G * tile_q rows of one key head."""

    call: Call
    plan: Plan
    dtype: Any
    q: Any  # [rows of tiles, B, K, r, H]
    k: Any  # [columns of tiles, B, K, tile_k, H]
    v: Any  # [columns of tiles, B, K, tile_k, h]
    bias: Any  # [B|1, N|1, T'|1, S'|1], lengths padded to whole tiles
    mask: Any

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

    def cut(self, x: Any, i: Any, j: Any) -> Any:
        """Tile (i, j) of bias or mask, with heads grouped."""
        size = (*x.shape[:2], min(x.shape[2], self.plan.tile_q), min(x.shape[3], self.plan.tile_k))
        return self.grouped(lax.dynamic_slice(x, self.corner(x, i, j), size))

    def seen(self, i: Any, j: Any) -> Any:
        """Which pairs of tile (i, j) are visible, [b, K|1, G|1, tile_q, tile_k]: positions decide, then the mask."""
        p, pattern = self.plan, self.call.options.pattern
        row, col = i * p.tile_q + positions(p.tile_q), j * p.tile_k + positions(p.tile_k)
        inside = (row < p.T)[:, None] & (col < p.S)[None, :]
        seen = self.grouped(visible_at(pattern, p.q_offset + row, col) & inside[None, None])
        return seen if self.mask is None else seen & self.cut(self.mask, i, j)

    def scores(self, i: Any, j: Any, q_tile: Any, k_tile: Any, partial: bool) -> tuple[Any, Any]:
        """(scores after the cap, scores with bias and mask), each [B, K, r, tile_k]."""
        o = self.call.options
        dots = capped(self.einsum("bkrh,bksh->bkrs", q_tile, k_tile) * o.scale, o.soft_cap)
        s = self.split(dots)
        if self.bias is not None:
            s = s + self.cut(self.bias, i, j).astype(s.dtype)
        if partial:
            s = jnp.where(self.seen(i, j), s, -jnp.inf)
        return dots, s.reshape(dots.shape)

    def split(self, x: Any) -> Any:
        """[B, K, r, tile_k] -> [B, K, G, tile_q, tile_k]."""
        B, K, r, s = x.shape
        return x.reshape(B, K, r // self.plan.tile_q, self.plan.tile_q, s)

    def cap_slope(self, dots: Any) -> Any:
        """Derivative of the soft cap, from its value, times the scale."""
        o = self.call.options
        return o.scale if o.soft_cap is None else o.scale * (1 - (dots / o.soft_cap) ** 2)

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


def _tiled(call: Call) -> _Tiled:
    p = plan_of(call)
    lengths = (p.rows * p.tile_q, -(-p.S // p.tile_k) * p.tile_k)
    bias, mask = (None if x is None else _pad_scores(x, lengths) for x in (call.bias, call.mask))
    k, v = (_key_tiles(x, p.tile_k) for x in (call.k, call.v))
    dtype = compute_dtype(call.q, call.k, call.v)
    return _Tiled(call, p, dtype, _query_tiles(call.q, call.k.shape[2], p.tile_q), k, v, bias, mask)


def _pad(x: Any, axis: int, size: int, value: Any = 0) -> Any:
    pads = [(0, size - n if a == axis else 0) for a, n in enumerate(x.shape)]
    return x if size == x.shape[axis] else jnp.pad(x, pads, constant_values=value)


def _pad_scores(x: Any, lengths: tuple[int, int]) -> Any:
    """Bias or mask padded to whole tiles along the axes that do not broadcast."""
    for axis, size in zip((2, 3), lengths, strict=True):
        x = _pad(x, axis, size) if x.shape[axis] > 1 else x
    return x


def _query_tiles(x_BTNH: Any, K: int, tile: int, value: Any = 0) -> Any:
    """[B, T, N, H] -> [rows of tiles, B, K, G * tile, H]."""
    B, T, N, H = x_BTNH.shape
    rows = -(-T // tile)
    x = _pad(x_BTNH, 1, rows * tile, value).reshape(B, rows, tile, K, N // K, H)
    return x.transpose(1, 0, 3, 4, 2, 5).reshape(rows, B, K, N // K * tile, H)


def _from_query_tiles(x: Any, T: int, tile: int) -> Any:
    """[rows of tiles, B, K, G * tile, H] -> [B, T, N, H]."""
    rows, B, K, r, H = x.shape
    x = x.reshape(rows, B, K, r // tile, tile, H).transpose(1, 0, 4, 2, 3, 5)
    return x.reshape(B, rows * tile, K * (r // tile), H)[:, :T]


def _key_tiles(x_BSKH: Any, tile: int) -> Any:
    """[B, S, K, H] -> [columns of tiles, B, K, tile, H]."""
    B, S, K, H = x_BSKH.shape
    columns = -(-S // tile)
    return _pad(x_BSKH, 1, columns * tile).reshape(B, columns, tile, K, H).transpose(1, 0, 3, 2, 4)


def _from_key_tiles(x: Any, S: int) -> Any:
    """[columns of tiles, B, K, tile, H] -> [B, S, K, H]."""
    columns, B, K, tile, H = x.shape
    return x.transpose(1, 0, 3, 2, 4).reshape(B, columns * tile, K, H)[:, :S]


def forward(call: Call) -> tuple[Any, Any]:
    """(output [B, T, N, h], log-sum-exp [B, T, N])."""
    t = _tiled(call)

    def row(_: None, i: Any, visit: Any, q_tile: Any) -> Any:
        def body(part: Partial, j: Any, partial: bool) -> Partial:
            s = t.scores(i, j, q_tile, t.k[j], partial)[1]
            return merge(part, of_scores(s, lambda p: t.einsum("bkrs,bksh->bkrh", p, t.v[j])))

        out, lse = finish(visit(body, start(q_tile.shape[:-1], t.v.shape[-1], t.dtype)))
        return None, (out.astype(call.q.dtype), lse[..., None])

    _, (out, lse) = t.rows(row, None, (t.q,))
    tile = t.plan.tile_q
    return _from_query_tiles(out, t.plan.T, tile), _from_query_tiles(lse, t.plan.T, tile)[..., 0]


def backward(call: Call, o: Any, lse: Any, d_o: Any, d_lse: Any) -> tuple[Any, ...]:
    """Cotangents of (q, k, v, bias), recomputing each tile's weights from the log-sum-exp."""
    t = _tiled(call)
    tile, K = t.plan.tile_q, call.dims.K
    delta = jnp.sum(o.astype(t.dtype) * d_o.astype(t.dtype), axis=-1) - d_lse
    per_row = (t.q, *(_query_tiles(x, K, tile) for x in (finite_max(lse)[..., None], d_o, delta[..., None])))

    def row(sums: Any, i: Any, visit: Any, q_tile: Any, lse_tile: Any, do_tile: Any, delta_tile: Any) -> Any:
        def body(state: Any, j: Any, partial: bool) -> Any:
            dq, dk, dv, db = state
            dots, s = t.scores(i, j, q_tile, t.k[j], partial)
            p = jnp.exp(s - lse_tile)
            ds = p * (t.einsum("bkrh,bksh->bkrs", do_tile, t.v[j]) - delta_tile)
            if db is not None:
                db = _add_scores(t, db, i, j, ds)
            dx = ds * t.cap_slope(dots)
            dq = dq + t.einsum("bkrs,bksh->bkrh", dx, t.k[j])
            dk = dk.at[j].add(t.einsum("bkrs,bkrh->bksh", dx, q_tile))
            dv = dv.at[j].add(t.einsum("bkrs,bkrh->bksh", p, do_tile))
            return dq, dk, dv, db

        dq, *sums = visit(body, (jnp.zeros(q_tile.shape, t.dtype), *sums))
        return tuple(sums), dq.astype(call.q.dtype)

    zeros = tuple(None if x is None else jnp.zeros(x.shape, t.dtype) for x in (t.k, t.v, t.bias))
    (dk, dv, db), dq = t.rows(row, zeros, per_row)
    dk, dv = (_from_key_tiles(x, t.plan.S).astype(y.dtype) for x, y in ((dk, call.k), (dv, call.v)))
    dq = _from_query_tiles(dq, t.plan.T, tile)
    if db is None:
        return dq, dk, dv
    return dq, dk, dv, db[:, :, : call.bias.shape[2], : call.bias.shape[3]].astype(call.bias.dtype)


def _add_scores(t: _Tiled, total: Any, i: Any, j: Any, ds: Any) -> Any:
    """Adds tile (i, j) of the scores' cotangent to a bias cotangent, summed over the axes it broadcasts."""
    B, K, G, tile_q, tile_k = t.split(ds).shape
    ds = ds.reshape(B, K * G, tile_q, tile_k)
    axes = tuple(a for a in range(4) if total.shape[a] == 1)
    ds = jnp.sum(ds, axis=axes, keepdims=True)
    corner = t.corner(total, i, j)
    return lax.dynamic_update_slice(total, lax.dynamic_slice(total, corner, ds.shape) + ds, corner)


def tangent(call: Call, o: Any, lse: Any, d_q: Any, d_k: Any, d_v: Any, d_bias: Any) -> tuple[Any, Any]:
    """Tangents of (output, log-sum-exp) along tangents of (q, k, v, bias)."""
    t = _tiled(call)
    tile, K = t.plan.tile_q, call.dims.K
    dk, dv = (_key_tiles(x, t.plan.tile_k) for x in (d_k, d_v))
    lengths = (t.plan.rows * tile, t.k.shape[0] * t.plan.tile_k)
    db = None if d_bias is None else _pad_scores(d_bias, lengths)
    per_row = (t.q, *(_query_tiles(x, K, tile) for x in (d_q, finite_max(lse)[..., None], o)))

    def row(_: None, i: Any, visit: Any, q_tile: Any, dq_tile: Any, lse_tile: Any, o_tile: Any) -> Any:
        def body(state: Any, j: Any, partial: bool) -> Any:
            out, total = state
            dots, s = t.scores(i, j, q_tile, t.k[j], partial)
            p = jnp.exp(s - lse_tile)
            dx = t.einsum("bkrh,bksh->bkrs", dq_tile, t.k[j]) + t.einsum("bkrh,bksh->bkrs", q_tile, dk[j])
            ds = t.split(dx * t.cap_slope(dots))
            ds = ds if db is None else ds + t.cut(db, i, j).astype(ds.dtype)
            pds = p * ds.reshape(p.shape)
            out = out + t.einsum("bkrs,bksh->bkrh", pds, t.v[j]) + t.einsum("bkrs,bksh->bkrh", p, dv[j])
            return out, total + jnp.sum(pds, axis=-1, keepdims=True)

        zeros = (jnp.zeros(o_tile.shape, t.dtype), jnp.zeros(lse_tile.shape, t.dtype))
        out, total = visit(body, zeros)
        return None, ((out - total * o_tile.astype(t.dtype)).astype(o.dtype), total)

    _, (d_o, d_lse) = t.rows(row, None, per_row)
    return _from_query_tiles(d_o, t.plan.T, tile), _from_query_tiles(d_lse, t.plan.T, tile)[..., 0]


