"""Trains a small decoder on a task that shows its pattern: repeat the number that the first token said.

Two layers of window(4) reach 2 * (4 - 1) = 6 tokens back, because a window counts the query itself. Accuracy by
distance says so: learned up to 6, chance beyond. About 15 seconds on one core; needs optax (the `train` extra).
"""

import argparse
import functools

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from attnjax import models, show

VOCAB, LENGTH, ROWS = 32, 16, 64  # the upper half of the vocabulary are numbers to remember, the lower half is noise
CONFIG = models.Config(
    vocab_size=VOCAB, d_model=64, num_layers=2, num_heads=4, num_kv_heads=2, layout="W", legend={"W": "window(4)"}
)


def batch(key):
    """Rows of noise whose first token is a number; the target of every later position is that number."""
    number_key, noise_key = jax.random.split(key)
    number = jax.random.randint(number_key, (ROWS, 1), VOCAB // 2, VOCAB)
    noise = jax.random.randint(noise_key, (ROWS, LENGTH - 1), 0, VOCAB // 2)
    return jnp.concatenate([number, noise], axis=1), number


def train(steps):
    """The trained model, and its loss every ten steps."""
    graph, params = nnx.split(models.Decoder(CONFIG, rngs=nnx.Rngs(0)), nnx.Param)
    rate = optax.warmup_cosine_decay_schedule(0.0, 3e-3, 30, max(steps, 31))
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate, b2=0.98))

    def loss_of(params, key):
        tokens, number = batch(key)
        logits = nnx.merge(graph, params)(tokens)[:, 1:]
        targets = jnp.broadcast_to(number, logits.shape[:2])
        return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params, state, key):
        loss, grads = jax.value_and_grad(loss_of)(params, key)
        changes, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, changes), state, loss

    state, losses = optimizer.init(params), {}
    for i in range(steps):
        params, state, loss = step(params, state, jax.random.fold_in(jax.random.key(1), i))
        if i % 10 == 0 or i == steps - 1:
            losses[i] = float(loss)
    return nnx.merge(graph, params), losses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=250, help="of the training (default: %(default)s)")
    parser.add_argument("--svg", metavar="FILE", help="write the loss curve here")
    options = parser.parse_args()
    model, losses = train(options.steps)
    curve = show.curve({"loss": (list(losses), list(losses.values()))}, title="two layers of window(4)")
    print(curve.description)
    if options.svg:
        print("written:", curve.save(options.svg))
    tokens, number = batch(jax.random.key(2))
    hits = (model(tokens).argmax(-1) == number).mean(0)
    print("distance  accuracy (chance is 0.06)")
    for distance in range(1, LENGTH):
        print(f"{distance:>8}  {float(hits[distance]):.2f}  {'#' * round(40 * float(hits[distance]))}")


if __name__ == "__main__":
    main()
