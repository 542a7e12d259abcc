import jax.numpy as jnp
import numpy as np
import pytest

from attnjax import models
from train import windows


def config(layers, legend, heads=1):
    return models.Config(vocab_size=8, d_model=8, num_layers=len(layers), num_heads=heads, layout=layers, legend=legend)


@pytest.mark.parametrize(("layers", "legend", "hidden"), [
    ("L", {"L": "causal()"}, 0),
    ("LG", {"L": "window(2)", "G": "causal()"}, 0),
    ("P", {"P": "prefix(4)"}, 3),
    ("PP", {"P": "prefix(4)"}, 3),
    ("PC", {"P": "prefix(4)", "C": "causal()"}, 3),
])
def test_positions_that_see_their_target_do_not_count(layers, legend, hidden):
    weights = windows.honest(config(layers, legend), 8)
    assert weights.tolist() == [0.0] * hidden + [1.0] * (8 - hidden)


def test_j05_every_byte_is_judged_once_in_one_shape():
    text = np.arange(10 * 4 + 3, dtype=np.uint8)  # 42 targets: 10 windows of 4 and one of 2, in blocks of 4
    blocks = windows.every(text, 4, np.ones(4, np.float32))
    assert blocks.tokens.shape == (3, 4, 4)
    counted = np.asarray(blocks.weights) == 1
    assert np.asarray(blocks.targets)[counted].tolist() == list(range(1, 43))
    assert np.asarray(blocks.tokens)[counted].tolist() == list(range(42))


def test_j05_no_block_of_padding_alone():
    assert windows.every(np.arange(9, dtype=np.uint8), 2, np.ones(4, np.float32)).tokens.shape == (1, 2, 4)


def test_every_place_is_drawn_once_before_any_comes_again():
    text = np.arange(9, dtype=np.uint8)  # six places for three bytes and their last target
    rows = windows.drawn(text, 3, 3, seed=0)
    rounds = [np.concatenate([next(rows), next(rows)]) for _ in range(3)]
    for places in rounds:
        assert sorted(places[:, 0].tolist()) == [0, 1, 2, 3, 4, 5]
        assert (places == places[:, :1] + np.arange(4)).all() and places.dtype == np.uint8
    assert rounds[0].tolist() != rounds[1].tolist() != rounds[2].tolist()


def test_t02_batches_go_on_from_their_state_and_differ_between_seeds():
    text = np.random.default_rng(0).integers(0, 256, 300).astype(np.uint8)
    rows = windows.drawn(text, 8, 4, seed=0)
    first = [next(rows).tobytes() for _ in range(5)]
    state = rows.get_state()
    then = [next(rows).tobytes() for _ in range(3)]
    again = windows.drawn(text, 8, 4, seed=0)
    again.set_state(state)
    assert [next(again).tobytes() for _ in range(3)] == then and not set(first) & set(then)
    assert next(windows.drawn(text, 8, 4, seed=0)).tobytes() == first[0]
    assert next(windows.drawn(text, 8, 4, seed=-1)).tobytes() not in (*first, *then)


def test_one_row_at_a_time():
    text = np.arange(9, dtype=np.uint8)
    rows = windows.drawn(text, 3, 1, seed=0)
    together = windows.drawn(text, 3, 6, seed=0)
    for _ in range(3):
        assert np.concatenate([next(rows) for _ in range(6)]).tolist() == next(together).tolist()


def test_heads_of_their_own_count_as_one_layer():
    assert windows.honest(config("P", {"P": "perhead(causal(), prefix(4))"}, heads=2), 8).tolist() == [0.0] * 3 + [1.0] * 5


def test_rows_become_tokens_and_targets():
    batch = windows.batch_of(jnp.arange(8, dtype=jnp.uint8).reshape(2, 4), jnp.array([0.0, 1.0, 1.0]))
    assert batch.tokens.tolist() == [[0, 1, 2], [4, 5, 6]] and batch.targets.tolist() == [[1, 2, 3], [5, 6, 7]]
    assert batch.tokens.dtype == jnp.int32 and batch.weights.tolist() == [[0.0, 1.0, 1.0]] * 2
