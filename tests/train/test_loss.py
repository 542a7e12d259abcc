import jax.numpy as jnp
import numpy as np
import pytest

from train.loss import mean_nats, nats, next_token


def test_t07_the_denominator_is_the_number_of_targets():
    tokens = jnp.arange(5)[None]
    targets, weights = next_token(tokens)
    assert float(weights.sum()) == 4
    assert float(mean_nats(jnp.zeros((1, 5, 8)), targets, weights)) == pytest.approx(np.log(8), abs=1e-6)


def test_t07_nothing_is_predicted_across_a_boundary():
    targets, weights = next_token(jnp.arange(5)[None], jnp.array([[0, 0, 0, 1, 1]]))
    assert weights.tolist() == [[1, 1, 0, 1, 0]] and targets.tolist() == [[1, 2, 3, 4, 0]]
    assert next_token(jnp.arange(4)[None], jnp.array([[0, 0, -1, -1]]))[1].tolist() == [[1, 0, 0, 0]]


def test_nats_is_the_negative_log_of_the_softmax():
    logits = np.random.default_rng(0).normal(size=(2, 3, 5))
    targets = np.array([[0, 4, 2], [1, 1, 3]])
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    want = -np.log(np.take_along_axis(p, targets[..., None], -1)[..., 0])
    low = np.asarray(nats(jnp.asarray(logits, jnp.float32), jnp.asarray(targets)), np.float64)
    assert np.abs(low - want).max() <= 8 * np.finfo(np.float32).eps * np.abs(logits).max()


def test_no_target_at_all_is_zero_not_nan():
    assert float(mean_nats(jnp.zeros((1, 2, 3)), jnp.zeros((1, 2), int), jnp.zeros((1, 2)))) == 0
