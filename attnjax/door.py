"""The door: every argument of a call checked, and packed into one record with a batch axis."""

from typing import Any

import jax
import jax.numpy as jnp

from attnjax.call import Call, Options
from attnjax.captures import Captures, captures
from attnjax.dropout import check_rate, seed_of
from attnjax.patterns import Full, PerHead
from attnjax.scores import check_precision, check_scale, check_soft_cap
from attnjax.shapes import Dims, broadcasts, check_bool, check_float, check_qkv, compute_dtype, shown, swapped, to_rank
from attnjax.varying import axes_of
from attnjax.visible import check_pattern, place_rows, positions


def call_of(
    q: Any, k: Any, v: Any, pattern: Any, q_offset: Any = None, scale: Any = None, soft_cap: Any = None,
    bias: Any = None, mask: Any = None, sink_logits: Any = None, segments: Any = None, score_fn: Any = None,
    score_params: Any = None, dropout_rate: Any = 0.0, dropout_key: Any = None, dropout_shared: Any = False,
    precision: Any = None, closed_over: Captures | None = None,
) -> tuple[Call, Dims]:  # fmt: skip
    """Everything checked, arrays with a batch axis; works on `jax.ShapeDtypeStruct` as well.

    `closed_over` is what the call's functions close over, for a caller who had to take it out earlier.
    """
    dims = check_qkv(q, k, v)
    check_pattern(pattern)
    if isinstance(pattern, PerHead) and len(pattern.patterns) != dims.N:
        raise ValueError(f"PerHead has {len(pattern.patterns)} patterns but q has {dims.N} heads: give one for each")
    if dims.T != dims.S and q_offset is None and pattern.depends_on_positions and (hint := swapped(q, k, v)):
        raise ValueError(f"T={dims.T} queries and S={dims.S} keys: got {shown(q=q, k=k, v=v)}{hint}")
    place, static = _place(pattern, dims, q_offset, segments)
    if score_fn is None and score_params is not None:
        raise ValueError("score_params are given but score_fn is None: nothing would read them")
    if score_fn is not None and not callable(score_fn):
        raise TypeError(f"score_fn={score_fn!r} cannot be called; it is score_fn(s, q_pos, k_pos, head, params)")
    if not isinstance(dropout_shared, bool):
        raise TypeError(f"dropout_shared={dropout_shared!r} must be True or False")
    rate = check_rate(dropout_rate, dropout_key)
    if score_params is not None:
        leaves = jax.tree_util.tree_leaves_with_path(score_params)
        check_float(**{f"score_params{jax.tree_util.keystr(path)}": x for path, x in leaves})
    if closed_over is None:
        shape, axes = (dims.B, dims.N, dims.T, dims.S), axes_of((q, k, v, place, bias, mask, score_params))
        closed_over = captures(pattern, score_fn, score_params, shape, compute_dtype(q, k, v), axes)
    dtype = compute_dtype(q, k, v)
    options = Options(
        pattern, check_scale(scale, dims.H, dtype), soft_cap=check_soft_cap(soft_cap, dtype=dtype),
        precision=check_precision(precision), score_fn=score_fn, dropout_rate=rate,
        dropout_shared=dropout_shared, closed=closed_over.functions, **static,
    )  # fmt: skip
    diff = {name: _batch(x, not dims.batched) for name, x in (("q", q), ("k", k), ("v", v))}
    if bias is not None:
        check_float(bias=bias)
        diff["bias"] = _score_array("bias", bias, dims)
    if sink_logits is not None:
        check_float(sink_logits=sink_logits)
        if tuple(sink_logits.shape) != (dims.N,):
            raise ValueError(f"{shown(sink_logits=sink_logits)} must hold one logit per query head: [{dims.N}]")
        diff["sink_logits"] = _batch(sink_logits, True)
    if score_params is not None:
        diff["score_params"] = score_params
    facts = place
    if closed_over.functions:
        facts["captured"] = closed_over.arrays
        if closed_over.functions[-1].fn == score_fn:
            *rules, own = closed_over.arrays
            diff["score_params"] = {"given": score_params, "captured": own.floats}
            facts["captured"] = (*rules, own._replace(floats=()))
    if mask is not None:
        check_bool(" Numbers to add: pass it as bias=", mask=mask)
        facts["mask"] = _score_array("mask", mask, dims)
    if rate:
        facts |= {"seed": seed_of(dropout_key), "b_index": positions(dims.B)}
    return Call(options, diff, facts), dims


def _place(pattern: Any, dims: Dims, q_offset: Any, segments: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what positions are known at run time, what is known now) of a call."""
    _, _, place = place_rows(pattern, dims.T, dims.S, q_offset, segments, dims.B)
    shared = segments is not None and segments.q_ids is not None and segments.k_ids is None
    if "q_pos" in place:
        del place["q_offset"]
        return place, {"plan_by": pattern.hull() if shared else Full(), "own_keys": shared}
    if isinstance(place["q_offset"], int):
        offset = place.pop("q_offset")
        return place, {"q_offset": offset, "own_keys": shared and offset == 0}
    return place, {"plan_by": Full()} if pattern.depends_on_positions else {}


def _batch(x: Any, add: bool) -> Any:
    """The array with a batch axis; shapes alone stay shapes."""
    if isinstance(x, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct((1, *x.shape), x.dtype) if add else x
    x = jnp.asarray(x)
    return x[None] if add else x


def _score_array(name: str, x: Any, dims: Dims) -> Any:
    """bias or mask with the four axes [B|1, N|1, T|1, S|1]."""
    B, T, S, N = dims[:4]
    shape = (B, N, T, S) if dims.batched else (N, T, S)
    if not broadcasts(x, shape):
        letters = "[B, N, T, S]" if dims.batched else "[N, T, S]"
        raise ValueError(
            f"{shown(**{name: x})} does not broadcast to the scores {letters} = {shape}: each axis must have that "
            f"size or 1, counted from the right (a mask per sequence and key is [B, 1, 1, S])"
        )
    if isinstance(x, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct(((1,) * 4 + tuple(x.shape))[-4:], x.dtype)
    return to_rank(jnp.asarray(x), 4)
