"""Pictures of what is computed: cells are those that the plan's walks visit, in every layout."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attnjax as aj
from attnjax import show
from attnjax.patterns import Tile
from attnjax.plan import plan
from attnjax.show.of_plan import LIMIT, computed, walk_grid
from attnjax.show.sheet import Box, Words


def explained(pattern, T, S=None, heads=1, **options):
    q = jax.ShapeDtypeStruct((1, T, heads, 16), jnp.float32)
    k = jax.ShapeDtypeStruct((1, T if S is None else S, heads, 16), jnp.float32)
    return aj.explain(q, k, k, pattern, backend="tiled", **options)


PATTERNS = (
    aj.Full(), aj.Causal(), aj.Window(5), aj.Window(5) | aj.Sink(2), aj.Strided(4), aj.Window(3) | aj.Strided(4),
    aj.Chunked(8), aj.Prefix(9), ~aj.Window(6),
)  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize(("T", "S", "q_offset"), [(60, 60, 0), (24, 61, 37), (50, 20, 0), (7, 33, 3)])
def test_every_visible_pair_is_visited_and_full_cells_hide_none(pattern, T, S, q_offset):
    mask, found = pattern.mask(T, S, q_offset=q_offset), plan(pattern, T, S, q_offset)
    visited = np.zeros((T, S), bool)
    for walk in found.walks:
        grid = walk_grid(walk, "")
        assert (grid.q_size, grid.k_size) == (1, 1)
        for i in range(T):
            for j in range(S):
                if (j + walk.shift) % walk.step == i % walk.step:
                    state = grid.states[i // walk.step, (j + walk.shift) // walk.step]
                    visited[i, j] |= state != Tile.EMPTY
                    assert mask[i, j] or state != Tile.FULL, (i, j)
    assert (visited | ~mask).all()


def test_cells_of_a_long_plan_are_those_of_its_tiles():
    """Causal, 4096 tokens, tiles of 512 x 256, cells of 64 x 64: by hand from where tiles begin and end."""
    (walk,) = plan(aj.Causal(), 4096, 4096, 0).walks
    assert (walk.tile_q, walk.tiles.size) == (512, 256)
    grid = walk_grid(walk, "")
    rows, columns = np.arange(64)[:, None] * 64 // 512 * 512, np.arange(64)[None, :] * 64 // 256 * 256
    expected = np.where(columns + 255 <= rows, Tile.FULL, np.where(columns <= rows + 511, Tile.PARTIAL, Tile.EMPTY))
    assert (grid.states == expected).all()
    assert (grid.tile_q, grid.tile_k, grid.q_size) == (512, 256, 64)


def test_a_cell_is_full_only_if_all_of_it_is():
    (walk,) = plan(aj.Causal(), 4100, 4100, 0).walks
    grid = walk_grid(walk, "")
    assert max(grid.states.shape) <= LIMIT and grid.q_size == 65
    mask_full = np.array([[(j + 1) * 65 <= i * 65 + 1 for j in range(grid.states.shape[1])] for i in range(grid.states.shape[0])])
    assert ((grid.states != Tile.FULL) | mask_full).all()


def test_needed_and_computed_stand_side_by_side():
    why = explained(aj.Window(256), 4096)
    said = show.picture(why).description
    assert f"{why.scores_needed:,} needed, {why.scores_computed:,} computed ({why.waste:.2f}x)" in said
    assert f"visits: {why.tiles['full']:,} FULL, {why.tiles['partial']:,} PARTIAL (one head)" in said
    assert "EMPTY (never visited)" in said
    drawn = show.text(why)
    assert f"{why.scores_needed:,} needed" in drawn and "█ FULL" in drawn


def test_text_and_picture_draw_the_same_cells():
    why = explained(aj.Window(20) | aj.Sink(1), 300)
    states = computed(why).grids[0].states
    lines = [line.split()[1] for line in show.text(why).splitlines()[8 - 1 :] if line.split()[0].isdigit()]
    marks = {"·": Tile.EMPTY, "▒": Tile.PARTIAL, "█": Tile.FULL}
    assert [[marks[c] for c in line] for line in lines] == states.tolist()
    boxes = [item for item in show.picture(why).items if isinstance(item, Box) and item.ink in ("seen", "mixed")]
    assert len(boxes) == (states != Tile.EMPTY).sum()
    assert sum(box.ink == "seen" for box in boxes) == (states == Tile.FULL).sum()


def test_a_plan_draws_itself():
    drawn = show.picture(plan(aj.Window(4), 64, 64, 0))
    assert drawn.title == "plan of window(4)" and f"{aj.Window(4).count(64):,} needed" in drawn.description


def test_classes_of_a_comb_have_a_panel_of_their_own_that_says_so():
    said = show.picture(explained(aj.Window(64) | aj.Strided(64), 4096)).description
    assert "in place" in said and "row m of a class is query 64 m + class" in said


def test_heads_with_patterns_of_their_own_are_told_apart():
    heads = aj.PerHead((aj.Window(64), aj.Causal(), aj.Window(64), aj.Causal()))
    drawn = show.picture(explained(heads, 1024, heads=4))
    words = " ".join(item.text for item in drawn.items if isinstance(item, Words))
    assert "heads 0, 2:" in words and "heads 1, 3:" in words


def test_a_backend_without_tiles_computes_everything():
    x = jax.ShapeDtypeStruct((1, 16, 1, 8), jnp.float32)
    why = aj.explain(x, x, x, aj.Window(4) | aj.Sink(1))
    assert why.backend == "dense"
    assert "70 needed, 256 computed (3.66x)" in show.text(why)
    assert (computed(why).grids[0].states == Tile.PARTIAL).all()
    assert (computed(aj.explain(x, x, x, aj.Full())).grids[0].states == Tile.FULL).all()


def test_where_positions_come_at_run_time_the_most_is_said():
    q = jax.ShapeDtypeStruct((1, 300, 1, 8), jnp.float32)
    why = aj.explain(q, q, q, aj.Window(20), q_offset=jnp.int32(5), backend="tiled")
    assert "as positions or heads say" in show.text(why) and "computed at most" in show.text(why)


def test_no_queries_is_a_picture_without_cells():
    x = jax.ShapeDtypeStruct((1, 0, 1, 8), jnp.float32)
    assert computed(aj.explain(x, x, x, aj.Causal())).grids == ()
    assert show.picture(aj.explain(x, x, x, aj.Causal())).svg()


def test_an_explanation_has_its_own_lengths():
    why = explained(aj.Causal(), 64)
    with pytest.raises(TypeError, match="T=16: what explain returned has its own lengths; leave them out"):
        show.picture(why, 16)
    with pytest.raises(TypeError, match="S=8: what explain returned"):
        show.text(why, S=8)


@pytest.mark.slow
def test_plans_are_written_as_svg_and_png(tmp_path):
    why = explained(aj.Causal(), 256)
    assert show.svg(why, path=tmp_path / "p.svg").read_text().startswith("<svg")
    assert show.png(why, path=tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"
