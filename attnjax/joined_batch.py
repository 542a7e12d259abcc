"""vmap of the seam's primitives: the mapped axis joins the batch axis, and the primitive is bound again."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive

from attnjax.call import Diff

BROADCASTING = ("bias", "mask", "q_offset", "q_ids", "k_ids", "q_pos", "k_pos", "seed", "heads")  # B or 1
WITHOUT_BATCH = ("score", "of_rules", "of_score_fn")  # what functions of the call read: any shapes


def joined_batch(p: Primitive, args: Any, axes: Any, *, tree: Any, **parameters: Any) -> Any:
    """A batching rule; results are arrays [B, ...] or, of a pullback, cotangents of the first operand."""
    size = next(x.shape[a] for x, a in zip(args, axes, strict=True) if a is not None)
    args = [x if a is None else jnp.moveaxis(x, a, 0) for x, a in zip(args, axes, strict=True)]
    names, first = _names(tree)
    is_pullback = "closed" in parameters
    # cotangents come one for each mapped element, so that what they belong to is spread
    kept = set(names[:first]) if is_pullback else set()
    mapped = {name for name, a in zip(names, axes, strict=True) if a is not None}
    if (mapped | kept) & set(WITHOUT_BATCH):  # these have no batch axis to join: one element after the other
        return _one_by_one(p, args, axes, tree=tree, **parameters)
    spread = mapped | kept  # tangents spread with their arrays
    batch = [x.shape[0 if a is None else 1] for x, a in zip(args, axes, strict=True)]
    B = batch[names.index("q")]

    def join(x: Any, axis: Any, name: str) -> Any:
        if axis is None:
            if name in WITHOUT_BATCH or (name in BROADCASTING and x.shape[0] == 1 and name not in spread):
                return x
            x = jnp.broadcast_to(x[None], (size, *x.shape))
        return jnp.broadcast_to(x, (size, B, *x.shape[2:])).reshape(size * B, *x.shape[2:])

    joined = [join(x, a, name) for x, a, name in zip(args, axes, names, strict=True)]
    out = p.bind(*joined, tree=tree, **parameters)
    out = [x.reshape(size, B, *x.shape[1:]) for x in out]
    if is_pullback:  # of arrays that all sequences shared
        out = [x.sum(axis=1, keepdims=True) if b == 1 and B > 1 else x for x, b in zip(out, batch, strict=False)]
    return out, [0] * len(out)


def _one_by_one(p: Primitive, args: Any, axes: Any, **parameters: Any) -> Any:
    mapped = [x for x, a in zip(args, axes, strict=True) if a is not None]

    def one(values: Any) -> Any:
        values = iter(values)
        return p.bind(*(x if a is None else next(values) for x, a in zip(args, axes, strict=True)), **parameters)

    out = lax.map(one, mapped)
    return out, [0] * len(out)


def _names(tree: Any) -> tuple[list[str], int]:
    """(for each operand the field that holds it, or "" where it is an array of its own; how many the first has)."""
    operands = tree.unflatten(range(tree.num_leaves))
    names: list[str] = []
    for x in operands:
        paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(x)]
        names += [_name(path) for path in paths]
    assert isinstance(operands[0], Diff)
    return names, len(jax.tree.leaves(operands[0]))


def _name(path: Any) -> str:
    """Of the arrays of the score rule, only the bias has a name of its own."""
    if not path:
        return ""
    return "bias" if jax.tree_util.keystr(path) == ".score.bias" else path[0].name
