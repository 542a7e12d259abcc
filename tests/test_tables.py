"""Tables of tiles that are found at run time, for a batch of sequences, against the mask pair by pair."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attnjax as aj
from attnjax import tables
from attnjax.backends.base import Target
from attnjax.backends.tiled import jobs
from attnjax.door import bind

B, T, TILE = 3, 40, (8, 4)
IDS = jnp.asarray([np.repeat([0, 1, 2], (11, 20, 9)), np.repeat([0, 1, -1], (4, 30, 6)), np.zeros(T)], jnp.int32)
PLACES = {
    "offsets": {"q_offset": jnp.array([0, 24, -9])},
    "segments": {"segments": aj.Segments(IDS)},
    "lengths": {"segments": aj.Segments.from_lengths(q=jnp.array([40, 3, 0]))},
}


def states_of(pattern, place):
    """(states of a batch [B, rows, columns], walk, the mask [B, T, T])."""
    x = jnp.ones((B, T, 1, 4))
    call, _ = bind(x, x, x, pattern, **PLACES[place])
    call = dataclasses.replace(call, options=dataclasses.replace(call.options, tile=TILE))
    (group,) = jobs.groups(call, Target("cpu"))
    (walk,) = group.plan.walks
    return np.asarray(tables.states(call, walk, walk.tiles)), np.asarray(aj.visible(pattern, T, **PLACES[place]))[:, 0]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("pattern", [aj.Causal(), aj.Window(6) | aj.Sink(2)], ids=str)
def test_each_sequence_has_states_of_its_own(pattern, place):
    codes, seen = states_of(pattern, place)
    tiles = seen.reshape(B, T // TILE[0], TILE[0], T // TILE[1], TILE[1]).transpose(0, 1, 3, 2, 4)
    visited, needed = codes != aj.Tile.EMPTY, tiles.any(axis=(3, 4))
    assert visited[needed].all() and (visited == needed).all() | (place == "lengths"), "padding is asked tile by tile"
    assert not visited[1:, 1:].any() or place != "lengths", "3 tokens, and none"
    assert tiles.all(axis=(3, 4))[codes == aj.Tile.FULL].all(), "no mask, but a pair is hidden"
    assert place == "offsets" or pattern != aj.Causal() or (codes == aj.Tile.FULL).any()


def test_a_table_for_each_of_the_leading_axes():
    codes, _ = states_of(aj.Causal(), "segments")
    for whole in (codes, np.swapaxes(codes, -1, -2)):  # by rows, and by key tiles
        together = tables.found(jnp.asarray(whole))
        for b in range(B):
            one = tables.found(jnp.asarray(whole[b]))
            jax.tree.map(np.testing.assert_array_equal, jax.tree.map(lambda x, b=b: x[b], together), one)
            for i, row in enumerate(whole[b]):
                visited = np.asarray(one.columns)[one.first[i] : one.last[i]]
                assert sorted(visited) == np.flatnonzero(row != aj.Tile.EMPTY).tolist()
                masked = np.asarray(one.columns)[one.middle[i] : one.last[i]]
                assert sorted(masked) == np.flatnonzero(row == aj.Tile.PARTIAL).tolist()


def test_what_all_sequences_visit_together():
    codes, _ = states_of(aj.Causal(), "segments")
    found = np.asarray(tables.common(jnp.asarray(codes)))
    np.testing.assert_array_equal(found == aj.Tile.EMPTY, (codes == aj.Tile.EMPTY).all(axis=0))
    np.testing.assert_array_equal(found == aj.Tile.FULL, (codes == aj.Tile.FULL).all(axis=0))
