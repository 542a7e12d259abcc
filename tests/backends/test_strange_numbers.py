"""NaN, infinities and numbers at the edge of float32: what reaches a result, and what does not, on every backend."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attnjax as aj

T = 12


def draw(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


Q, K, V = draw(1, T, 4, 8), draw(1, T, 2, 8, seed=1), draw(1, T, 2, 8, seed=2)
ALONE = np.where(np.arange(T) == 3, 5, 0)  # row 3 is alone in its segment, and its key in another
HIDES = {  # what hides every key from query 3
    "a mask": dict(mask=jnp.asarray(np.arange(T) != 3)[:, None]),
    "a bias of -inf": dict(bias=jnp.asarray(np.where(np.arange(T) == 3, -np.inf, 0.5), jnp.float32)[:, None]),
    "a mask in some heads": dict(mask=jnp.asarray(np.arange(T) != 3)[:, None] | jnp.asarray([[[True]], [[False]]] * 2)),
    "its segment": dict(segments=aj.Segments(jnp.asarray(ALONE), jnp.asarray(np.where(np.arange(T) == 3, 6, 0)))),
    "a mask beside sinks": dict(mask=jnp.asarray(np.arange(T) != 3)[:, None], sink_logits=jnp.arange(4.0)),
    "padding": dict(segments=aj.Segments(jnp.asarray(np.where(np.arange(T) == 3, -1, 0)))),
}


@pytest.fixture(params=["dense", "tiled"])
def backend(request):
    return request.param


@pytest.mark.cross
@pytest.mark.parametrize("how", HIDES)
def test_a_query_that_sees_no_key_reaches_nothing(how, backend):
    """NaN in it, in its cotangent and in its tangent: results and derivatives are those of a query of 0."""
    hidden = np.zeros((1, T, 4, 1), bool)
    hidden[:, 3, [1, 3] if "heads" in how else slice(None)] = True
    f = lambda q, k, v: aj.attend(q, k, v, aj.Causal(), backend=backend, **HIDES[how])

    def everything(q, d_o, along):
        o, pull = jax.vjp(f, q, K, V)
        curved = jax.grad(lambda k: jnp.sum(jax.grad(lambda k: jnp.sum(f(q, k, V) ** 2))(k) * K))(K)
        return o, pull(d_o), jax.jvp(f, (q, K, V), (along, K, V))[1], curved

    clean, strange = (jax.jit(everything)(*(jnp.where(hidden, x, a) for a in (Q, V.repeat(2, 2), Q))) for x in (0, jnp.nan))
    for a, b in zip(jax.tree.leaves(strange), jax.tree.leaves(clean), strict=True):
        assert np.isfinite(a).all() and np.array_equal(a, b)
    assert not np.asarray(clean[1][0])[np.broadcast_to(hidden, Q.shape)].any()


@pytest.mark.cross
@pytest.mark.parametrize("pattern", [aj.Causal() & ~aj.Window(4), aj.Window(2)], ids=str)
def test_a_query_that_the_pattern_leaves_without_keys_reaches_nothing(pattern, backend):
    offset = 0 if "~" in str(pattern) else T  # queries behind the last key
    f = lambda q, k: jnp.sum(aj.attend(q, k, V, pattern, q_offset=offset, backend=backend) ** 2)
    q = Q.at[0, -1 if offset else 0].set(jnp.nan)
    for x in jax.grad(f, (0, 1))(q, K):
        assert np.isfinite(x).all()


@pytest.mark.cross
@pytest.mark.parametrize("share", [1.0, 0.6], ids=["all weights", "some dropped"])
def test_any_cotangent_of_a_weight_of_0_gives_0(share):
    """entr'(0) is infinite: a hidden weight, or a dropped one, is 0 by selection."""
    m = jnp.array([True, True, False])
    entropy = lambda w: jnp.sum(jax.scipy.special.entr(w))
    found = jax.grad(lambda x: entropy(aj.weights(x.reshape(1, 1, 3), m)))(jnp.array([1.0, 2, 3]))
    np.testing.assert_allclose(found, [0.19661, -0.19661, 0], atol=1e-5)
    from flax import nnx

    from attnjax import nn

    layer = nn.Attention(8, 2, pattern=aj.Window(3), learned_sinks=True, dropout_rate=1 - share, rngs=nnx.Rngs(0))
    graph, state = nnx.split(layer)
    ask = dict(return_weights=True, deterministic=share == 1, dropout_key=None if share == 1 else jax.random.key(1))
    for mask in (None, jnp.asarray(np.arange(T) % 3 > 0)):
        loss = lambda s, x, mask=mask: entropy(nnx.merge(graph, s)(x, mask=mask, **ask).weights)
        for x in jax.tree.leaves(jax.grad(loss, (0, 1))(state, draw(1, T, 8))):
            assert np.isfinite(x).all()


def test_a_bias_of_minus_infinity_hides_weights_from_derivatives():
    s = jnp.array([[[1.0, 2.0, -jnp.inf]]])
    found = jax.grad(lambda s: jnp.sum(jax.scipy.special.entr(aj.weights(s, jnp.ones(3, bool)))))(s)
    np.testing.assert_allclose(found[0, 0], [0.19661, -0.19661, 0], atol=1e-5)


@pytest.mark.parametrize("pattern", [aj.Causal(), aj.Window(3) | aj.Strided(4), aj.Full()], ids=str)
def test_sums_of_values_stay_in_range(pattern, backend):
    """Up to 99.99 % of the largest float: shares sum to 1 but for rounding."""
    large = 0.9999 * float(jnp.finfo(jnp.float32).max)
    v = jnp.full((1, 300, 2, 8), large, jnp.float32)
    q, k = draw(1, 300, 4, 8), draw(1, 300, 2, 8, seed=1)
    np.testing.assert_allclose(aj.attend(q, k, v, pattern, backend=backend), large, rtol=1e-5)
    np.testing.assert_allclose(aj.attend(q, k, -v, pattern, backend=backend), -large, rtol=1e-5)


@pytest.mark.cross
def test_infinite_biases_and_sinks_mean_one_thing_everywhere(backend):
    """As docs/numerics.md says: +inf in a bias makes its row NaN, a sink of +inf takes everything, one of -inf nothing."""
    bias = jnp.zeros((T, T)).at[5, 1].set(jnp.inf)
    o, lse = aj.attend(Q, K, V, aj.Causal(), bias=bias, backend=backend, return_lse=True)
    assert np.array_equal(np.isnan(o).any((0, 2, 3)), np.arange(T) == 5) and np.array_equal(np.isnan(lse[0, :, 0]), np.arange(T) == 5)
    sinks = jnp.array([jnp.inf, 0.0, -jnp.inf, 1.0])
    o, lse = aj.attend(Q, K, V, aj.Causal(), sink_logits=sinks, backend=backend, return_lse=True)
    plain = aj.attend(Q, K, V, aj.Causal(), backend=backend)
    assert not np.asarray(o[:, :, 0]).any() and np.allclose(o[:, :, 2], plain[:, :, 2], atol=1e-6) and np.isfinite(lse).all()
    d_q, d_sinks = jax.grad(lambda q, s: jnp.sum(aj.attend(q, K, V, aj.Causal(), sink_logits=s, backend=backend)), (0, 1))(Q, sinks)
    assert np.isfinite(d_q).all() and np.isfinite(d_sinks).all()
