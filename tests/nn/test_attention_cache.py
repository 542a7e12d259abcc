"""A layer with a cache gives what one full pass gives, token by token and in chunks."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import attnjax as aj
from attnjax import nn

T = 18


def layer(pattern, **options):
    return nn.Attention(12, 4, 2, 4, pattern=pattern, rngs=nnx.Rngs(0), **dict(rope=100.0) | options)


def text(B=2):
    return np.random.default_rng(0).standard_normal((B, T, 12)).astype(np.float32)


def feed(made, cache, x, chunks=(7, 1, 1, 7, 1, 1)):
    outs, first = [], 0
    for n in chunks:
        y, cache = made(x[:, first : first + n], cache=cache)
        outs.append(y)
        first += n
    return jnp.concatenate(outs, axis=1), cache


@pytest.mark.cross
@pytest.mark.parametrize(
    ("pattern", "options"),
    [
        (aj.Window(4) | aj.Sink(1), {}),
        (aj.Causal(), dict(qk_norm=True, learned_sinks=True, soft_cap=2.0, use_bias=True, scale=0.3)),
        (aj.Strided(4), dict(rope=None)),
        (aj.Chunked(5), dict(rope=nn.Rope(rotary_dim=2, layout="interleaved"))),
    ],
    ids=str,
)
def test_decode_equals_the_full_pass(pattern, options):
    made, x = layer(pattern, **options), text()
    if made.sinks is not None:
        made.sinks[...] = jnp.array([0.5, -1, 2, 0])
    want = made(x)
    y, cache = feed(made, made.init_cache(batch=2, max_length=T), x)
    np.testing.assert_allclose(y, want, atol=5e-6)
    assert cache.length.tolist() == [T, T] and cache.rope == made.rope


@pytest.mark.slow
def test_a_cache_without_rope_is_filled_with_turned_keys():
    made, x = layer(aj.Window(4)), text()
    cache = aj.Cache.create(aj.Window(4), batch=2, num_kv_heads=2, head_dim=4, max_length=T)
    np.testing.assert_allclose(feed(made, cache, x)[0], made(x), atol=5e-6)


def test_the_results_are_named_and_weights_are_of_slots_and_new_tokens():
    made, x = layer(aj.Window(4), rope=None), text()
    first = made(x[:, :7], cache=made.init_cache(batch=2, max_length=T))
    both = made(x[:, 7:9], cache=first.cache, return_weights=True)
    plain = made(x[:, 7:9], cache=first.cache)
    np.testing.assert_allclose(both.y, plain.y, atol=1e-6)
    assert both.weights.shape == (2, 4, 2, 4 + 2) and both.cache.length.tolist() == [9, 9]
    np.testing.assert_allclose(np.asarray(both.weights).sum(-1), 1, atol=1e-5)


@pytest.mark.slow
def test_rows_have_lengths_of_their_own():
    made, x = layer(aj.Causal()), text()
    cache = made.init_cache(batch=2, max_length=T, dtype=jnp.bfloat16)
    y, cache = made(x[:, :7], cache=cache, segments=aj.Segments.from_lengths(q=jnp.array([7, 3])))
    assert cache.length.tolist() == [7, 3] and cache.dtype == jnp.bfloat16
    other = made(x[1:, :3], cache=made.init_cache(batch=1, max_length=T, dtype=jnp.bfloat16))
    np.testing.assert_allclose(y[1, :3], other.y[0], atol=1e-6)
    one = made(x[:, 7:8], cache=cache).y
    np.testing.assert_allclose(one[1], made(x[1:, 7:8], cache=other.cache).y[0], atol=1e-6)


@pytest.mark.parametrize(
    ("error", "message", "options"),
    [
        (TypeError, "cache is a tuple; take the one that init_cache made", dict(cache=())),
        (ValueError, "kv= and cache= exclude each other", dict(kv=np.ones((2, 3, 12), np.float32))),
        (ValueError, "mask= and cache= exclude each other", dict(mask=np.ones((3, 3), bool))),
        (ValueError, "positions= and cache= exclude each other", dict(positions=np.arange(3))),
        (ValueError, r"segments= beside cache=.*from_lengths\(q=lengths\)", dict(segments=aj.Segments(np.zeros(3, int)))),
        (ValueError, "segments= beside cache=", dict(segments=aj.Segments.from_lengths(q=np.array([3, 3]), k=np.array([3, 3])))),
        (ValueError, "deterministic=False: decoding drops nothing", dict(deterministic=False, dropout_key=np.zeros(2, np.uint32))),
        (ValueError, r"made for causal\(\), but this layer has window\(4\)", dict(cache=layer(aj.Causal()).init_cache(batch=2, max_length=9))),
        (ValueError, "the cache turns keys by .* but this layer by", dict(cache=layer(aj.Window(4), rope=5.0).init_cache(batch=2, max_length=9))),
        (ValueError, "batch 3", dict(cache=layer(aj.Window(4)).init_cache(batch=3, max_length=9))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_has_no_place_beside_a_cache_is_named(error, message, options):
    made = layer(aj.Window(4), dropout_rate=0.1)
    with pytest.raises(error, match=message):
        made(text()[:, :3], **{"cache": made.init_cache(batch=2, max_length=9)} | options)


def test_keys_that_must_be_turned_anew_need_a_cache_that_does_it():
    sizes = dict(batch=2, num_kv_heads=2, head_dim=4, max_length=T)
    stretched = layer(aj.Causal(), rope=nn.Rope(scaling=nn.DynamicScaling(2.0, original_max_position_embeddings=4)))
    for made, mode in ((stretched, "text"), (layer(aj.Causal()), "cache")):
        cache = aj.Cache.create(aj.Causal(), **sizes, positions=mode)
        with pytest.raises(ValueError, match="make it with rope=, or by init_cache"):
            made(text(), cache=cache)
    with pytest.raises(ValueError, match=r"must be \[B, T, D\] with cache="):
        made(text()[0], cache=made.init_cache(batch=1, max_length=9))
