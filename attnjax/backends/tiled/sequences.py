"""A call a few sequences at a time, so that what one visit holds stays in the cache."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from attnjax.call import Call


def each(
    call: Call, size: int, arrays: Any, body: Callable[..., Any], carry: Any,
    fill: dict[str, float] | None = None,
) -> Any:  # fmt: skip
    """Scan over groups of `size` sequences: body(carry, call, arrays) -> (carry, outputs with a batch axis).

    Arrays of the call with a batch axis of 1 are shared by all; `arrays` follow the same rule. The last group is
    filled up with zeros, or with what `fill` says for a name: queries that weigh nothing add nothing to a carry.
    """
    B, fill = call.dims.B, fill or {}
    if size >= B:
        return body(carry, call, arrays)
    groups = -(-B // size)
    tree = {"diff": call.diff, "facts": call.facts, "arrays": arrays}
    leaves, structure = jax.tree.flatten_with_path(tree)
    alone = [_has_batch(path, x, B) for path, x in leaves]

    def grouped(path: tuple[Any, ...], x: Any) -> Any:
        pads = [(0, groups * size - B)] + [(0, 0)] * (x.ndim - 1)
        x = jnp.pad(x, pads, constant_values=fill.get(getattr(path[-1], "key", ""), 0))
        return x.reshape(groups, size, *x.shape[1:])

    def step(carry: Any, mine: Any) -> Any:
        mine = iter(mine)
        full = [next(mine) if own else x for own, (_, x) in zip(alone, leaves, strict=True)]
        part = jax.tree.unflatten(structure, full)
        return body(carry, dataclasses.replace(call, diff=part["diff"], facts=part["facts"]), part["arrays"])

    carry, out = lax.scan(step, carry, [grouped(*leaf) for own, leaf in zip(alone, leaves, strict=True) if own])
    return carry, jax.tree.map(lambda x: x.reshape(groups * size, *x.shape[2:])[:B], out)


def _has_batch(path: tuple[Any, ...], x: Any, B: int) -> bool:
    return x.ndim > 0 and x.shape[0] == B and not any(getattr(key, "key", None) == "score_params" for key in path)
