"""A decoder with caches gives what one full pass gives: hybrid layers, stacked ones, rows of their own length."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import attnjax as aj
from attnjax.models import Config, Decoder

V, T = 17, 20
HYBRID = Config(
    vocab_size=V, d_model=16, num_layers=5, num_heads=4, num_kv_heads=2, layout="LG", qk_norm=True,
    legend={"L": "window(4) | sink(1)", "G": "causal()"}, theta={"L": 100.0, "G": 1000.0},
)  # fmt: skip
TOKENS = np.random.default_rng(0).integers(0, V, (2, T))


@functools.cache
def parts(config):
    return nnx.split(Decoder(config, rngs=nnx.Rngs(0)))


@functools.partial(jax.jit, static_argnames="graph")
def stepped(graph, state, tokens, caches, lengths):
    segments = None if lengths is None else aj.Segments.from_lengths(q=lengths)
    return nnx.merge(graph, state)(tokens, cache=caches, segments=segments)


def step(config, tokens, caches, lengths=None):
    return stepped(*parts(config), tokens, caches, lengths)


def feed(config, tokens, chunks, **options):
    caches = nnx.merge(*parts(config)).init_cache(batch=len(tokens), max_length=tokens.shape[1], **options)
    outs, first = [], 0
    for n in chunks:
        logits, caches = step(config, tokens[:, first : first + n], caches)
        outs.append(np.asarray(logits))
        first += n
    return np.concatenate(outs, axis=1), caches


def full(config, tokens=TOKENS):
    made = parts(config)
    return np.asarray(jax.jit(lambda tokens: nnx.merge(*made)(tokens))(tokens))


@pytest.mark.cross
@pytest.mark.parametrize("config", [HYBRID, dataclasses.replace(HYBRID, scan=False, learned_sinks=True)], ids=["scan", "loop"])
def test_decode_equals_the_full_pass(config):
    logits, caches = feed(config, TOKENS, [7, *[1] * 6, 7])
    np.testing.assert_allclose(logits, full(config), atol=2e-5)
    assert [cache.slots.size for cache in caches] == [5, T, 5, T, 5] and len(caches) == 5
    assert caches.length.tolist() == [T, T] and caches.nbytes == sum(cache.nbytes for cache in caches)


@pytest.mark.slow
def test_rows_of_different_lengths():
    lengths = np.array([7, 3])
    caches = nnx.merge(*parts(HYBRID)).init_cache(batch=2, max_length=T)
    first, caches = step(HYBRID, TOKENS[:, :7], caches, lengths)
    then, caches = step(HYBRID, TOKENS[:, 7:8], caches)
    for row, n in enumerate(lengths):
        want = full(HYBRID, np.concatenate([TOKENS[row : row + 1, :n], TOKENS[row : row + 1, 7:8]], axis=1))[0]
        np.testing.assert_allclose(first[row, :n], want[:n], atol=2e-5)
        np.testing.assert_allclose(then[row, 0], want[n], atol=2e-5)


@pytest.mark.slow
def test_rows_are_forked_reset_and_trimmed_in_every_layer():
    _, caches = feed(HYBRID, TOKENS, [T - 1])
    forked = caches.fork([1, 0, 1]).reset([1]).trim([1, 0, 0])
    assert forked.length.tolist() == [T - 2, 0, T - 1]
    assert all(cache.length.tolist() == [T - 2, 0, T - 1] for cache in forked)
    logits, _ = step(HYBRID, np.array([[TOKENS[1, T - 2]], [3], [TOKENS[1, T - 1]]]), forked)
    want = full(HYBRID)[1]
    np.testing.assert_allclose(logits[0, 0], want[T - 2], atol=2e-5)
    np.testing.assert_allclose(logits[2, 0], want[T - 1], atol=2e-5)
    with pytest.raises(ValueError, match="cannot give back 2 of its"):
        caches.trim(2)
    with pytest.raises(IndexError, match="layer 5 of 5"):
        caches[5]


def assert_rows(caches, before, lengths, refused):
    """Every layer has these lengths and flags; rows that were refused are as they were."""
    for one, old in zip(caches, before, strict=True):
        assert one.length.tolist() == lengths and one.refused.tolist() == refused
        for x, y in zip(one.store, old.store, strict=True):
            np.testing.assert_array_equal(np.asarray(x)[refused], np.asarray(y)[refused])


# Rings of 8 and caches of all, stacked ones and one left over; after 19 tokens a ring cannot give 3 back.
TWO_KINDS = dataclasses.replace(HYBRID, legend={"L": "window(8)", "G": "causal()"})
BOTH_WAYS = pytest.mark.parametrize("config", [
    pytest.param(TWO_KINDS, id="scan", marks=pytest.mark.slow),
    pytest.param(dataclasses.replace(TWO_KINDS, layout="GL", num_layers=2), id="loop"),
])  # fmt: skip


@pytest.mark.cross
@BOTH_WAYS
def test_a_row_is_trimmed_in_all_layers_or_in_none(config):
    _, caches = feed(config, TOKENS, [T - 1])
    trim = jax.jit(lambda caches, tokens: caches.trim(tokens))
    assert_rows(trim(caches, jnp.array([3, 1])), caches, [T - 1, T - 2], [True, False])
    assert_rows(trim(caches, jnp.int32(3)), caches, [T - 1] * 2, [True] * 2)
    assert_rows(trim(caches, jnp.array([-1, T])), caches, [T - 1] * 2, [True] * 2)
    assert_rows(jax.jit(lambda caches: caches.trim([1, 0]))(caches), caches, [T - 2, T - 1], [False] * 2)
    for tokens in (3, [0, 3], T, -1, True):
        with pytest.raises((TypeError, ValueError), match="tokens"):
            caches.trim(tokens)
    assert_rows(caches, caches, [T - 1] * 2, [False] * 2)


@pytest.mark.cross
@BOTH_WAYS
def test_a_row_without_room_in_one_layer_is_refused_by_all(config):
    _, caches = feed(config, TOKENS, [T - 1])
    two = TOKENS[:, :2]
    for lengths, after, refused in (
        (None, [T - 1, T - 1], [True, True]),
        ([1, 2], [T, T - 1], [False, True]),
        ([3, 1], [T - 1, T], [True, False]),
        ([0, -1], [T - 1, T - 1], [False, True]),
    ):
        logits, found = step(config, two, caches, None if lengths is None else jnp.array(lengths))
        assert_rows(found, caches, after, refused)
        assert found.refused.tolist() == refused and found.length.tolist() == after
        np.testing.assert_array_equal(np.isnan(logits), np.broadcast_to(np.array(refused)[:, None, None], logits.shape))
    # A row that is refused changes nothing for the others.
    logits, found = step(config, two, caches, jnp.array([1, 2]))
    other, _ = step(config, two, caches, jnp.array([1, 1]))
    np.testing.assert_array_equal(logits[0], other[0])
    later, found = step(config, two, found, jnp.array([0, 1]))
    assert_rows(found, found, [T, T], [False, True])  # the flag stays, the row goes on
    np.testing.assert_array_equal(later[1], other[1])


def test_a_prefix_that_one_layer_needs_whole_is_taken_by_all_or_none():
    config = dataclasses.replace(HYBRID, num_layers=2, legend={"L": "window(8)", "G": "prefix(4)"})
    empty = nnx.merge(*parts(config)).init_cache(batch=2, max_length=T)
    logits, caches = step(config, TOKENS[:, :5], empty, jnp.array([3, 5]))
    assert_rows(caches, empty, [0, 5], [True, False])
    assert np.isnan(logits[0]).all() and np.isfinite(logits[1]).all()
    trimmed = jax.jit(lambda caches, tokens: caches.trim(tokens))(caches, jnp.array([0, 2]))
    assert_rows(trimmed, caches, [0, 5], [True, True])
    with pytest.raises(ValueError, match=r"row 1 .* give back 2 of its 5 tokens: prefix\(4\) shows its first 4"):
        caches.trim([0, 2])
    assert_rows(caches.trim([0, 1]), caches, [0, 4], [True, False])


def test_no_rows_and_no_tokens_go_through_every_layer():
    config = dataclasses.replace(TWO_KINDS, num_layers=2)
    model = nnx.merge(*parts(config))
    caches = model.init_cache(batch=2, max_length=T)
    logits, same = step(config, TOKENS[:, :0], caches)
    assert logits.shape == (2, 0, V) and same.length.tolist() == [0, 0] and not same.refused.any()
    none = caches.fork([])
    for lengths in (None, jnp.zeros((0,), jnp.int32)):
        logits, after = step(config, TOKENS[:0, :3], none, lengths)
        assert logits.shape == (0, 3, V) and after.length.shape == (0,)
    assert none.reset([]).trim([]).trim(1).length.shape == (0,)
    with pytest.raises(ValueError, match="max_length=2147483648 is too large"):
        model.init_cache(batch=1, max_length=2**31)


@pytest.mark.slow
def test_places_in_the_cache_differ_once_tokens_are_dropped():
    text, _ = feed(HYBRID, TOKENS, [T])
    cache, caches = feed(HYBRID, TOKENS, [T], positions="cache", dtype=jnp.float32)
    assert {one.mode for one in caches} == {"cache"}
    np.testing.assert_allclose(cache[:, :5], text[:, :5], atol=2e-5)
    assert np.abs(cache[:, 8:] - text[:, 8:]).max() > 1e-3
    one_by_one, _ = feed(HYBRID, TOKENS, [1] * T, positions="cache")
    np.testing.assert_allclose(one_by_one, cache, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("remat", [False, True])
def test_weights_come_with_the_caches(remat):
    model = nnx.merge(*parts(dataclasses.replace(HYBRID, remat=remat)))
    caches = model.init_cache(batch=2, max_length=T)
    logits, caches, weights = model(TOKENS[:, :3], cache=caches, return_weights=True)
    assert [w.shape for w in weights] == [(2, 4, 3, size + 3) for size in (5, T, 5, T, 5)] and caches.length.tolist() == [3, 3]


@pytest.mark.parametrize(("dtype", "limit"), [("float32", 1e-5), ("bfloat16", 2e-2)])
@pytest.mark.slow
def test_C17_the_difference_from_the_full_pass_does_not_grow(dtype, limit):
    config = Config(
        vocab_size=V, d_model=64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16, dtype=dtype, param_dtype=dtype
    )
    tokens = np.random.default_rng(0).integers(0, V, (1, 300))
    want = full(config, tokens)
    logits, _ = feed(config, tokens, [1] * 300, dtype=dtype)
    for n in (40, 300):
        assert np.abs(logits[:, :n] - want[:, :n]).max() / np.abs(want[:, :n]).max() < limit


@pytest.mark.parametrize(
    ("error", "message", "options"),
    [
        (TypeError, "cache is a list; take the one that init_cache made", dict(cache=[])),
        (ValueError, "positions= and cache= exclude each other", dict(positions=np.arange(3))),
        (ValueError, "segments= beside cache=", dict(segments=aj.Segments(np.zeros(3, int)))),
        (ValueError, "deterministic=False", dict(deterministic=False, dropout_key=np.zeros(2, np.uint32))),
    ],
)
def test_what_has_no_place_beside_caches_is_named(error, message, options):
    model = nnx.merge(*parts(dataclasses.replace(HYBRID, dropout_rate=0.1)))
    with pytest.raises(error, match=message):
        model(TOKENS[:, :3], **{"cache": model.init_cache(batch=2, max_length=9)} | options)


@pytest.mark.slow
def test_caches_of_another_model_and_full_ones_are_refused():
    model = nnx.merge(*parts(HYBRID))
    other = dataclasses.replace(HYBRID, layout="G")
    with pytest.raises(ValueError, match=r"these are caches of causal\(\), .* but the model has layers of window"):
        model(TOKENS, cache=nnx.merge(*parts(other)).init_cache(batch=2, max_length=T))
    with pytest.raises(ValueError, match="row 0 of the cache holds 0 tokens and was to get 20 more, but max_length=19"):
        model(TOKENS, cache=model.init_cache(batch=2, max_length=19))
    with pytest.raises(ValueError, match="tokens of batch 2 came with caches of batch 3"):
        model(TOKENS, cache=model.init_cache(batch=3, max_length=T))
    _, caches = step(HYBRID, TOKENS, model.init_cache(batch=2, max_length=19))
    assert caches.refused.tolist() == [True, True]
    leaky = Decoder(dataclasses.replace(HYBRID, legend={"L": "full()", "G": "causal()"}), rngs=nnx.Rngs(0), allow_future=True)
    with pytest.raises(ValueError, match="do not exist yet while decoding"):
        leaky.init_cache(batch=1, max_length=4)
