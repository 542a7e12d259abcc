"""The training step, pure: parameters and optimiser state in and out."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jaxtyping import Array, Float, PRNGKeyArray

from attnjax import models
from train.loss import mean_nats
from train.tasks.base import Batch


class State(NamedTuple):
    """Everything a step changes, and the key that its dropout is drawn from."""

    params: Any
    opt_state: Any
    step: Array
    key: PRNGKeyArray


class Learner(NamedTuple):
    """Everything a step does not change."""

    graphdef: Any
    tx: optax.GradientTransformation

    def model(self, params):
        """The module with these parameters."""
        return nnx.merge(self.graphdef, params)


def prepare(config: models.Config, tx: optax.GradientTransformation, allow_future: bool = False):
    """A learner, and the function from a typed key to its first state."""

    def build(key):
        return models.Decoder(config, rngs=nnx.Rngs(key), allow_future=allow_future)

    def first(key) -> State:
        params = nnx.split(build(key), nnx.Param)[1]
        return State(params, tx.init(params), jnp.zeros((), jnp.int32), jax.random.fold_in(key, 4))

    graphdef = nnx.split(nnx.eval_shape(lambda: build(jax.random.key(0))), nnx.Param)[0]
    return Learner(graphdef, tx), first


def start(config: models.Config, tx: optax.GradientTransformation, seed: int, allow_future: bool = False):
    """A fresh learner and its first state; equal seeds give equal parameters."""
    learner, first = prepare(config, tx, allow_future)
    return learner, jax.jit(first)(jax.random.key(seed))


def data_key(seed: int) -> PRNGKeyArray:
    """The key that all batches of a seed are drawn from."""
    return jax.random.fold_in(jax.random.key(seed), 1)


def batch_key(seed: int, step) -> PRNGKeyArray:
    """The key of a step's batch: a function of seed and step alone, so a resumed run sees no batch twice."""
    return jax.random.fold_in(data_key(seed), step)


def evaluation_key(seed: int) -> PRNGKeyArray:
    """The key of what a seed is judged on; no batch is drawn from it."""
    return jax.random.fold_in(jax.random.key(seed), 2)


def update(learner: Learner, state: State, batch: Batch) -> tuple[State, Float[Array, ""], Array]:
    """One optimiser step. Returns the new state, the loss and the logits it was computed from."""
    # Of (seed, step) alone, so that a resumed run drops what an unbroken one does.
    dropout_key = jax.random.fold_in(state.key, state.step)

    def loss(params):
        logits = learner.model(params)(batch.tokens, deterministic=False, dropout_key=dropout_key)
        return mean_nats(logits, batch.targets, batch.weights), logits

    (value, logits), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
    changes, opt_state = learner.tx.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, changes)
    return State(params, opt_state, state.step + 1, state.key), value, logits


def finite(tree) -> Array:
    """Whether every number of a tree is."""
    leaves = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.inexact)]
    return jnp.stack([jnp.isfinite(x).all() for x in leaves]).all()


def stride(learner: Learner, batch_at: Callable, tally: Callable, steps: int) -> Callable:
    """Many steps in one compiled call: (state, ...) -> (state, mean loss, sum of the tallies).

    Args:
        batch_at: (step, ...) -> Batch, traced; behind the step comes whatever the call is given behind the state.
        tally: (logits, batch) -> array, added up over the steps.
        steps: how many steps one call makes.
    """

    @jax.jit
    def run(state: State, *given):
        def one(state, _):
            batch = batch_at(state.step, *given)
            state, loss, logits = update(learner, state, batch)
            return state, (loss, tally(logits, batch))

        state, (losses, tallies) = jax.lax.scan(one, state, None, length=steps)
        return state, losses.mean(), tallies.sum(axis=0)

    return run
