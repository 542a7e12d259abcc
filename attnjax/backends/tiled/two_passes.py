"""The backward pass where rows of tiles are taken together: what belongs to queries by rows, to keys by key tiles.

Rows that are taken together meet the same keys, and what they give to one key would have to be added row after row. A
second pass, over key tiles, visits the tiles again and adds it up where it belongs: two products more for each tile,
but no loop in a loop. The few keys that all rows see are no tile (the walk's only stretch): rows sum them at once.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from attnjax.backends.tiled.jobs import Job
from attnjax.backends.tiled.layout import Tiled, Visit, cut
from attnjax.backends.tiled.loops import Pass, by_keys, by_rows
from attnjax.backends.tiled.stored import Stored
from attnjax.call import Call, Diff
from attnjax.score_rule import ScoreArrays
from attnjax.tile_sizes import rows_at_once
from attnjax.varying import vary


def rows(call: Call, job: Job, outer: dict[str, Any]) -> Diff:
    """Cotangents of the arrays of some sequences."""
    t = cut(call, job)
    d_o = outer["d_o"]
    delta = jnp.sum(outer["o"].astype(t.dtype) * d_o.astype(t.dtype), axis=-1, keepdims=True) - outer["d_lse"]
    given = {"q": call.q, "d_o": d_o, "delta": delta}
    of_rows = {name: t.whole_rows(x) for name, x in given.items()} | {"lse": t.whole_rows(outer["lse"], jnp.inf)}
    dq, few, score = _by_rows(t, job, of_rows)
    dk, dv = vary(tuple(jnp.zeros(x.shape, t.dtype) for x in (call.k, call.v)), call.varies)
    if t.walk.tiles is not None:
        dk, dv, *bias = _by_keys(t, job, of_rows)
        if bias:
            score = score.cut(lambda x: x.at[:, :, :, : t.walk.S].add(bias[0].transpose(0, 2, 3, 1)), lambda x: x)
    if few is not None:
        (stretch,) = t.walk.stretches
        where = slice(int(stretch.starts[0]), int(stretch.starts[0]) + stretch.size)
        dk, dv = (x.at[:, where].add(t.from_keys(more)) for x, more in zip((dk, dv), few, strict=True))
    return Diff(dq, dk, dv, score.cut(lambda x: x[:, :, : call.bias.shape[2], : call.bias.shape[3]], lambda x: x))


def _tile(t: Tiled, of_rows: dict[str, Stored], row: Any) -> tuple[Any, Any, Any, Any]:
    """(queries with the scale, cotangents of the output, log-sum-exp, what all cotangents of weights lose) of a row."""
    q_tile, do_tile, delta_tile, lse_tile = (t.queries(of_rows[name], row) for name in ("q", "d_o", "delta", "lse"))
    return q_tile * t.call.options.rule.scale, do_tile, lse_tile, delta_tile


def _cotangents(t: Tiled, at: Visit, tile: Any, k_tile: Any, v_tile: Any) -> tuple[Any, Any, ScoreArrays]:
    """(weights after dropout, cotangents of products, those of the score arrays) of a visit."""
    q_tile, do_tile, lse_tile, delta_tile = tile
    p, pull = t.weights(at, q_tile, k_tile, lse_tile)
    ds, score = pull(p * (t.keep(at, t.einsum("bkrh,bksh->bkrs", do_tile, v_tile)) - delta_tile))
    return t.keep(at, p), ds, score


def _by_rows(t: Tiled, job: Job, of_rows: dict[str, Stored]) -> tuple[Any, Any, ScoreArrays]:
    """(cotangents of queries, those of the few keys and values, those of the score arrays)."""

    def begin(i: Any) -> Any:
        tile = _tile(t, of_rows, i)
        return tile, jnp.zeros_like(tile[0])

    def take(tile: Any, dq: Any, at: Visit) -> Any:
        k_tile = t.keys(t.k, at)
        p, ds, score = _cotangents(t, at, tile, k_tile, t.keys(t.v, at))
        keys = None
        if at.stretch:
            keys = t.einsum("bkrs,bkrh->bksh", ds, tile[0]), t.einsum("bkrs,bkrh->bksh", p, tile[1])
        return dq + t.einsum("bkrs,bksh->bkrh", ds, k_tile), (keys, score)

    def gather_rows(sums: Any, at: Visit, parcels: Any) -> Any:
        few, total = sums
        keys, score = parcels
        few = jax.tree.map(lambda a, x: a + x.sum(axis=0), few, keys) if at.stretch else few
        others = _with_bias(total, None), _with_bias(score, None)
        shared = jax.tree.map(lambda a, x: a + x.sum(axis=0).astype(a.dtype), *others)
        return few, _with_bias(shared, None if total.bias is None else _with_pieces(t, total.bias, at, score.bias))

    def end(_: Any, dq: Any) -> list[Any]:
        return [t.from_queries(dq * t.call.options.rule.scale)]

    few = None
    for stretch in t.walk.stretches:
        few = tuple(jnp.zeros((x.shape[0], x.shape[2], stretch.size, x.shape[3]), t.dtype) for x in (t.k, t.v))
    zero = few, jax.tree.map(lambda x: jnp.zeros(x.shape, t.dtype), t.score)
    (few, score), (dq,) = by_rows(t, Pass(begin, take, _never, end, gather_rows), zero, job.together)
    return dq, few, score


def _by_keys(t: Tiled, job: Job, of_rows: dict[str, Stored]) -> list[Any]:
    """Cotangents of keys and values, and those of a bias that only keys have [B|1, S, N|1, 1]."""
    assert t.walk.tiles is not None, "there are no tiles"
    size = t.walk.tiles.size

    def begin(j: Any) -> Any:
        at = Visit(0, j * size, size, False, None)
        k_tile, v_tile = t.keys(t.k, at), t.keys(t.v, at)
        bias = jnp.zeros((*t.score.bias.shape[:3], size), t.dtype) if _of_keys(t.score.bias) else None
        return (k_tile, v_tile), (jnp.zeros_like(k_tile), jnp.zeros_like(v_tile), bias)

    def take(keys: Any, state: Any, at: Visit) -> Any:
        tile, (dk, dv, bias) = _tile(t, of_rows, at.row), state
        p, ds, score = _cotangents(t, at, tile, *keys)
        dk, dv = dk + t.einsum("bkrs,bkrh->bksh", ds, tile[0]), dv + t.einsum("bkrs,bkrh->bksh", p, tile[1])
        return (dk, dv, None if bias is None else bias + score.bias.astype(t.dtype)), None

    def end(_: Any, state: Any) -> list[Any]:
        dk, dv, bias = state
        return [t.from_keys(dk), t.from_keys(dv), *([] if bias is None else [bias.transpose(0, 3, 1, 2)])]

    return by_keys(t, Pass(begin, take, _never, end), key_tiles_at_once(job))


def key_tiles_at_once(job: Job) -> int:
    """How many key tiles the second pass takes together: their visits are as large as those of rows."""
    tiles = job.walk.tiles
    return rows_at_once(job.sizes, -(-job.walk.S // tiles.size), job.visit) if tiles else 1


def _never(sums: Any, at: Visit, parcel: Any) -> Any:
    raise AssertionError("rows of these passes are taken together")


def _of_keys(bias: Any) -> bool:
    """Whether a bias differs from key to key and not from query to query: its cotangents are summed by key tiles."""
    return bias is not None and bias.shape[2] == 1 and bias.shape[3] > 1


def _with_pieces(t: Tiled, total: Any, at: Visit, pieces: Any) -> Any:
    """Cotangents of a bias [b, n, T'|1, S'|1] with those of visits [rows, b, n, tile_q|1, size|1] of different rows."""
    pieces, tile_q = pieces.astype(total.dtype), t.walk.tile_q
    b, n, T, S = total.shape
    if T == 1:  # one piece for all rows
        if S > 1 and not at.stretch:
            return total  # see _by_keys
        corner = (0, 0, 0, at.start[0] if S > 1 else 0)
        piece = pieces.sum(axis=0)
        return lax.dynamic_update_slice(total, lax.dynamic_slice(total, corner, piece.shape) + piece, corner)
    by_row = total.reshape(b, n, T // tile_q, tile_q, S)
    if S > 1 and not at.stretch:
        tiles = by_row.reshape(b, n, T // tile_q, tile_q, S // at.size, at.size)
        return tiles.at[:, :, at.row, :, at.start // at.size].add(pieces).reshape(total.shape)
    start = at.start[0] if S > 1 else 0
    some = lax.dynamic_slice_in_dim(by_row, start, pieces.shape[-1], 4)
    some = some.at[:, :, at.row].add(jnp.moveaxis(pieces, 0, 2))
    return lax.dynamic_update_slice_in_dim(by_row, some, start, 4).reshape(total.shape)


def _with_bias(score: ScoreArrays, bias: Any) -> ScoreArrays:
    return dataclasses.replace(score, bias=bias)
