"""The door: every argument of a call checked, and bound into one record with a batch axis."""

import dataclasses
import functools
import typing
from collections.abc import Mapping
from typing import Any, Unpack

import jax
import jax.numpy as jnp

from attnjax.call import Call, Diff, Facts, Options
from attnjax.captures import Arrays, Closed, of_rules, of_score_fn
from attnjax.dropout import check_rate, seed_of
from attnjax.options import AttendOptions
from attnjax.patterns import Full, Pattern, PerHead
from attnjax.score_rule import ScoreArrays, ScoreRule, rule_of
from attnjax.scores import Precision, check_precision
from attnjax.shapes import (
    Dims,
    broadcasts,
    check_bool,
    check_float,
    check_qkv,
    compute_dtype,
    is_symbolic,
    shown,
    swapped,
    to_rank,
)  # fmt: skip
from attnjax.varying import axes_of
from attnjax.visible import check_pattern, place_rows, positions


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["arrays", "sink_logits", "of_rules", "of_score_fn"], meta_fields=["rule", "precision", "closed"],
)
@dataclasses.dataclass(frozen=True)
class Scoring:
    """How scores are made, checked: the part of a call that needs no q, k and v, and may be bound before them."""

    rule: ScoreRule
    precision: Precision
    closed: tuple[Closed, ...]
    arrays: ScoreArrays
    sink_logits: Any
    of_rules: tuple[Arrays, ...]
    of_score_fn: Arrays


def scoring(pattern: Pattern | PerHead, dims: Dims, dtype: Any, axes: frozenset[str], o: Mapping[str, Any]) -> Scoring:
    """`ScoreOptions` checked and bound.

    Args:
        pattern: of the call.
        dims, dtype: of its scores, dims.S as many as there will be.
        axes: along which its arrays vary under `jax.shard_map`.
        o: the options.

    Raises:
        TypeError, ValueError: what is wrong with which option.
    """
    rule, params, sinks = rule_of(o, dims.H, dtype), o.get("score_params"), o.get("sink_logits")
    if isinstance(pattern, PerHead) and len(pattern.patterns) != dims.N:
        raise ValueError(f"PerHead has {len(pattern.patterns)} patterns but q has {dims.N} heads: give one for each")
    if rule.score_fn is None and params is not None:
        raise ValueError("score_params are given but score_fn is None: nothing would read them")
    leaves = jax.tree_util.tree_leaves_with_path(params)
    check_float(**{f"score_params{jax.tree_util.keystr(path)}": x for path, x in leaves})
    if sinks is not None:
        check_float(sink_logits=sinks)
        if tuple(sinks.shape) != (dims.N,):
            raise ValueError(f"{shown(sink_logits=sinks)} must hold one logit per query head: [{dims.N}]")
        sinks = _batch(sinks, True)
    axes = axes | axes_of(params)
    closed, known = of_rules(pattern, dims.T, dims.S, axes)
    own, arrays = None, Arrays()
    if rule.score_fn is not None:
        own, arrays = of_score_fn(rule.score_fn, params, (dims.B, dims.N, dims.T, dims.S), dtype, axes)
    return Scoring(
        dataclasses.replace(rule, closed=own), check_precision(o.get("precision")), closed,
        ScoreArrays(params=params, closed=arrays.floats), sinks, known, arrays._replace(floats=()),
    )  # fmt: skip


@typing.no_type_check
def bind(q: Any, k: Any, v: Any, pattern: Any, **options: Unpack[AttendOptions]) -> tuple[Call, Dims]:
    """Everything checked, arrays with a batch axis; works on `jax.ShapeDtypeStruct` as well."""
    o: Any = options
    dims, dtype, q_offset = check_qkv(q, k, v), compute_dtype(q, k, v), o.get("q_offset")
    check_pattern(pattern)
    if dims.T != dims.S and q_offset is None and pattern.depends_on_positions and (hint := swapped(q, k, v)):
        raise ValueError(f"T={dims.T} queries and S={dims.S} keys: got {shown(q=q, k=k, v=v)}{hint}")
    place, static = _place(pattern, dims, q_offset, o.get("segments"))
    bias, mask, key, shared = o.get("bias"), o.get("mask"), o.get("dropout_key"), o.get("dropout_shared", False)
    if not isinstance(shared, bool):
        raise TypeError(f"dropout_shared={shared!r} must be True or False")
    rate = check_rate(o.get("dropout_rate", 0.0), key)
    s = scoring(pattern, dims, dtype, axes_of((q, k, v, place, bias, mask)), o)
    if bias is not None:
        check_float(bias=bias)
        bias = _score_array("bias", bias, dims)
    if mask is not None:
        check_bool(" Numbers to add: pass it as bias=", mask=mask)
        place["mask"] = _score_array("mask", mask, dims)
    if rate:
        place |= {"seed": seed_of(key), "b_index": positions(dims.B)}
    arrays = (_batch(x, not dims.batched) for x in (q, k, v))
    diff = Diff(*arrays, score=dataclasses.replace(s.arrays, bias=bias), sink_logits=s.sink_logits)
    fixed = Options(pattern, s.rule, s.precision, dropout_rate=rate, dropout_shared=shared, closed=s.closed, **static)
    return Call(fixed, diff, Facts(**place, of_rules=s.of_rules, of_score_fn=s.of_score_fn)), dims


def _place(pattern: Any, dims: Dims, q_offset: Any, segments: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what positions are known at run time, what is known now) of a call."""
    _, _, place = place_rows(pattern, dims.T, dims.S, q_offset, segments, dims.B)
    shared = segments is not None and segments.q_ids is not None and segments.k_ids is None
    if "q_pos" in place:
        del place["q_offset"]
        return place, {"plan_by": pattern.hull() if shared else Full(), "own_keys": shared}
    if isinstance(place["q_offset"], int):
        offset = place.pop("q_offset")
        if is_symbolic(dims.T, dims.S):
            return place, {"q_offset": offset, "plan_by": Full()}
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
