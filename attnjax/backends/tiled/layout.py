"""One job cut into tiles, and the questions that every pass asks of a tile."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from attnjax.backends.tiled.jobs import Job
from attnjax.backends.tiled.stored import Stored, stored
from attnjax.call import Call
from attnjax.patterns.parts import Part
from attnjax.score_rule import ScoreArrays
from attnjax.shapes import compute_dtype
from attnjax.visible import positions
from attnjax.walks import Walk


class Visit(NamedTuple):
    """A row of tiles meets `size` keys from key row `start` on."""

    row: Any  # of tiles
    start: Any
    size: int
    masked: bool
    parts: tuple[Part, ...] | None
    stretch: bool = False  # whether these keys are a stretch of the walk, and no tile


class Tiled(NamedTuple):
    """A job laid out for its walk: the letters are those of the package, r = G * tile_q rows of one key head."""

    call: Call  # in the job's rows
    walk: Walk
    platform: str
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

    def from_keys(self, x: Any) -> Any:
        """[B, K, size, H] -> [B, size, K, H]."""
        return x.transpose(0, 2, 1, 3)

    def stored(self, x: Any) -> Stored:
        """The array as loops should read and write it."""
        return stored(x, self.platform)

    def whole_rows(self, x_BTNH: Any, fill: float = 0.0) -> Stored:
        """An array of queries padded to whole rows of tiles."""
        return self.stored(pad(x_BTNH, 1, self.walk.rows * self.walk.tile_q, fill))

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
            x = pad(x, axis, size) if x.shape[axis] > 1 else x
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

    def weights(self, at: Visit, q_tile: Any, k_tile: Any, lse_tile: Any) -> tuple[Any, Callable[[Any], Any]]:
        """(weights [B, K, r, size], what takes cotangents of the scores to those of products and score arrays)."""
        dots, arrays = self.products(q_tile, k_tile), self.arrays(at)
        s, pull = jax.vjp(lambda dots, arrays: self.scores(at, dots, arrays), dots, arrays)
        return jnp.exp(self.visible(at, s) - lse_tile), pull

    def keep(self, at: Visit, p: Any) -> Any:
        """Weights [B, K, r, size] after dropout."""
        factor = self.call.dropout(*self.place(at), self.dtype)
        return p if factor is None else p * self.grouped(factor).reshape(p.shape)


def cut(call: Call, job: Job) -> Tiled:
    """A job laid out for its walk."""
    walk, platform = job.walk, job.target.platform
    length = walk.S if walk.tiles is None else -(-walk.S // walk.tiles.size) * walk.tiles.size
    k, v = (stored(pad(x, 1, length), platform) for x in (call.k, call.v))
    dtype = compute_dtype(call.q, call.k, call.v)
    tiled = Tiled(call, walk, platform, dtype, k, v, ScoreArrays(), None)
    score = call.diff.score.cut(tiled.padded, lambda x: x)
    return tiled._replace(score=score, mask=None if call.mask is None else tiled.padded(call.mask))


def pad(x: Any, axis: int, size: int, fill: float = 0.0) -> Any:
    """The array made longer along an axis."""
    pads = [(0, size - n if a == axis else 0) for a, n in enumerate(x.shape)]
    return x if size == x.shape[axis] else jnp.pad(x, pads, constant_values=fill)
