"""The loss: nats per real target, and which positions have one."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def nats(logits_BTV: Float[Array, "B T V"], targets_BT: Int[Array, "B T"]) -> Float[Array, "B T"]:
    """Negative log-likelihood of each target."""
    log_p_BTV = jax.nn.log_softmax(logits_BTV.astype(jnp.float32), axis=-1)
    return -jnp.take_along_axis(log_p_BTV, targets_BT[..., None], axis=-1)[..., 0]


def mean_nats(
    logits_BTV: Float[Array, "B T V"], targets_BT: Int[Array, "B T"], weights_BT: Float[Array, "B T"]
) -> Float[Array, ""]:
    """Mean over the targets that count; 0 where none does.

    The denominator is the sum of the weights, so padding and first tokens never make a loss look smaller.

    Example:
        >>> float(mean_nats(jnp.zeros((1, 2, 8)), jnp.zeros((1, 2), int), jnp.array([[1.0, 0.0]]))).__round__(5)
        2.07944
    """
    return (nats(logits_BTV, targets_BT) * weights_BT).sum() / jnp.maximum(weights_BT.sum(), 1.0)


def next_token(
    tokens_BT: Int[Array, "B T"], segments_BT: Int[Array, "B T"] | None = None
) -> tuple[Int[Array, "B T"], Float[Array, "B T"]]:
    """Targets and weights of next-token training.

    The last position has no target. With segments, nor has the last token of a document (nothing is predicted
    across a boundary) and nothing in padding (negative ids).

    Example:
        >>> next_token(jnp.arange(5)[None], jnp.array([[0, 0, 0, 1, 1]]))[1].tolist()
        [[1.0, 1.0, 0.0, 1.0, 0.0]]
    """
    ids = jnp.zeros_like(tokens_BT) if segments_BT is None else segments_BT
    counts = (ids[:, 1:] == ids[:, :-1]) & (ids[:, 1:] >= 0)
    pad = ((0, 0), (0, 1))
    return jnp.pad(tokens_BT[:, 1:], pad), jnp.pad(counts.astype(jnp.float32), pad)
