import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax import models
from train import windows


def config(layers, legend):
    return models.Config(vocab_size=8, d_model=8, num_layers=len(layers), num_heads=1, layout=layers, legend=legend)


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


def test_draw_covers_the_text_to_its_last_byte():
    text = jnp.arange(6, dtype=jnp.uint8)
    batch = windows.draw(text, jax.random.key(0), 200, jnp.ones(3))
    assert set(np.asarray(batch.tokens)[:, 0].tolist()) == {0, 1, 2}
    assert (batch.targets == batch.tokens + 1).all() and int(batch.targets.max()) == 5
