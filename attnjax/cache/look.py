"""Queries of a chunk look at kept keys: one call of attention whose rows stand at positions known at run time."""

from typing import Any

import jax.numpy as jnp

from attnjax.attend import run
from attnjax.backends import holding_weights, settled
from attnjax.call import Call, Diff, Facts, Options, without_hidden_keys
from attnjax.door import Scoring
from attnjax.patterns import Full, Pattern, PerHead


def call_at(q: Any, k: Any, v: Any, pattern: Pattern | PerHead, q_pos: Any, k_pos: Any, scoring: Scoring) -> Call:
    """Attention of rows that stand at q_pos [B, T] and k_pos [B, S]; negative positions are padding."""
    s, (q_ids, k_ids) = scoring, (jnp.minimum(pos, jnp.int32(0)) for pos in (q_pos, k_pos))
    options = Options(pattern, s.rule, s.precision, closed=s.closed, plan_by=Full())
    facts = Facts(
        q_ids=q_ids, k_ids=k_ids, q_pos=q_pos, k_pos=k_pos, of_rules=s.of_rules, of_score_fn=s.of_score_fn
    )  # fmt: skip
    return Call(options, Diff(q, k, v, s.arrays, s.sink_logits), facts)


def look(call: Call, backend: str, return_weights: bool) -> tuple[Any, Any]:
    """(output, weights or None) of a call; asked for weights, it runs on the backend that holds them."""
    if not return_weights:
        needs_lse = call.diff.sink_logits is not None
        return run(call, settled(call, backend, needs_lse), needs_lse)[0], None
    name, holding = holding_weights()
    return run(call, name, False)[0], holding.weights(without_hidden_keys(call))
