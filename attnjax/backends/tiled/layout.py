"""One job cut into tiles, and the questions that every pass asks of a tile."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from attnjax.backends.tiled import tables
from attnjax.backends.tiled.jobs import at_run_time
from attnjax.backends.tiled.stored import Stored, stored
from attnjax.call import Call
from attnjax.patterns.parts import Part
from attnjax.score_rule import ScoreArrays
from attnjax.shapes import compute_dtype
from attnjax.varying import vary
from attnjax.visible import positions
from attnjax.walks import Walk


class Visit(NamedTuple):
    """A row of tiles meets `size` keys from key row `start` on."""

    row: Any  # of tiles
    start: Any
    size: int
    masked: bool
    parts: tuple[Part, ...] | None


class Pass(NamedTuple):
    """What a pass does with a row of tiles.

    begin(row) -> (what stays, state); take(what stays, state, visit) -> (state, parcel); gather(sums, visit,
    parcel) -> sums, which all rows share; end(what stays, state) -> outputs [B, tile_q, ...]. State None is told
    apart from the first visit on (only where a stretch comes first).
    """

    begin: Callable[..., Any]
    take: Callable[..., Any]
    gather: Callable[..., Any]
    end: Callable[..., Any]


class Tiled(NamedTuple):
    """A job laid out for its walk: the letters are those of the package, r = G * tile_q rows of one key head."""

    call: Call  # in the job's rows
    walk: Walk
    dtype: Any
    k: Stored  # [B, S', K, H], S' at least the walk's S
    v: Stored  # [B, S', K, h]
    score: ScoreArrays  # with the bias as [B|1, N|1, T'|1, S'|1]
    mask: Any

    def einsum(self, subscripts: str, a: Any, b: Any) -> Any:
        """In the dtype that everything is computed in."""
        return jnp.einsum(subscripts, a, b, precision=self.call.options.precision)

    # -- arrays of one visit ------------------------------------------------------------------------------------

    def keys(self, keys: Stored, at: Visit) -> Any:
        """[B, K, size, H]: the visit's rows of an array of keys, as wide as the computation."""
        x = keys.floats(lax.dynamic_slice_in_dim(keys.x, at.start, at.size, 1))
        return x.transpose(0, 2, 1, 3).astype(self.dtype)

    def queries(self, rows: Stored, row: Any) -> Any:
        """[B, K, r, H]: one row of tiles of an array of queries (from `whole_rows`), as wide as the computation."""
        x = rows.floats(lax.dynamic_slice_in_dim(rows.x, row * self.walk.tile_q, self.walk.tile_q, 1))
        B, tile, N, H = x.shape
        K = self.k.shape[2]
        x = x.reshape(B, tile, K, N // K, H).transpose(0, 2, 3, 1, 4).astype(self.dtype)
        return x.reshape(B, K, N // K * tile, H)

    def from_queries(self, x: Any) -> Any:
        """[B, K, r, H] -> [B, tile_q, N, H]."""
        B, K, r, H = x.shape
        x = x.reshape(B, K, -1, self.walk.tile_q, H).transpose(0, 3, 1, 2, 4)
        return x.reshape(B, self.walk.tile_q, -1, H)

    def whole_rows(self, x_BTNH: Any, fill: float = 0.0) -> Stored:
        """An array of queries padded to whole rows of tiles."""
        return stored(_pad(x_BTNH, 1, self.walk.rows * self.walk.tile_q, fill))

    def corner(self, x: Any, at: Visit) -> tuple[Any, ...]:
        """Where a visit begins in an array that broadcasts over queries or keys."""
        row = at.row * self.walk.tile_q if x.shape[2] > 1 else jnp.int32(0)
        return jnp.int32(0), jnp.int32(0), row, at.start if x.shape[3] > 1 else jnp.int32(0)

    def slice(self, x: Any, at: Visit) -> Any:
        """The visit's piece of bias or mask."""
        size = (*x.shape[:2], min(x.shape[2], self.walk.tile_q), min(x.shape[3], at.size))
        return lax.dynamic_slice(x, self.corner(x, at), size)

    def padded(self, x: Any) -> Any:
        """bias or mask padded as queries and keys are, along the axes that do not broadcast."""
        for axis, size in ((2, self.walk.rows * self.walk.tile_q), (3, self.k.shape[1])):
            x = _pad(x, axis, size) if x.shape[axis] > 1 else x
        return x

    # -- the heads' axes ----------------------------------------------------------------------------------------

    def grouped(self, x_BNts: Any) -> Any:
        """[b, n, t, s] -> [b, K|1, G|1, t, s], for arrays that broadcast over heads."""
        d = self.call.dims
        b, n, t, s = x_BNts.shape
        return x_BNts.reshape((b, d.K, d.N // d.K, t, s) if n == d.N else (b, 1, 1, t, s))

    def split(self, x: Any) -> Any:
        """[B, K, r, s] -> [B, K, G, tile_q, s]."""
        B, K, r, s = x.shape
        return x.reshape(B, K, r // self.walk.tile_q, self.walk.tile_q, s)

    # -- the score rule on one visit ----------------------------------------------------------------------------

    def place(self, at: Visit) -> tuple[Any, Any]:
        """Row and column indices of a visit."""
        return at.row * self.walk.tile_q + positions(self.walk.tile_q), at.start + positions(at.size)

    def seen(self, at: Visit) -> Any:
        """Which pairs of a visit are visible, [b, K|1, G|1, tile_q, size]: positions decide, then the mask."""
        row, col = self.place(at)
        shown = self.call.shown(row, col) if at.parts is None else self.call.shown_in(at.parts, row, col)
        seen = self.grouped(shown)
        real = self._real(col)
        if real is not None:
            seen = seen & real[:, None, None, None, :]
        return seen if self.mask is None else seen & self.grouped(self.slice(self.mask, at))

    def _real(self, col: Any) -> Any:
        """Which columns are keys and no padding, [b, columns]; None if all are."""
        real = col[None] < self.walk.S if self.k.shape[1] > self.walk.S else None
        if self.walk.step > 1:
            index = self.call.columns_of(col)
            inside = (index >= 0) & (index < self.call.facts.num_keys)
            real = inside if real is None else real & inside
        return real

    def products(self, q_tile: Any, k_tile: Any) -> Any:
        """q . k [B, K, r, size] of tiles of queries, scaled already, and keys."""
        return self.einsum("bkrh,bksh->bkrs", q_tile, k_tile)

    def arrays(self, at: Visit, score: ScoreArrays | None = None) -> ScoreArrays:
        """What the score rule reads on a visit (or tangents of it, `score`), a bias as wide as the computation."""
        score = self.score if score is None else score
        return score.cut(lambda bias: self.slice(bias, at).astype(self.dtype), lambda x: x)

    def scores(self, at: Visit, dots: Any, arrays: ScoreArrays) -> Any:
        """What the score rule makes of products [B, K, r, size]."""
        if self.call.options.rule.only_scales and arrays.bias is None:
            return dots
        flat = self.split(dots).reshape(dots.shape[0], -1, self.walk.tile_q, at.size)  # [B, N, tile_q, size]
        return self.call.scores(flat, *self.place(at), arrays).reshape(dots.shape)

    def visible(self, at: Visit, s: Any) -> Any:
        """Scores [B, K, r, size] of which those of hidden pairs are -inf."""
        return jnp.where(self.seen(at), self.split(s), -jnp.inf).reshape(s.shape) if at.masked else s

    def keep(self, at: Visit, p: Any) -> Any:
        """Weights [B, K, r, size] after dropout."""
        factor = self.call.dropout(*self.place(at), self.dtype)
        return p if factor is None else p * self.grouped(factor).reshape(p.shape)

    # -- the loops ----------------------------------------------------------------------------------------------

    def rows(self, steps: "Pass", sums: Any, together: int = 1) -> tuple[Any, list[Any]]:
        """A pass over all rows of tiles, `together` of them at once.

        Returns:
            (sums, outputs [B, T, ...]).
        """
        walk = self.walk
        starts = tuple(jnp.asarray(stretch.starts) for stretch in walk.stretches)
        table = None
        if walk.tiles is not None:
            known = not at_run_time(self.call)
            table = tables.planned(walk.tiles) if known else tables.found(self.call, walk, walk.tiles)
        per_row = positions(walk.rows), starts, () if table is None else table[1:]
        one = self._one_row if together == 1 else self._some_rows
        if together > 1:
            blocks = -(-walk.rows // together)
            # rows of padding add nothing, and what they give is cut off
            per_row = jax.tree.map(lambda x: _pad(x, 0, blocks * together).reshape(blocks, together), per_row)
        columns = None if table is None else table.columns
        sums, per_row = vary((sums, per_row), self.call.varies)  # a row's loop starts from both
        sums, out = lax.scan(lambda sums, xs: one(steps, sums, columns, *xs), sums, per_row)
        if together > 1:
            out = [x.reshape(-1, *x.shape[2:])[: walk.rows] for x in out]
        return sums, [self._joined(x) for x in out]

    def _one_row(self, steps: "Pass", sums: Any, columns: Any, i: Any, starts: Any, bounds: Any) -> Any:
        walk = self.walk
        fixed, state = vary(steps.begin(i), self.call.varies)

        def visit(at: Visit, carry: Any) -> Any:
            state, parcel = steps.take(fixed, carry[0], at)
            return state, steps.gather(carry[1], at, parcel)

        for stretch, start in zip(walk.stretches, starts, strict=True):
            state, sums = visit(Visit(i, start, stretch.size, True, stretch.parts), (state, sums))
        if walk.tiles is not None:
            size, parts, carry = walk.tiles.size, walk.tiles.parts, (state, sums)
            for masked, low, high in ((False, bounds[0], bounds[1]), (True, bounds[1], bounds[2])):

                def loop(n: Any, carry: Any, masked: bool = masked) -> Any:
                    return visit(Visit(i, columns[n] * size, size, masked, parts), carry)

                carry = lax.fori_loop(low, high, loop, carry)
            state, sums = carry
        return sums, steps.end(fixed, state)

    def _some_rows(self, steps: "Pass", sums: Any, columns: Any, i: Any, starts: Any, bounds: Any) -> Any:
        """As `_one_row` for several rows: the n-th visit of each of them is one batch of tiles."""
        walk = self.walk
        fixed, state = vary(jax.vmap(steps.begin)(i), self.call.varies)
        real = (i > 0) | (positions(i.shape[0]) == 0)  # padding repeats row 0

        def visit(size: int, masked: bool, parts: Any, start: Any, active: Any, state: Any, sums: Any) -> Any:
            def one(fixed: Any, state: Any, i: Any, start: Any) -> Any:
                return steps.take(fixed, state, Visit(i, start, size, masked, parts))

            new, parcels = jax.vmap(one, in_axes=(0, None if state is None else 0, 0, 0))(fixed, state, i, start)
            if state is not None:
                new = jax.tree.map(lambda a, b: jnp.where(_column(active, a), a, b), new, state)

            def add(n: Any, sums: Any) -> Any:
                parcel = jax.tree.map(lambda x: jnp.where(active[n], x[n], jnp.zeros_like(x[n])), parcels)
                return steps.gather(sums, Visit(i[n], start[n], size, masked, parts), parcel)

            return new, sums if sums is None else lax.fori_loop(0, i.shape[0], add, sums)

        for stretch, start in zip(walk.stretches, starts, strict=True):
            state, sums = visit(stretch.size, True, stretch.parts, start, real, state, sums)
        if walk.tiles is not None:
            size, parts, carry = walk.tiles.size, walk.tiles.parts, (state, sums)
            for masked, low, high in ((False, bounds[0], bounds[1]), (True, bounds[1], bounds[2])):

                def loop(n: Any, carry: Any, masked: bool = masked, low: Any = low, high: Any = high) -> Any:
                    active = low + n < high
                    tile = columns[jnp.where(active, low + n, jnp.zeros_like(low))]
                    return visit(size, masked, parts, tile * size, active, *carry)

                carry = lax.fori_loop(0, jnp.max(high - low), loop, carry)
            state, sums = carry
        return sums, jax.vmap(steps.end)(fixed, state)

    def _joined(self, x: Any) -> Any:
        """[rows of tiles, B, tile_q, ...] -> [B, T, ...]."""
        x = jnp.moveaxis(x, 0, 1)
        return x.reshape(x.shape[0], -1, *x.shape[3:])[:, : self.walk.T]


def cut(call: Call, walk: Walk) -> Tiled:
    """A job laid out for its walk."""
    length = walk.S if walk.tiles is None else -(-walk.S // walk.tiles.size) * walk.tiles.size
    k, v = (stored(_pad(x, 1, length)) for x in (call.k, call.v))
    dtype = compute_dtype(call.q, call.k, call.v)
    tiled = Tiled(call, walk, dtype, k, v, ScoreArrays(), None)
    score = call.diff.score.cut(tiled.padded, lambda x: x)
    return tiled._replace(score=score, mask=None if call.mask is None else tiled.padded(call.mask))


def _pad(x: Any, axis: int, size: int, fill: float = 0.0) -> Any:
    pads = [(0, size - n if a == axis else 0) for a, n in enumerate(x.shape)]
    return x if size == x.shape[axis] else jnp.pad(x, pads, constant_values=fill)


def _column(active: Any, like: Any) -> Any:
    """[rows] with axes of 1 behind, as many as `like` has."""
    return active.reshape(active.shape + (1,) * (like.ndim - 1))
