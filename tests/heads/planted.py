"""A decoder without training whose heads do exactly what their hand-made weights say."""

import jax.numpy as jnp
from flax import nnx

from attnjax import models
from attnjax.patterns import Causal, PerHead, Window

VOCAB = 64
# Layers of A show head 0 the token before and head 1 all tokens before; nothing else tells positions apart.
BEFORE = PerHead((Window(2) & ~Window(1), Causal() & ~Window(1), Causal()))
NAMES = [
    ["previous token", "duplicate token", "resting"],
    ["induction", "", ""],
    ["previous token", "", ""],  # by its pattern; these layers' weights are 0
    ["", "", ""],
]


def decoder(scan=True):
    """Two layers that do something and two that do not, stacked or not.

    A vector is (token, token before), both one-hot. Layer 0: head 0 writes the token before, head 1 looks for the
    query's own token, head 2 for token 0. Layer 1: head 0 looks for the key whose token before is the query's token
    and writes what stands there, which the output head then says.
    """
    config = models.Config(
        vocab_size=VOCAB, d_model=2 * VOCAB, num_layers=4, num_heads=3, head_dim=VOCAB, theta=None, layout="AB",
        legend={"A": BEFORE, "B": "causal()"}, scan=scan,
    )  # fmt: skip
    model = models.Decoder(config, rngs=nnx.Rngs(0))
    eye, none = jnp.eye(VOCAB), jnp.zeros((VOCAB, VOCAB))
    token, before = jnp.concatenate([eye, none]), jnp.concatenate([none, eye])
    all_to_0, first_to_0 = none.at[:, 0].set(1.0), none.at[0, 0].set(4.0)
    nothing = jnp.zeros_like(token)
    zero, one = _kernels(nothing, nothing, nothing, nothing), {}
    first = _kernels(
        jnp.stack([nothing, 2 * token, jnp.concatenate([all_to_0, none])]),
        jnp.stack([nothing, 2 * token, jnp.concatenate([first_to_0, none])]),
        jnp.stack([token, nothing, nothing]),
        jnp.stack([before / (2 * VOCAB) ** 0.5, nothing, nothing]),
    )
    one = _kernels(*(jnp.stack([x, nothing, nothing]) for x in (3 * token, 3 * before, token, token)))
    for layer, kernels in enumerate((first, one, zero, zero)):
        kernels["mlp.down.kernel"] = jnp.zeros((config.ff_dim, 2 * VOCAB))
        _set(model, layer, kernels)
    model.embedding.table[...] = token.T
    model.head.kernel[...] = token
    return model


def _kernels(query, key, value, out):
    """The projections of an attention layer from [N, D, H] each (one [D, H] stands for all heads)."""
    flat = [jnp.concatenate(list(jnp.broadcast_to(x, (3, 2 * VOCAB, VOCAB))), axis=1) for x in (query, key, value)]
    out = jnp.broadcast_to(out, (3, 2 * VOCAB, VOCAB)).swapaxes(1, 2).reshape(3 * VOCAB, 2 * VOCAB)
    names = ("query", "key", "value", "out")
    return {f"attention.{name}.kernel": x for name, x in zip(names, (*flat, out), strict=True)}


def _set(model, layer, kernels):
    period, place = divmod(layer, 2)
    block = model.rest[layer] if model.periods is None else model.periods.blocks[place]
    for path, value in kernels.items():
        weight = block
        for part in path.split("."):
            weight = getattr(weight, part)
        weight[...] = value if model.periods is None else weight[...].at[period].set(value)
