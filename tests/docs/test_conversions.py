"""The table in the README of what is written elsewhere: each row against the other library's own rule."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attnjax as aj

W, LEFT, RIGHT = 3, 2, 1


def positions(T, S):
    """Row and column numbers, as a rule of another library gets them."""
    return np.arange(T)[:, None], np.arange(S)[None, :]


def from_jax_nn(T, S, **options):
    """The visible pairs of `jax.nn`: with zero keys and unit vectors as values, weights show what is seen."""
    q, k, v = jnp.zeros((T, 1, S)), jnp.zeros((S, 1, S)), jnp.eye(S)[:, None, :]
    return np.asarray(jax.nn.dot_product_attention(q, k, v, **options)[:, 0] > 0)


def flash_attn(T, S, left, right):
    """window_size=(left, right) of flash-attn: ends aligned, -1 is no limit."""
    i, j = positions(T, S)
    i = i + S - T
    return ((left < 0) | (j >= i - left)) & ((right < 0) | (j <= i + right))


def hugging_face(T, w):
    """sliding_window=w of Hugging Face's masks: k > q - w, under the causal rule."""
    i, j = positions(T, T)
    return (j > i - w) & (j <= i)


def flex_window(T, n):
    """attention-gym's generate_sliding_window(n): causal and q - k <= n."""
    i, j = positions(T, T)
    return (i >= j) & (i - j <= n)


@pytest.mark.cross
@pytest.mark.parametrize("T", [1, 2, 7])
def test_jax_nn(T, standard_promotion):
    assert (aj.Causal().mask(T) == from_jax_nn(T, T, is_causal=True)).all()
    windowed = from_jax_nn(T, T, is_causal=True, local_window_size=(W - 1, 0))
    assert (aj.Window(W).mask(T) == windowed).all()
    assert (aj.Band(LEFT, RIGHT).mask(T) == from_jax_nn(T, T, local_window_size=(LEFT, RIGHT))).all()
    assert (aj.Band(LEFT, LEFT).mask(T) == from_jax_nn(T, T, local_window_size=LEFT)).all()
    assert (aj.Causal().mask(T, 7, q_offset=0) == from_jax_nn(T, 7, is_causal=True)).all()


@pytest.mark.parametrize(("T", "S"), [(7, 7), (3, 7), (1, 5)])
def test_flash_attn(T, S):
    assert (aj.Window(W).mask(T, S, q_offset=S - T) == flash_attn(T, S, W - 1, 0)).all()
    assert (aj.Band(LEFT, RIGHT).mask(T, S, q_offset=S - T) == flash_attn(T, S, LEFT, RIGHT)).all()
    assert (aj.Band(LEFT, None).mask(T, S, q_offset=S - T) == flash_attn(T, S, LEFT, -1)).all()
    assert (aj.Band(None, RIGHT).mask(T, S, q_offset=S - T) == flash_attn(T, S, -1, RIGHT)).all()


def test_hugging_face_and_flex_attention():
    assert (aj.Window(W).mask(9) == hugging_face(9, W)).all()
    assert (aj.Window(W + 1).mask(9) == flex_window(9, W)).all()
    assert not (aj.Window(W).mask(9) == flex_window(9, W)).all()


@pytest.mark.parametrize(("T", "S", "offset"), [(8, 8, 0), (4, 8, 4), (4, 8, 0)])
def test_splash(T, S, offset):
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask

    local = splash_attention_mask.LocalMask((T, S), (W - 1, 0), offset)
    assert (aj.Window(W).mask(T, S, q_offset=offset) == local[:, :]).all()


def test_a_streaming_cache_keeps_what_the_pattern_shows():
    start, recent = 2, 3
    mask = (aj.Sink(start) | aj.Window(recent)).mask(12)
    for p in range(12):
        kept = list(range(p + 1))
        while len(kept) > start + recent:
            del kept[start]  # the oldest token behind the sinks is evicted
        assert mask[p].nonzero()[0].tolist() == kept


def test_where_true_hides_elsewhere():
    hides = ~np.tri(5, dtype=bool)  # attn_mask of PyTorch's nn.MultiheadAttention for a causal model
    q, k, v = jax.random.normal(jax.random.key(0), (3, 5, 1, 4))
    assert (aj.attend(q, k, v, aj.Full(), mask=~hides) == aj.attend(q, k, v, aj.Full() & aj.Causal())).all()
