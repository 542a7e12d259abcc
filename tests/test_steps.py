"""The steps of the formula: scores, visible, additive_mask, weights, blend, trace."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attnjax as aj
from tests.support import oracle
from tests.support.budget import assert_within, budget


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


KEYS = jnp.array([[[1.5, 0.0]], [[0.0, 1.5]], [[0.0, 0.0]]])  # animal, street, tired: the chapter's example
VALUES = jnp.eye(3)[:, None, :]


@pytest.mark.parametrize(("query", "shares"), [((2, 0), (0.909, 0.045, 0.045)), ((0, 2), (0.045, 0.909, 0.045))])
def test_the_chapter_s_example(query, shares):
    q = jnp.array([[query]], jnp.float32)
    s = aj.scores(q, KEYS, scale=1.0)
    w = aj.weights(s, aj.visible(aj.Full(), 1, 3))
    assert np.round(w[0, 0], 3).tolist() == pytest.approx(shares)
    assert np.allclose(aj.blend(w, VALUES)[0, 0], w[0, 0])
    assert np.allclose(aj.attend(q, KEYS, VALUES, aj.Full(), scale=1.0)[0, 0], w[0, 0])
    if query == (2, 0):
        assert s[0, 0].tolist() == [3, 0, 0]


def test_the_steps_are_attention():
    q, k, v = draw(2, 7, 4, 8), draw(2, 9, 2, 8, seed=1), draw(2, 9, 2, 5, seed=2)
    p, bias = aj.Window(4) | aj.Sink(1), draw(4, 1, 9, seed=3)
    rules = {"scale": 0.3, "soft_cap": 1.5, "bias": bias}
    seen = aj.visible(p, 7, 9, q_offset=2)
    w = aj.weights(aj.scores(q, k, **rules), seen)
    o = aj.blend(w, v)
    exact = oracle.attention(q, k, v, p.mask(7, 9, 2), **rules)
    low = oracle.attention(q, k, v, p.mask(7, 9, 2), **rules, dtype=np.float32)
    assert o.shape == (2, 7, 4, 5) and o.dtype == jnp.float32
    assert_within(o, exact.o, budget(low.o, exact.o, np.float32))
    assert_within(aj.attend(q, k, v, p, q_offset=2, **rules), exact.o, budget(low.o, exact.o, np.float32))
    assert np.all(np.where(seen, 0, w) == 0) and np.allclose(w.sum(-1), 1)


def test_visible():
    assert aj.visible(aj.Causal(), 3).shape == (1, 1, 3, 3)
    heads = aj.PerHead((aj.Causal(), aj.Window(1)))
    assert np.array_equal(aj.visible(heads, 3)[0], heads.mask(3))
    assert np.array_equal(jax.jit(lambda: aj.visible(aj.Sink(2), 2, 6, q_offset=3))()[0, 0], aj.Sink(2).mask(2, 6, 3))
    with pytest.raises(ValueError, match="T=2 queries and S=6 keys"):
        aj.visible(aj.Causal(), 2, 6)
    with pytest.raises(TypeError, match="is not a pattern"):
        aj.visible("causal()", 2)


def test_additive_mask():
    m = aj.additive_mask(jnp.array([True, False]))
    assert m.dtype == jnp.float32 and m.tolist() == [0, -np.inf]
    with pytest.raises(TypeError, match="m has dtype float32; a mask is a bool"):
        aj.additive_mask(m)


def test_weights_of_an_empty_row_and_of_a_sink():
    s = jnp.asarray(draw(2, 3, 4))
    m = jnp.array([[True, True, False, False], [False] * 4, [True] * 4])
    w = aj.weights(s, m)
    assert not w[:, 1].any() and np.allclose(w[:, [0, 2]].sum(-1), 1)
    sinks = jnp.array([0.5, -1.0])
    ws = aj.weights(s, m, sink_logits=sinks)
    e = np.where(m, np.exp(np.float64(s)), 0)
    assert np.allclose(ws, e / (e.sum(-1) + np.exp(np.float64(sinks))[:, None])[..., None], atol=1e-6)
    assert not ws[:, 1].any()
    gradient = jax.grad(lambda s: jnp.sum(aj.weights(s, m) ** 2))(s)
    assert np.isfinite(gradient).all() and not gradient[:, 1].any()


@pytest.mark.slow
def test_steps_map_and_differentiate():
    q, k, v = (jnp.asarray(draw(3, 5, 2, 4, seed=i)) for i in range(3))

    def steps(q, k, v):
        return aj.blend(aj.weights(aj.scores(q, k), aj.visible(aj.Causal(), 5)), v)

    assert np.allclose(jax.vmap(steps)(q, k, v), steps(q, k, v), atol=1e-6)
    g = jax.grad(lambda q: jnp.sum(steps(q, k, v) ** 2))(q)
    h = jax.grad(lambda q: jnp.sum(aj.attend(q, k, v, aj.Causal()) ** 2))(q)
    assert np.allclose(g, h, atol=1e-5)


@pytest.mark.parametrize(
    ("ask", "kind", "message"),
    [
        (lambda: aj.scores(draw(5, 2, 4), draw(5, 2, 3)), ValueError, "one batch and head size; got q(5, 2, 4) k(5, 2, 3)"),
        (lambda: aj.scores(draw(5, 3, 4), draw(5, 2, 4)), ValueError, "3 query heads cannot share 2"),
        (lambda: aj.scores(draw(5, 2, 4), draw(6, 2, 4), bias=draw(5, 5)), ValueError, "scores (2, 5, 6); got bias(5, 5)"),
        (lambda: aj.weights(draw(2, 3, 4), np.ones((3, 4))), TypeError, "m has dtype float64; a mask is a bool"),
        (lambda: aj.weights(draw(2, 3, 4), np.ones((4, 3), bool)), ValueError, "m must broadcast to the scores"),
        (lambda: aj.weights(draw(2, 3, 4), np.ones((3, 4), bool), sink_logits=draw(3)), ValueError, "one logit per head"),
        (lambda: aj.blend(draw(2, 3, 4), draw(5, 2, 4)), ValueError, "got w(2, 3, 4) v(5, 2, 4)"),
        (lambda: aj.trace(draw(4, 3), draw(4, 3), draw(3, 3), draw(3, 3)), ValueError, "x must be [*B, T, D]"),
        (lambda: aj.trace(draw(4, 3), draw(3, 3), draw(3, 2), draw(3, 3)), ValueError, "wq and wk must have one shape"),
        (lambda: aj.trace(draw(4, 3), *(draw(3, 3),) * 3, pattern=aj.PerHead((aj.Full(),))), TypeError, "one of the heads"),
    ],
)  # fmt: skip
def test_step_errors(ask, kind, message):
    with pytest.raises(kind) as caught:
        ask()
    assert message in str(caught.value)


def test_trace_keeps_twelve_steps_in_order():
    x, wq, wk, wv = (np.random.default_rng(i).standard_normal((4, 4)) for i in range(4))
    r = aj.trace(x, wq, wk, wv, pattern=aj.Causal())
    assert r._fields == ("x", "wq", "wk", "wv", "q", "k", "v", "scores", "scaled", "masked", "weights", "out")
    assert all(isinstance(a, np.ndarray) and a.dtype == np.float64 for a in r)
    s = (x @ wq) @ (x @ wk).T
    assert np.allclose(r.scores, s, rtol=1e-14) and np.allclose(r.scaled, s / 2, rtol=1e-14)
    for i in range(4):
        e = np.exp(s[i, : i + 1] / 2)
        assert np.allclose(r.weights[i, : i + 1], e / e.sum(), rtol=1e-13) and not r.weights[i, i + 1 :].any()
        assert np.isneginf(r.masked[i, i + 1 :]).all()
    assert np.allclose(r.out, r.weights @ (x @ wv), rtol=1e-13)
    as_jax = aj.trace(*(jnp.asarray(a, jnp.float32) for a in (x, wq, wk, wv)), pattern=aj.Causal())
    assert all(isinstance(a, jax.Array) for a in as_jax) and np.allclose(as_jax.out, r.out, atol=1e-5)


def test_trace_maps_over_leading_axes_and_is_jitted():
    x, w = draw(3, 4, 5), draw(5, 2, seed=1)
    r = aj.trace(jnp.asarray(x), *(jnp.asarray(w),) * 3, pattern=aj.Window(2))
    one = jax.vmap(lambda x: aj.trace(x, *(jnp.asarray(w),) * 3, pattern=aj.Window(2)).out)(jnp.asarray(x))
    assert r.out.shape == (3, 4, 2) and np.allclose(one, r.out, atol=1e-6)
    assert np.allclose(aj.trace(x, w, w, w, pattern=aj.Window(2)).out, r.out, atol=1e-5)
    assert np.isfinite(jax.grad(lambda x: jnp.sum(aj.trace(x, *(jnp.asarray(w),) * 3).out))(jnp.asarray(x))).all()


def test_a_numpy_mask_s_polarity_is_everywhere_the_same():
    """Case M10: True = may look, through every entry point."""
    q, k, v, m = jnp.zeros((1, 1, 3)), jnp.zeros((3, 1, 3)), jnp.eye(3)[:, None], jnp.array([True, False, False])
    assert aj.weights(aj.scores(q, k), m)[0, 0].tolist() == [1, 0, 0]
    for backend in ("dense", "tiled"):
        assert aj.attend(q, k, v, aj.Full(), mask=m, backend=backend)[0, 0].tolist() == [1, 0, 0]
