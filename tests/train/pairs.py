"""A model of byte pairs in place of the decoder: the whole loop of a run, compiled in no time."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np

from train import config, loop, optim, run
from train.checkpoints import Checkpoints
from train.journal import Journal

HYBRID = pathlib.Path(__file__).parents[2] / "configs" / "hybrid.toml"
# Step 3 is saved and neither logged nor judged; step 6 is all three.
SETTINGS = ["data.length=8", "data.batch=4", "optim.steps=8", "optim.warmup=2", "run.log_every=2", "run.eval_every=6",
            "run.save_every=3", "run.keep=2", "run.devices=1"]


class Pairs(loop.Learner):
    """A learner whose parameters are a table of logits."""

    def model(self, params):
        return lambda tokens, **_: params["table"][tokens]


def settings(*changes):
    """Settings of a short run on a text in the working folder."""
    text = pathlib.Path("text.txt")
    if not text.exists():
        text.write_text("the quick brown fox jumps over the lazy dog. " * 60)
    return config.read(HYBRID, [*SETTINGS, "data.path=text.txt", *changes])


def learner_of(chosen, model, rate):
    """In place of `run.learner_of`."""
    tx = optim.adamw(rate)

    def first(key):
        params = {"table": jax.random.normal(key, (256, 256))}
        return loop.State(params, tx.init(params), jnp.zeros((), jnp.int32), key)

    return Pairs(None, tx), first


def train(plan):
    """The steps of a plan and all that is written meanwhile; returns the last state."""
    record = plan.since.record or run.first_record(plan)
    with (
        Journal(plan.out, record, plan.settings.optim.steps, 32, plan.since.step, plan.since.seconds) as journal,
        Checkpoints(plan.out / "checkpoints", plan.settings.run.keep) as checkpoints,
    ):
        return run.train(plan, journal, checkpoints)[1]


def bits(tree):
    """Every leaf as bytes, keys by their data."""
    leaves = [jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
              for x in jax.tree.leaves(tree)]
    return [np.asarray(x).tobytes() for x in leaves]
