"""Names the heads of a model: of a file, or of a small decoder that learns to repeat while you watch.

python examples/heads.py                                        about a minute on two cores (needs optax)
python examples/heads.py SmolLM2-135M-Instruct.Q4_1.gguf        any file or folder that models.load reads
"""

import argparse
import functools

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from attnjax import heads, models

VOCAB, LENGTH, ROUND = 64, 64, 20
CONFIG = models.Config(
    vocab_size=VOCAB, d_model=64, num_layers=2, num_heads=4, num_kv_heads=2, layout="LG",
    legend={"L": "window(8)", "G": "causal()"},
)  # fmt: skip


def rounds(key, rows=32):
    """Rows that say a round of 12 to 24 random tokens again and again, and where the next token can be known.

    The length differs from row to row, so that no fixed distance helps: a model has to look up what followed the
    last time, and that is what an induction head does.
    """
    length_key, token_key = jax.random.split(key)
    length = jax.random.randint(length_key, (rows, 1), 12, 25)
    tokens = jax.random.randint(token_key, (rows, 24), 0, VOCAB)
    i = jnp.arange(LENGTH + 1)
    return jnp.take_along_axis(tokens, i % length, axis=1), i[1:] > length


def train(steps):
    """Trains the decoder; yields (step, loss, model) every 50 steps."""
    graph, params = nnx.split(models.Decoder(CONFIG, rngs=nnx.Rngs(0)), nnx.Param)
    rate = optax.warmup_cosine_decay_schedule(0.0, 3e-3, 50, max(steps, 51))
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate, b2=0.98))

    def loss_of(params, key):
        rows, known = rounds(key)
        logits = nnx.merge(graph, params)(rows[:, :-1])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, rows[:, 1:])
        return jnp.sum(losses * known) / jnp.sum(known)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params, state, key):
        loss, grads = jax.value_and_grad(loss_of)(params, key)
        changes, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, changes), state, loss

    state = optimizer.init(params)
    for i in range(1, steps + 1):
        params, state, loss = step(params, state, jax.random.fold_in(jax.random.key(1), i))
        if i % 50 == 0 or i in (1, steps):
            yield i, float(loss), nnx.merge(graph, params)  # used up before the next step takes params


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="a file or folder; without one a small decoder is trained")
    parser.add_argument("--steps", type=int, default=500, help="of the training (default: %(default)s)")
    parser.add_argument("--bos", type=int, default=0, help="the model's beginning-of-text token (default: %(default)s)")
    options = parser.parse_args()
    if options.model is not None:
        print(heads.report(models.load(options.model), bos=options.bos))
        return
    print("step  nats  induction best at       previous token best at")
    for step, loss, model in train(options.steps):
        found = heads.report(model, period=ROUND)
        (induction,), (previous,) = found.top("induction", 1), found.top("previous_token", 1)
        print(f"{step:>4}{loss:>6.2f}  {induction!s:<22}  {previous}", flush=True)
    print(found)


if __name__ == "__main__":
    main()
