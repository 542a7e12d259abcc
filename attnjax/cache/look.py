"""Queries of a chunk look at kept keys: one call of attention whose rows stand at positions known at run time."""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp

from attnjax.attend import choose, run
from attnjax.backends import dense
from attnjax.call import Call, without_hidden_keys
from attnjax.captures import Arrays, Captures, Closed
from attnjax.door import call_of
from attnjax.patterns import Full, Pattern, PerHead


class Rule(NamedTuple):
    """The static half of how scores are made; the fields are options of `attend`."""

    scale: float | None
    soft_cap: float | None
    score_fn: Any
    precision: Any
    backend: str
    return_weights: bool
    closed: tuple[Closed, ...] = ()  # functions of pattern and score_fn that close over arrays


def call_at(
    q: Any, k: Any, v: Any, pattern: Pattern | PerHead, q_pos: Any, k_pos: Any, rule: Rule, sink_logits: Any,
    score_params: Any, captured: tuple[Arrays, ...],
) -> Call:  # fmt: skip
    """Attention of rows that stand at q_pos [B, T] and k_pos [B, S]; negative positions are padding.

    `captured` are the arrays of `rule.closed`.
    """
    call, _ = call_of(
        q, k, v, pattern, q_offset=0, scale=rule.scale, soft_cap=rule.soft_cap, sink_logits=sink_logits,
        score_fn=rule.score_fn, score_params=score_params, precision=rule.precision,
        closed_over=Captures(rule.closed, captured),
    )  # fmt: skip
    ids = {f"{side}_ids": jnp.minimum(pos, jnp.int32(0)) for side, pos in (("q", q_pos), ("k", k_pos))}
    facts = call.facts | ids | {"q_pos": q_pos, "k_pos": k_pos}
    return Call(dataclasses.replace(call.options, plan_by=Full()), call.diff, facts)


def look(call: Call, rule: Rule) -> tuple[Any, Any]:
    """(output, weights or None) of a call; asked for weights, it runs dense."""
    if not rule.return_weights:
        return run(call.diff, call.facts, call.options, choose(call, rule.backend)[0])[0], None
    shown = without_hidden_keys(call)
    return dense.forward(shown)[0], dense.weights(shown)
