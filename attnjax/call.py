"""The one record of arrays and options that backends read."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer

from attnjax import dropout
from attnjax.captures import Arrays, Closed
from attnjax.patterns import Pattern, PerHead
from attnjax.patterns.parts import Part
from attnjax.scores import Precision
from attnjax.segments import same_segment
from attnjax.shapes import Dims
from attnjax.varying import axes_of, vary
from attnjax.visible import positions, seen_columns, visible_at

ROWS = 128  # query rows looked at at once where the keys that nobody sees are found at run time


@dataclasses.dataclass(frozen=True)
class Options:
    """The static half of a call: hashable, so equal options share one trace."""

    pattern: Pattern | PerHead
    scale: float
    q_offset: int = 0  # where the call has no traced one
    soft_cap: float | None = None
    precision: Precision = None
    score_fn: Callable[..., Any] | None = None
    dropout_rate: float = 0.0
    dropout_shared: bool = False  # one pattern of dropped scores [T, S] for all sequences and heads
    # what tiles are planned by where positions are known at run time only: a superset of the pattern
    plan_by: Pattern | PerHead | None = None
    closed: tuple[Closed, ...] = ()  # the functions among pattern's rules and score_fn that close over arrays
    own_keys: bool = False  # row i is the query and the key of one token: self-attention with shared segment ids
    tile: tuple[int, int] | None = None  # rows and columns of a tile; None lets the backend choose
    rows_at_once: int | None = None  # rows of tiles that a visit takes together; None lets the backend choose


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of attention. Arrays may be `jax.ShapeDtypeStruct` where only shapes are asked.

    `diff` holds what is differentiated: q [B, T, N, H], k [B, S, K, H], v [B, S, K, h] and, where given,
    bias [B|1, N|1, T|1, S|1], sink_logits [B|1, N] and score_params (any tree). `facts` holds, where given,
    mask (bool, as bias), q_offset [B|1], q_ids [B|1, T] and k_ids [B|1, S], q_pos and k_pos (positions that
    restart), seed [B|1, 2], b_index [B], and captured, the arrays of each of `options.closed`. Floats that score_fn
    closes over are differentiated: score_params is then {"given": its params, "captured": these floats}.
    Where a backend reordered rows or picked heads, q_index [B, T] and k_index [B, S] say which rows of the whole call
    these are, and heads [1, N] which heads.
    """

    options: Options
    diff: dict[str, Any]
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def q(self) -> Any:
        return self.diff["q"]

    @property
    def k(self) -> Any:
        return self.diff["k"]

    @property
    def v(self) -> Any:
        return self.diff["v"]

    @property
    def bias(self) -> Any:
        return self.diff.get("bias")

    @property
    def mask(self) -> Any:
        return self.facts.get("mask")

    @property
    def dims(self) -> Dims:
        B, T, N, H = self.q.shape
        return Dims(B, T, self.k.shape[1], N, self.k.shape[2], H, self.v.shape[3], True)

    @property
    def varies(self) -> frozenset[str]:
        """The mesh axes along which some array of the call varies."""
        return axes_of((self.diff, self.facts))

    def alike(self) -> "Call":
        """The call with all arrays varying alike; those that functions close over stay as they were traced."""
        if not self.varies:
            return self
        facts = {name: x if name == "captured" else vary(x, self.varies) for name, x in self.facts.items()}
        return Call(self.options, self.varied(self.diff), facts)

    def varied(self, diff: dict[str, Any]) -> dict[str, Any]:
        """What is differentiated, or its tangents, as `alike` has them."""
        found = vary(diff, self.varies)
        if self.floats_of_score_fn:
            found["score_params"] = found["score_params"] | {"captured": diff["score_params"]["captured"]}
        return found

    @property
    def floats_of_score_fn(self) -> tuple[Any, ...]:
        """Arrays that score_fn closes over and that may have derivatives."""
        fn = self.options.score_fn
        return () if fn is None or self.closed(fn) is None else self.diff["score_params"]["captured"]

    def with_floats_as_facts(self) -> "Call":
        """The call in which the floats that score_fn closes over are differentiated no more."""
        if not self.floats_of_score_fn:
            return self
        *rules, own = self.facts["captured"]
        captured = *rules, own._replace(floats=self.floats_of_score_fn)
        diff = self.diff | {"score_params": self.diff["score_params"] | {"captured": ()}}
        return dataclasses.replace(self, diff=diff, facts=self.facts | {"captured": captured})

    @property
    def scores_needed(self) -> int | None:
        """Exact number of scores over batch and heads by the pattern (arrays may hide more at run time).

        None where positions are known at run time only.
        """
        d, o = self.dims, self.options
        if o.plan_by is not None or any(isinstance(x, Tracer) for x in jax.tree.leaves(self.facts.get("captured"))):
            return None
        heads = 1 if isinstance(o.pattern, PerHead) else d.N
        with jax.ensure_compile_time_eval():  # rules may close over arrays that are known inside of jax.jit too
            return d.B * heads * o.pattern.count(d.T, d.S, o.q_offset)

    # -- questions about a block of rows and columns: `row` and `col` are int32 index vectors -------------------

    def rows_of(self, row: Any) -> Any:
        """Absolute index of query rows, [B|1, rows]."""
        offset = self.facts.get("q_offset")
        rows = row[None] if "q_index" not in self.facts else _take(self.facts["q_index"], row)
        return self.options.q_offset + rows if offset is None else offset[:, None] + rows

    def columns_of(self, col: Any) -> Any:
        """Absolute index of key rows, [B|1, columns]."""
        return col[None] if "k_index" not in self.facts else _take(self.facts["k_index"], col)

    def q_positions(self, row: Any) -> Any:
        """Positions of query rows for the pattern, [B|1, rows]."""
        return self.rows_of(row) if "q_pos" not in self.facts else _take(self.facts["q_pos"], row)

    def k_positions(self, col: Any) -> Any:
        """Positions of key rows for the pattern, [B|1, columns]."""
        return self.columns_of(col) if "k_pos" not in self.facts else _take(self.facts["k_pos"], col)

    def closed(self, fn: Callable[..., Any]) -> tuple[Closed, Arrays] | None:
        """The trace of a function that closes over arrays, and these arrays as they are in this call."""
        known = zip(self.options.closed, self.facts.get("captured", ()), strict=False)
        return next((x for x in known if x[0].fn == fn), None)

    def asked(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """A rule of the pattern, whatever it closes over."""
        found = self.closed(rule)
        return rule if found is None else lambda q, k: found[0](found[1], (q, k))

    def shown(self, row: Any, col: Any) -> Any:
        """Which pairs pattern and segments show, bool [B|1, N|1, rows, columns]."""
        seen = visible_at(self.options.pattern.asking(self.asked), self.q_positions(row), self.k_positions(col))
        if "q_ids" in self.facts:
            same = same_segment(_take(self.facts["q_ids"], row), _take(self.facts["k_ids"], col))
            seen = seen & same[:, None]
        return seen

    def shown_in(self, parts: tuple[Part, ...], row: Any, col: Any) -> Any:
        """Which pairs these parts of the pattern show, bool [B|1, 1, rows, columns]."""
        q, k = self.q_positions(row)[:, None, :, None], self.k_positions(col)[:, None, None, :]
        pattern: Any = self.options.pattern  # never a PerHead: that has no parts
        return pattern.allows_in(parts, q, k, self.asked)

    @property
    def heads(self) -> Any:
        """Which heads of the whole call these are, [1, N]."""
        return self.facts["heads"] if "heads" in self.facts else positions(self.dims.N)[None]

    def rescored(self, s: Any, row: Any, col: Any, params: Any) -> Any:
        """score_fn on scores [B, N, rows, columns]; `params` are those of the call, or tracers for them."""
        fn = self.options.score_fn
        if fn is None:
            return s
        q_pos, k_pos = self.q_positions(row)[:, None, :, None], self.k_positions(col)[:, None, None, :]
        head = self.heads[:, :, None, None]
        if (found := self.closed(fn)) is None:
            new = fn(s, q_pos, k_pos, head, params)
        else:
            arrays = found[1]._replace(floats=found[1].floats or params["captured"])
            new = found[0](arrays, (s, q_pos, k_pos, head), params["given"])
        if getattr(new, "shape", None) != s.shape:
            raise ValueError(
                f"score_fn returned {getattr(new, 'shape', type(new).__name__)}, but the scores are {s.shape}: it must "
                "work elementwise on (scores, q_pos, k_pos, head, params), which broadcast"
            )
        return new.astype(s.dtype)

    def dropout(self, row: Any, col: Any, dtype: Any) -> Any:
        """Factors [B, N, rows, columns] on the weights, or None without dropout."""
        if not self.options.dropout_rate:
            return None
        seed = self.facts["seed"][:, None, None, None]
        b, n = self.facts["b_index"][:, None, None, None], self.heads[:, :, None, None]
        if self.options.dropout_shared:
            b, n = jnp.zeros_like(b), jnp.zeros_like(n)
        i, j = self.rows_of(row)[:, None, :, None], self.columns_of(col)[:, None, None, :]
        return dropout.factor(self.options.dropout_rate, seed, b, n, i, j, dtype)


def _take(x: Any, index: Any) -> Any:
    """Columns of x [B|1, length] at index, those past the end repeating the last (callers mask them)."""
    return jnp.take(x, jnp.minimum(index, x.shape[1] - 1), axis=1)


def _any_row(call: Call, mask: Any) -> Any:
    """Which keys some row sees, bool [1 or B, S], a block of rows at a time."""
    d = call.dims
    col, rows = positions(d.S), min(ROWS, d.T)
    blocks = -(-d.T // rows)
    tall = False  # whether the mask has a row for each query
    if mask is not None and mask.shape[2] > 1:
        tall, mask = True, jnp.pad(mask, [(0, 0), (0, 0), (0, blocks * rows - d.T), (0, 0)])

    def add(i: Any, seen: Any) -> Any:
        row = i * rows + positions(rows)
        block = call.shown(row, col) & (row < d.T)[None, None, :, None]
        if mask is not None:
            block = block & (lax.dynamic_slice_in_dim(mask, i * rows, rows, 2) if tall else mask)
        return seen | jnp.any(block, axis=(1, 2))

    arrays = [x for n, x in call.facts.items() if n not in ("b_index", "captured")] + ([] if mask is None else [mask])
    batch = max({x.shape[0] for x in arrays} - {1}, default=1)  # 0 in an empty batch
    none = vary(jnp.zeros((batch, d.S), bool), call.varies)
    return lax.fori_loop(0, blocks, add, none)


def without_hidden_keys(call: Call) -> Call:
    """The call with keys and values that no query may see replaced by 0.

    NaN in padding or in unwritten cache slots then cannot reach a result (0 * NaN is NaN).
    """
    seen = seen_keys(call)
    if seen is None:
        return call
    clear = {n: jnp.where(seen[:, :, None, None], call.diff[n], jnp.zeros_like(call.diff[n])) for n in "kv"}
    return dataclasses.replace(call, diff=call.diff | clear)


def seen_keys(call: Call) -> Any:
    """Which keys some query of the call may see: bool [1 or B, S], or None if the pattern shows all."""
    d, o, facts = call.dims, call.options, call.facts
    if d.T == 0 or d.S == 0:
        return None
    mask: Any = facts.get("mask")
    if call.bias is not None:
        shown = ~jnp.isneginf(call.bias)
        mask = shown if mask is None else mask & shown
    if o.own_keys and mask is None and o.pattern.sees_itself:
        return facts["k_ids"] >= 0  # whoever is no padding sees itself
    at_run_time = o.plan_by is not None or o.pattern.has_rule or (mask is not None and mask.shape[2] > 1)
    if at_run_time or "q_ids" in facts:
        return _any_row(call, mask)
    columns = seen_columns(o.pattern, d.T, d.S, o.q_offset)
    if mask is None:
        return None if columns is None else jnp.asarray(columns)[None]
    by_mask = jnp.broadcast_to(jnp.any(mask, axis=(1, 2)), (mask.shape[0], d.S))
    return by_mask if columns is None else by_mask & jnp.asarray(columns)[None]
