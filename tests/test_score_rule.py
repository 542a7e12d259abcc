"""The score rule: its order by hand, on a whole call and tile by tile, and what it refuses."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attnjax as aj
from attnjax.captures import Arrays
from attnjax.score_rule import Places, ScoreArrays, ScoreRule, rule_of
from tests.support.table import alibi

B, N, T, S = 2, 3, 4, 6


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def places(rows, columns):
    """Of some rows and columns of a call in which query i stands at position i + 1."""
    q, k = jnp.asarray(rows, jnp.int32) + 1, jnp.asarray(columns, jnp.int32)
    return Places(q[None, None, :, None], k[None, None, None], jnp.arange(N, dtype=jnp.int32)[None, :, None, None])


DOTS, BIAS, SLOPES = 3 * draw(B, N, T, S), draw(1, N, T, S, seed=1), draw(N, seed=2)
BIAS[0, 1, 2, 3] = -np.inf
RULE = ScoreRule(scale=0.5, soft_cap=2.0, score_fn=alibi)


def by_hand():
    s = 2.0 * np.tanh(DOTS / 2.0)
    distance = np.arange(S)[None] - (np.arange(T)[:, None] + 1)
    return s + SLOPES[:, None, None] * distance + BIAS


def test_cap_then_score_fn_then_bias():
    found = RULE(jnp.asarray(DOTS), lambda: places(range(T), range(S)), ScoreArrays(jnp.asarray(BIAS), jnp.asarray(SLOPES)), Arrays())
    np.testing.assert_allclose(found, by_hand(), rtol=1e-5, atol=1e-6)


def test_a_tile_gets_what_the_whole_gets():
    """What a kernel needs: elementwise on a tile, with its arrays passed in and the bias cut to it."""
    rows, columns = slice(1, 3), slice(2, 5)
    arrays = ScoreArrays(jnp.asarray(BIAS[:, :, rows, columns]), jnp.asarray(SLOPES))
    found = jax.jit(lambda dots, arrays: RULE(dots, lambda: places(range(1, 3), range(2, 5)), arrays, Arrays()))(
        jnp.asarray(DOTS[:, :, rows, columns]), arrays
    )
    np.testing.assert_allclose(found, by_hand()[:, :, rows, columns], rtol=1e-5, atol=1e-6)


def test_a_bias_of_minus_infinity_hides_whatever_the_score_is():
    dots = jnp.asarray([[[[np.inf, np.nan, -np.inf, 1.0]]]], jnp.float32)
    bias = jnp.asarray([[[[-np.inf, -np.inf, -np.inf, 2.0]]]], jnp.float32)
    found = ScoreRule(1.0)(dots, lambda: None, ScoreArrays(bias), Arrays())
    assert found.tolist() == [[[[-np.inf, -np.inf, -np.inf, 3.0]]]]


def test_places_are_asked_for_only_by_a_score_fn():
    def never():
        raise AssertionError("asked")

    assert ScoreRule(1.0, soft_cap=2.0)(jnp.ones((1, 1, 1, 1)), never, ScoreArrays(), Arrays()).shape == (1, 1, 1, 1)


def test_what_only_scales_says_so():
    assert ScoreRule(2.0).only_scales
    assert not ScoreRule(2.0, soft_cap=1.0).only_scales and not RULE.only_scales


def test_cut_takes_the_bias_one_way_and_all_else_another():
    arrays = ScoreArrays("bias", {"slope": "slope"}, ("closed",))
    found = arrays.cut(str.upper, lambda x: x + "!")
    assert found == ScoreArrays("BIAS", {"slope": "slope!"}, ("closed!",))
    assert ScoreArrays(params="p").cut(str.upper, str.title) == ScoreArrays(params="P")


@pytest.mark.parametrize("backend", ["dense", "tiled"])
def test_a_score_fn_that_is_not_elementwise_is_refused(backend):
    x = jnp.ones((8, 2, 4))
    with pytest.raises(ValueError, match=r"score_fn returned \(\), but the scores are \(1, 2, 8, 8\).*elementwise on \(scores, q_pos") as found:
        aj.attend(x, x, x, aj.Full(), score_fn=lambda s, q, k, h, p: jnp.sum(s), backend="dense")
    assert "which broadcast" in str(found.value)
    with pytest.raises(ValueError, match="score_fn returned float, but the scores"):
        aj.attend(x, x, x, aj.Full(), score_fn=lambda s, q, k, h, p: 1.0, backend=backend)


@pytest.mark.parametrize(
    ("error", "match", "options"),
    [
        (TypeError, r"score_fn=3 cannot be called; it is score_fn\(s, q_pos, k_pos, head, params\)", dict(score_fn=3)),
        (ValueError, "scale=inf must be finite", dict(scale=float("inf"))),
        (ValueError, "soft_cap=-1.0 must be above 0", dict(soft_cap=-1.0)),
    ],
)
def test_wrong_options_are_named(error, match, options):
    with pytest.raises(error, match=match):
        rule_of(options, 8, jnp.float32)


def test_params_of_any_name_and_shape_are_read_whole_by_every_row_of_a_batch():
    """A leaf of score_params that is called bias is none: under vmap it has no batch axis to join."""
    q, params = jnp.asarray(draw(3, B, 8, N, 4)), {"bias": jnp.asarray(SLOPES), "table": jnp.asarray(draw(5, N, 7))}
    rescore = lambda s, i, j, h, p: alibi(s, i, j, h, p["bias"]) + p["table"][2, h, 3]
    loss = lambda q, p: jnp.sum(jnp.sin(aj.attend(q, q, q, aj.Causal(), score_fn=rescore, score_params=p, backend="tiled")))
    each = [jax.grad(loss, (0, 1))(x, params) for x in q]
    found = jax.grad(lambda q, p: jnp.sum(jax.vmap(loss, (0, None))(q, p)), (0, 1))(q, params)
    right = jnp.stack([x for x, _ in each]), jax.tree.map(lambda *x: sum(x), *[x for _, x in each])
    chex.assert_trees_all_close(found, right, rtol=1e-4, atol=1e-5)


def test_a_rule_says_what_attend_takes():
    rule = rule_of({"soft_cap": 3, "score_fn": alibi}, 16, jnp.float32)
    assert rule.options == {"scale": 0.25, "soft_cap": 3.0, "score_fn": alibi}
    assert rule_of(rule.options, 16, jnp.float32) == rule
