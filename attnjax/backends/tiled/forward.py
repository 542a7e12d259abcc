"""The forward pass: online softmax over the tiles of each row."""

from typing import Any

from attnjax.backends.tiled.layout import cut, from_query_tiles
from attnjax.blend import Partial, finish, merge, of_scores, start
from attnjax.call import Call


def forward(call: Call) -> tuple[Any, Any]:
    """(output [B, T, N, h], log-sum-exp [B, T, N])."""
    t = cut(call)
    sinks = t.sinks(call.diff.get("sink_logits"))

    def row(_: None, i: Any, visit: Any, q_tile: Any) -> Any:
        def body(part: Partial, j: Any, partial: bool) -> Partial:
            s = t.scores(i, j, q_tile, t.k[j], partial)[1]
            return merge(part, of_scores(s, lambda p: t.einsum("bkrs,bksh->bkrh", t.keep(i, j, p), t.v[j])))

        out, lse = finish(visit(body, start(q_tile.shape[:-1], t.v.shape[-1], t.dtype)), sinks)
        return None, (out.astype(call.q.dtype), lse[..., None])

    _, (out, lse) = t.rows(row, None, (t.q,))
    tile = t.plan.tile_q
    return from_query_tiles(out, t.plan.T, tile), from_query_tiles(lse, t.plan.T, tile)[..., 0]
