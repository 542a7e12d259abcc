import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax import models
from train import loop, optim, tasks

TASK = tasks.Reach(length=8, vocab=8)
CONFIG = models.Config(vocab_size=8, d_model=8, num_layers=1, num_heads=1, layout="L", legend={"L": "window(3)"})


@pytest.fixture(scope="module")
def begun():
    return loop.start(CONFIG, optim.adamw(optim.schedule(1e-2, 2, 20)), seed=3)


def batch_at(step):
    return TASK.batch(loop.batch_key(3, step), 4)


def test_t02_a_batch_is_a_function_of_seed_and_step():
    a = [np.asarray(batch_at(step).tokens).tobytes() for step in range(8)]
    resumed = [np.asarray(batch_at(jnp.int32(step)).tokens).tobytes() for step in range(5, 8)]
    assert resumed == a[5:] and len(set(a)) == 8
    other = np.asarray(TASK.batch(loop.batch_key(4, 0), 4).tokens).tobytes()
    judged = np.asarray(TASK.batch(loop.evaluation_key(3), 4).tokens).tobytes()
    assert not {other, judged} & set(a)


@pytest.mark.slow
def test_t01_the_first_step_changes_parameters(begun):
    learner, state = begun
    after, loss, _ = jax.jit(lambda s: loop.update(learner, s, batch_at(s.step)))(state)
    changed = jax.tree.map(lambda x, y: bool((x != y).any()), state.params, after.params)
    assert all(jax.tree.leaves(changed)) and int(after.step) == 1 and float(loss) > 0


@pytest.mark.slow
def test_strides_equal_single_steps_and_trace_once(begun):
    learner, state = begun
    chex.clear_trace_counter()

    @chex.assert_max_traces(n=1)
    def once(step):
        return batch_at(step)

    stride = loop.stride(learner, once, TASK.tally, 3)
    two = stride(stride(state)[0])[0]
    single = jax.jit(lambda s: loop.update(learner, s, batch_at(s.step))[0])
    six = state
    for _ in range(6):
        six = single(six)
    assert int(two.step) == int(six.step) == 6
    for x, y in zip(jax.tree.leaves(two.params), jax.tree.leaves(six.params), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)


@pytest.mark.slow
def test_equal_seeds_start_equal(begun):
    again = loop.start(CONFIG, optim.adamw(optim.schedule(1e-2, 2, 20)), seed=3)[1]
    other = loop.start(CONFIG, optim.adamw(optim.schedule(1e-2, 2, 20)), seed=4)[1]
    chex.assert_trees_all_equal(again.params, begun[1].params)
    with pytest.raises(AssertionError):
        chex.assert_trees_all_equal(again.params, other.params)


def test_the_start_is_what_the_module_draws_by_itself(begun):
    from flax import nnx

    params = nnx.split(models.Decoder(CONFIG, rngs=nnx.Rngs(jax.random.key(3))), nnx.Param)[1]
    for x, y in zip(jax.tree.leaves(params), jax.tree.leaves(begun[1].params), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6)
