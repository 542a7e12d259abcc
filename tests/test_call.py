"""A call is one record and a pytree: arrays are its leaves, its options are its structure."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attnjax as aj
from attnjax.attend import run
from attnjax.call import Call
from attnjax.door import bind
from tests.support.table import alibi

B, T, N, K, H = 2, 9, 4, 2, 8


def draw(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


def bound(seed=0, pattern=None, **options):
    q, k, v = (draw(B, T, n, H, seed=seed + i) for i, n in enumerate((N, K, K)))
    return bind(q, k, v, aj.Window(4) if pattern is None else pattern, **options)[0]


def everything(seed=0):
    """A call that holds every kind of array."""
    keep, shift = jnp.arange(T) % 5 != seed, draw(T, seed=9)
    return bound(
        seed, aj.Window(4) | aj.Where(lambda q, k: keep[k]), bias=draw(T, T, seed=seed + 3), mask=draw(B, 1, T, T, seed=4) > -1,
        score_fn=lambda s, q, k, h, p: alibi(s, q, k, h, p) + shift[k], score_params=draw(N, seed=5), sink_logits=draw(N, seed=6),
        segments=aj.Segments(jnp.arange(T) // 4, positions="segment"), dropout_rate=0.3, dropout_key=jax.random.key(seed),
    )  # fmt: skip


def test_a_call_comes_back_from_its_leaves():
    call = everything()
    leaves, tree = jax.tree.flatten(call)
    assert all(isinstance(x, jax.Array) for x in leaves)
    again = jax.tree.unflatten(tree, leaves)
    assert isinstance(again, Call) and again.options == call.options
    assert all(a is b for a, b in zip(jax.tree.leaves(again), leaves, strict=True))
    ways = {jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(call)}
    assert ways >= {
        ".diff.q", ".diff.k", ".diff.v", ".diff.sink_logits", ".diff.score.bias", ".diff.score.params",
        ".diff.score.closed[0]", ".facts.mask", ".facts.q_ids", ".facts.q_pos", ".facts.seed",
    }  # fmt: skip
    assert any(way.startswith(".facts.of_rules") for way in ways)


def test_a_call_is_an_argument_of_a_compiled_function():
    """Equal options share one trace, whatever the arrays; other options get another."""
    chex.clear_trace_counter()

    @jax.jit
    @chex.assert_max_traces(n=2)
    def through(call):
        return run(call, "tiled", True)[0]

    for seed in (0, 1):
        call = bound(seed, soft_cap=2.0, bias=draw(T, T, seed=seed))
        q, k, v = (x for x in (call.q, call.k, call.v))
        right = aj.attend(q, k, v, aj.Window(4), soft_cap=2.0, bias=call.bias, backend="dense")
        np.testing.assert_allclose(through(call), right, atol=1e-5)
    assert np.abs(through(bound(0, soft_cap=0.1)) - through(bound(0, soft_cap=2.0, bias=jnp.zeros((T, T))))).max() > 1e-3


@pytest.mark.parametrize("backend", ["dense", "tiled"])
def test_a_call_with_everything_goes_through_jit_and_grad_whole(backend):
    call = everything()
    loss = lambda diff: jnp.sum(jnp.sin(run(dataclasses.replace(call, diff=diff), backend, True)[0]))
    grads = jax.jit(jax.grad(loss))(call.diff)
    chex.assert_trees_all_equal_shapes_and_dtypes(grads, call.diff)
    chex.assert_tree_all_finite(grads)
    assert all(np.any(x) for x in jax.tree.leaves(grads))


def test_options_are_equal_and_hash_alike_when_they_say_the_same():
    same, other = bound(0, scale=0.5), bound(1, scale=np.float32(0.5))
    assert same.options == other.options and hash(same.options) == hash(other.options)
    assert jax.tree.structure(same) == jax.tree.structure(other)
    for changed in (dict(scale=0.25), dict(scale=0.5, soft_cap=3.0), dict(scale=0.5, precision="high"), dict(scale=0.5, q_offset=1)):
        assert bound(0, **changed).options != same.options


def test_a_call_may_hold_shapes_alone():
    shape = jax.ShapeDtypeStruct((B, T, N, H), jnp.bfloat16)
    call, dims = bind(shape, shape, shape, aj.Causal(), bias=jax.ShapeDtypeStruct((T, T), jnp.float32))
    assert dims == (B, T, T, N, N, H, H, True) and call.bias.shape == (1, 1, T, T)
    o, lse = jax.eval_shape(lambda call: run(call, "tiled", True), call)
    assert (o.shape, o.dtype, lse.shape, lse.dtype) == ((B, T, N, H), jnp.bfloat16, (B, T, N), jnp.float32)
