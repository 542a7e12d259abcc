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
from attnjax.score_rule import Places, ScoreArrays, ScoreRule
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
    rule: ScoreRule
    precision: Precision = None
    q_offset: int = 0  # where the call has no traced one
    dropout_rate: float = 0.0
    dropout_shared: bool = False  # one pattern of dropped scores [T, S] for all sequences and heads
    # what tiles are planned by where positions are known at run time only: a superset of the pattern
    plan_by: Pattern | PerHead | None = None
    closed: tuple[Closed, ...] = ()  # the rules of the pattern that close over arrays
    own_keys: bool = False  # row i is the query and the key of one token: self-attention with shared segment ids
    tile: tuple[int, int] | None = None  # rows and columns of a tile; None lets the backend choose
    rows_at_once: int | None = None  # rows of tiles that a visit takes together; None lets the backend choose


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Diff:
    """What is differentiated; also its tangents and cotangents."""

    q: Any  # [B, T, N, H]
    k: Any  # [B, S, K, H]
    v: Any  # [B, S, K, h]
    score: ScoreArrays = ScoreArrays()
    sink_logits: Any = None  # [B|1, N]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Facts:
    """What is not differentiated."""

    mask: Any = None  # bool [B|1, N|1, T|1, S|1]
    q_offset: Any = None  # int32 [B|1]
    q_ids: Any = None  # int32 [B|1, T]: pairs of different or negative ids are hidden
    k_ids: Any = None  # int32 [B|1, S]
    q_pos: Any = None  # positions that restart, [B|1, T]
    k_pos: Any = None  # [B|1, S]
    seed: Any = None  # of dropout, uint32 [B|1, 2]
    b_index: Any = None  # [B], which sequences of the whole call these are
    heads: Any = None  # [1, N], which heads of the whole call these are
    q_index: Any = None  # [B, T], which rows of the whole call these are, where a backend reordered them
    k_index: Any = None  # [B, S]
    num_keys: Any = None  # of the whole call, where a backend reordered rows
    of_rules: tuple[Arrays, ...] = ()  # what each of `Options.closed` reads: any shapes
    of_score_fn: Arrays = Arrays()  # what score_fn reads of arrays without derivative: any shapes


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Call:
    """One call of attention, a pytree. Arrays may be `jax.ShapeDtypeStruct` where only shapes are asked."""

    options: Options = dataclasses.field(metadata={"static": True})
    diff: Diff
    facts: Facts = Facts()

    @property
    def q(self) -> Any:
        return self.diff.q

    @property
    def k(self) -> Any:
        return self.diff.k

    @property
    def v(self) -> Any:
        return self.diff.v

    @property
    def bias(self) -> Any:
        return self.diff.score.bias

    @property
    def mask(self) -> Any:
        return self.facts.mask

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
        own = dict(of_rules=self.facts.of_rules, of_score_fn=self.facts.of_score_fn)
        facts = dataclasses.replace(vary(self.facts, self.varies), **own)
        return Call(self.options, self.varied(self.diff), facts)

    def varied(self, diff: Diff) -> Diff:
        """What is differentiated, or its tangents, as `alike` has them."""
        found = vary(diff, self.varies)
        return dataclasses.replace(found, score=dataclasses.replace(found.score, closed=diff.score.closed))

    def with_closed_as_facts(self) -> "Call":
        """The call in which the floats that score_fn closes over are differentiated no more."""
        score, known = self.diff.score, self.facts.of_score_fn
        diff = dataclasses.replace(self.diff, score=dataclasses.replace(score, closed=()))
        facts = dataclasses.replace(self.facts, of_score_fn=known._replace(floats=known.floats + score.closed))
        return Call(self.options, diff, facts)

    @property
    def scores_needed(self) -> int | None:
        """Exact number of scores over batch and heads by the pattern (arrays may hide more at run time).

        None where positions are known at run time only.
        """
        d, o = self.dims, self.options
        if o.plan_by is not None or any(isinstance(x, Tracer) for x in jax.tree.leaves(self.facts.of_rules)):
            return None
        heads = 1 if isinstance(o.pattern, PerHead) else d.N
        with jax.ensure_compile_time_eval():  # rules may close over arrays that are known inside of jax.jit too
            return d.B * heads * o.pattern.count(d.T, d.S, o.q_offset)

    # -- questions about a block of rows and columns: `row` and `col` are int32 index vectors -------------------

    def rows_of(self, row: Any) -> Any:
        """Absolute index of query rows, [B|1, rows]."""
        offset, index = self.facts.q_offset, self.facts.q_index
        rows = row[None] if index is None else _take(index, row)
        return self.options.q_offset + rows if offset is None else offset[:, None] + rows

    def columns_of(self, col: Any) -> Any:
        """Absolute index of key rows, [B|1, columns]."""
        return col[None] if self.facts.k_index is None else _take(self.facts.k_index, col)

    def q_positions(self, row: Any) -> Any:
        """Positions of query rows for the pattern, [B|1, rows]."""
        return self.rows_of(row) if self.facts.q_pos is None else _take(self.facts.q_pos, row)

    def k_positions(self, col: Any) -> Any:
        """Positions of key rows for the pattern, [B|1, columns]."""
        return self.columns_of(col) if self.facts.k_pos is None else _take(self.facts.k_pos, col)

    def asked(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """A rule of the pattern, whatever it closes over."""
        known = zip(self.options.closed, self.facts.of_rules, strict=True)
        found = next((x for x in known if x[0].fn == rule), None)
        return rule if found is None else lambda q, k: found[0](found[1], (q, k))

    def shown(self, row: Any, col: Any) -> Any:
        """Which pairs pattern and segments show, bool [B|1, N|1, rows, columns]."""
        seen = visible_at(self.options.pattern.asking(self.asked), self.q_positions(row), self.k_positions(col))
        if self.facts.q_ids is not None:
            same = same_segment(_take(self.facts.q_ids, row), _take(self.facts.k_ids, col))
            seen = seen & same[:, None]
        return seen

    def seen(self, row: Any, col: Any, mask: Any, bias: Any) -> Any:
        """Which pairs pattern, segments, and a mask and a bias cut to them show, bool [B|1, N|1, rows, columns]."""
        seen = self.shown(row, col)
        seen = seen if mask is None else seen & mask
        return seen if bias is None else seen & ~jnp.isneginf(bias)

    def shown_in(self, parts: tuple[Part, ...], row: Any, col: Any) -> Any:
        """Which pairs these parts of the pattern show, bool [B|1, 1, rows, columns]."""
        q, k = self.q_positions(row)[:, None, :, None], self.k_positions(col)[:, None, None, :]
        pattern: Any = self.options.pattern  # never a PerHead: that has no parts
        return pattern.allows_in(parts, q, k, self.asked)

    @property
    def heads(self) -> Any:
        """Which heads of the whole call these are, [1, N]."""
        return positions(self.dims.N)[None] if self.facts.heads is None else self.facts.heads

    def places(self, row: Any, col: Any) -> Places:
        """Where the scores of these rows and columns stand."""
        q, k = self.q_positions(row)[:, None, :, None], self.k_positions(col)[:, None, None, :]
        return Places(q, k, self.heads[:, :, None, None])

    def scores(self, dots: Any, row: Any, col: Any, arrays: ScoreArrays) -> Any:
        """The score rule on q . k * scale [B, N, rows, columns]; the bias among the arrays is cut to these."""
        return self.options.rule(dots, lambda: self.places(row, col), arrays, self.facts.of_score_fn)

    def dropout(self, row: Any, col: Any, dtype: Any) -> Any:
        """Factors [B, N, rows, columns] on the weights, or None without dropout."""
        if not self.options.dropout_rate:
            return None
        seed = self.facts.seed[:, None, None, None]
        b, n = self.facts.b_index[:, None, None, None], self.heads[:, :, None, None]
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

    f = call.facts
    known = (f.q_offset, f.q_ids, f.k_ids, f.q_pos, f.k_pos, f.q_index, f.k_index, mask)
    batch = max({x.shape[0] for x in known if x is not None} - {1}, default=1)  # 0 in an empty batch
    none = vary(jnp.zeros((batch, d.S), bool), call.varies)
    return lax.fori_loop(0, blocks, add, none)


def without_hidden_keys(call: Call) -> Call:
    """The call with keys and values that no query may see replaced by 0.

    NaN in padding or in unwritten cache slots then cannot reach a result (0 * NaN is NaN).
    """
    seen = seen_keys(call)
    if seen is None:
        return call
    k, v = (jnp.where(seen[:, :, None, None], x, jnp.zeros_like(x)) for x in (call.k, call.v))
    return dataclasses.replace(call, diff=dataclasses.replace(call.diff, k=k, v=v))


def seen_keys(call: Call) -> Any:
    """Which keys some query of the call may see: bool [1 or B, S], or None if the pattern shows all."""
    d, o, facts = call.dims, call.options, call.facts
    if d.T == 0 or d.S == 0:
        return None
    mask: Any = facts.mask
    if call.bias is not None:
        shown = ~jnp.isneginf(call.bias)
        mask = shown if mask is None else mask & shown
    if o.own_keys and mask is None and o.pattern.sees_itself:
        return facts.k_ids >= 0  # whoever is no padding sees itself
    at_run_time = o.plan_by is not None or o.pattern.has_rule or (mask is not None and mask.shape[2] > 1)
    if at_run_time or facts.q_ids is not None:
        return _any_row(call, mask)
    columns = seen_columns(o.pattern, d.T, d.S, o.q_offset)
    if mask is None:
        return None if columns is None else jnp.asarray(columns)[None]
    by_mask = jnp.broadcast_to(jnp.any(mask, axis=(1, 2)), (mask.shape[0], d.S))
    return by_mask if columns is None else by_mask & jnp.asarray(columns)[None]
