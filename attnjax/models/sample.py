"""From logits to the next token: greedy, or drawn by temperature, top-k and top-p."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from attnjax.dropout import check_key
from attnjax.patterns.checks import integer
from attnjax.scores import number

SMALLEST, LARGEST = 1e-6, 1e6  # temperatures beyond these are the likeliest token, and no choice at all


class Rule(NamedTuple):
    """How tokens are picked; temperature None takes the likeliest."""

    temperature: float | None
    top_k: int | None
    top_p: float | None


def check_rule(temperature: Any, top_k: Any, top_p: Any, key: Any, vocab_size: int) -> Rule:
    """The settings as one record that can be honoured.

    Raises:
        TypeError: if one is no number, or the key is no key.
        ValueError: if one is out of range, has no use, or the key is missing.
    """
    if key is not None:
        check_key(key)
    if temperature is None:
        for name, value in (("top_k", top_k), ("top_p", top_p)):
            if value is not None:
                raise ValueError(f"{name}={value} cuts what is drawn from, but without temperature= nothing is drawn")
        return Rule(None, None, None)
    temperature = number("temperature", temperature, "a constant of the program", jnp.float64)
    if temperature <= 0:
        raise ValueError(f"temperature={temperature} must be above 0; for the likeliest token leave it None")
    if not SMALLEST <= temperature <= LARGEST:
        raise ValueError(
            f"temperature={temperature} must be from {SMALLEST} to {LARGEST}; for the likeliest token leave it None"
        )
    if key is None:
        raise ValueError(f"temperature={temperature} draws tokens, which needs key=jax.random.key(seed)")
    if top_k is not None and integer("top_k", top_k, 1) > vocab_size:
        raise ValueError(f"top_k={top_k} is more than the {vocab_size} tokens of the vocabulary; leave it None for all")
    if top_p is not None:
        top_p = number("top_p", top_p, "a constant of the program")
        if not 0 < top_p <= 1:
            raise ValueError(f"top_p={top_p} must be above 0 and at most 1: the share of probability to draw from")
    return Rule(temperature, None if top_k is None else integer("top_k", top_k), top_p)


def pick(logits: Any, rule: Rule, key: Any) -> tuple[Any, Any]:
    """(tokens [B] int32, their log-probabilities [B]) from logits [B, vocab].

    The log-probability is the model's own, before temperature and cuts. Each row draws from its own key, so what
    it draws does not depend on the other rows.
    """
    token = jnp.argmax(logits, axis=-1) if rule.temperature is None else _draw(logits, rule, key)
    token = token.astype(jnp.int32)
    logprobs = jax.nn.log_softmax(logits, axis=-1)
    return token, jnp.take_along_axis(logprobs, token[:, None], axis=1)[:, 0]


def _draw(logits: Any, rule: Rule, key: Any) -> Any:
    """Temperature first, then the top k, then of these the likeliest that together reach top_p (Holtzman et al. 2020,
    "The Curious Case of Neural Text Degeneration")."""
    # the likeliest first at 0, so that a small temperature makes the others -inf and no two of them inf
    scaled = (logits - jnp.max(logits, axis=-1, keepdims=True)) / rule.temperature
    keys = jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(logits.shape[0], dtype=jnp.uint32))
    if rule.top_k is None and rule.top_p is None:
        return jax.vmap(jax.random.categorical)(keys, scaled)
    ranked, tokens = jax.lax.top_k(scaled, logits.shape[-1] if rule.top_k is None else rule.top_k)
    if rule.top_p is not None:
        shares = jax.nn.softmax(ranked, axis=-1)
        before = jnp.cumsum(shares, axis=-1) - shares  # the likeliest has nothing before it and always stays
        ranked = jnp.where(before < rule.top_p, ranked, -jnp.inf)
    place = jax.vmap(jax.random.categorical)(keys, ranked)
    return jnp.take_along_axis(tokens, place[:, None], axis=1)[:, 0]
