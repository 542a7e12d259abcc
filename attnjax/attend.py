"""attend: check at the door, choose a backend, run it. explain: what it would do, and why."""

import dataclasses
import difflib
import functools
import typing
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from attnjax import seam
from attnjax.backends import BACKENDS
from attnjax.call import Call, Options, seen_keys
from attnjax.dropout import check_rate, seed_of
from attnjax.patterns import Full, Pattern, PerHead
from attnjax.scores import Precision, check_precision, check_scale, check_soft_cap, matmul_precision
from attnjax.shapes import Dims, Keys, Lse, Output, Queries, Values, broadcasts, check_float, check_qkv, shown, to_rank
from attnjax.segments import Segments
from attnjax.visible import check_pattern, place_rows, positions

SMALL = 512 * 512  # up to this many scores a head, `auto` takes dense: a loop over tiles costs more than it saves


@typing.no_type_check
def attend(
    q: Queries,
    k: Keys,
    v: Values,
    pattern: Pattern | PerHead,
    *,
    q_offset: int | Int[Array, "*B"] | None = None,
    scale: float | None = None,
    soft_cap: float | None = None,
    bias: Float[Array, "..."] | None = None,
    mask: Bool[Array, "..."] | None = None,
    sink_logits: Float[Array, "N"] | None = None,
    segments: Segments | None = None,
    score_fn: Callable[..., Any] | None = None,
    score_params: Any = None,
    dropout_rate: float = 0.0,
    dropout_key: Array | None = None,
    precision: Precision = None,
    backend: str = "auto",
    return_lse: bool = False,
) -> Output | tuple[Output, Lse]:
    """Attention under a pattern: each query blends the values that it may look at.

    softmax(score_fn(cap(q . k * scale)) + bias, over visible keys) v. A key is visible if the pattern shows it,
    `segments` put it in the query's segment and `mask` is True there. A query that sees no key gives 0, log-sum-exp -inf and gradient 0. Differentiable in
    every mode and order, under every backend. Vaswani et al. 2017, "Attention Is All You Need"; tiles and
    backward after Dao et al. 2022, "FlashAttention".

    Args:
        q: queries [*B, T, N, H] (with or without the batch axis, q, k and v alike).
        k: keys [*B, S, K, H]; query head n uses key head n // (N / K), so K = N is MHA, K = 1 MQA.
        v: values [*B, S, K, h].
        pattern: which key positions a query position may look at. Key row j is position j.
        q_offset: position of query row 0. None means 0 when T == S; with T != S it must be given for a pattern
            that depends on positions: S - T aligns the ends (flash-attn), 0 the starts (jax.nn). An int plans
            the tiles exactly; an integer array (one, or [B]) may be traced and is one program for all values.
        scale: factor on q . k; None means 1 / sqrt(H).
        soft_cap: scores become soft_cap * tanh(score / soft_cap), before bias and mask; None means no cap.
        bias: floating, broadcasts to [*B, N, T, S], added after the cap; -inf hides.
        mask: bool, broadcasts to [*B, N, T, S]; True means may look. It narrows the pattern.
        sink_logits: [N], one learned logit per head that joins the softmax without a value (gpt-oss 2025);
            neither scaled nor capped. Rows then sum to less than 1, and the log-sum-exp includes it.
        segments: packed documents, padding or lengths (see `Segments`); they narrow the pattern.
        score_fn: score_fn(s, q_pos, k_pos, head, score_params) -> new scores, elementwise on arrays that
            broadcast to [B, N, T, S]; after the cap, before the bias. Define it once, at module level: it is
            compared by identity. ALiBi: Press et al. 2022.
        score_params: arrays for `score_fn`, any tree; differentiable.
        dropout_rate: share of the weights that is dropped, in [0, 1). Independent for every score, the same in
            every backend for the same key.
        dropout_key: a JAX key; needed when `dropout_rate` is above 0.
        precision: of the matrix products; None means HIGHEST with float32 inputs, DEFAULT with 16-bit ones.
        backend: "auto", or one of the names that `explain` lists.
        return_lse: also return the log-sum-exp of each row's scores.

    Returns:
        [*B, T, N, h] in q's dtype; with `return_lse` also [*B, T, N] in float32 (float64 for float64 inputs).

    Raises:
        TypeError: for an array, pattern or option of the wrong type.
        ValueError: for shapes that do not fit, an option out of range, an unknown backend or one that
            cannot run the call (the message says why and which can).

    Example:
        >>> import attnjax as aj, jax.numpy as jnp
        >>> q, k, v = (jnp.ones((2, 16, n, 8)) for n in (4, 2, 2))  # 4 query heads share 2 key heads
        >>> aj.attend(q, k, v, aj.Window(4) | aj.Sink(1)).shape
        (2, 16, 4, 8)
    """
    call, dims = _call(
        q, k, v, pattern, q_offset, scale, soft_cap, bias, mask, sink_logits, segments, score_fn, score_params,
        dropout_rate, dropout_key, precision,
    )  # fmt: skip
    o, lse = _attend(call.diff, call.facts, call.options, choose(call, backend)[0])
    o, lse = (o, lse) if dims.batched else (o[0], lse[0])
    return (o, lse) if return_lse else o


@functools.partial(jax.jit, static_argnames=("options", "backend"))
def _attend(diff: Any, facts: Any, options: Options, backend: str) -> tuple[Any, Any]:
    """The call on arrays with a batch axis; jitted, so that equal options share one trace."""
    seen = seen_keys(Call(options, diff, facts))
    if seen is not None:
        hide = lambda x: jnp.where(seen[:, :, None, None], x, jnp.zeros_like(x))  # noqa: E731  # a local shorthand
        diff = diff | {"k": hide(diff["k"]), "v": hide(diff["v"])}
    if not BACKENDS[backend].HAS_BACKWARD:
        return BACKENDS[backend].forward(Call(options, diff, facts))
    return seam.run(seam.Static(options, backend), diff, facts)


def _call(
    q: Any, k: Any, v: Any, pattern: Any, q_offset: Any = None, scale: Any = None, soft_cap: Any = None,
    bias: Any = None, mask: Any = None, sink_logits: Any = None, segments: Any = None, score_fn: Any = None,
    score_params: Any = None, dropout_rate: Any = 0.0, dropout_key: Any = None, precision: Any = None,
) -> tuple[Call, Dims]:  # fmt: skip
    """Everything checked, arrays with a batch axis; works on `jax.ShapeDtypeStruct` as well."""
    dims = check_qkv(q, k, v)
    check_pattern(pattern)
    if isinstance(pattern, PerHead) and len(pattern.patterns) != dims.N:
        raise ValueError(f"PerHead has {len(pattern.patterns)} patterns but q has {dims.N} heads: give one for each")
    place, static = _place(pattern, dims, q_offset, segments)
    if score_fn is None and score_params is not None:
        raise ValueError("score_params are given but score_fn is None: nothing would read them")
    if score_fn is not None and not callable(score_fn):
        raise TypeError(f"score_fn={score_fn!r} cannot be called; it is score_fn(s, q_pos, k_pos, head, params)")
    rate = check_rate(dropout_rate, dropout_key)
    options = Options(
        pattern, check_scale(scale, dims.H), soft_cap=check_soft_cap(soft_cap),
        precision=check_precision(precision), score_fn=score_fn, dropout_rate=rate, **static,
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
        check_float(**{f"score_params{jax.tree_util.keystr(p)}": x for p, x in jax.tree_util.tree_leaves_with_path(score_params)})
        diff["score_params"] = score_params
    facts = place
    if mask is not None:
        if getattr(mask, "dtype", None) != bool:
            what = f"has dtype {mask.dtype}" if hasattr(mask, "dtype") else f"is a {type(mask).__name__}"
            raise TypeError(f"mask {what}; a mask is a bool array, True means may look. Numbers to add: pass it as bias=")
        facts["mask"] = _score_array("mask", mask, dims)
    if rate:
        facts |= {"seed": seed_of(dropout_key), "b_index": positions(dims.B)}
    return Call(options, diff, facts), dims


def _place(pattern: Any, dims: Dims, q_offset: Any, segments: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what positions are known at run time, what is known now) of a call."""
    _, _, place = place_rows(pattern, dims.T, dims.S, q_offset, segments, dims.B)
    if "q_pos" in place:
        del place["q_offset"]
        shared = segments.k_ids is None
        return place, {"plan_by": pattern.hull() if shared else Full()}
    if isinstance(place["q_offset"], int):
        return place, {"q_offset": place.pop("q_offset")}
    return place, {"plan_by": Full()} if pattern.depends_on_positions else {}


def _batch(x: Any, add: bool) -> Any:
    """The array with a batch axis; shapes alone stay shapes."""
    if isinstance(x, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct((1, *x.shape), x.dtype) if add else x
    x = jnp.asarray(x)
    return x[None] if add else x


def _score_array(name: str, x: Any, dims: Dims) -> Any:
    """bias or mask with the four axes [B|1, N|1, T|1, S|1]."""
    if x is None:
        return None
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


def choose(call: Call, backend: str) -> tuple[str, dict[str, str]]:
    """(name of the backend, reason for each backend); a named backend that cannot run raises.

    Raises:
        ValueError: for an unknown name, or a backend that cannot run the call.
    """
    usable = {name: module.why_not(call) for name, module in BACKENDS.items()}
    names = ", ".join(["'auto'", *(repr(n) for n, why in usable.items() if why is None)])
    if backend != "auto":
        if backend not in BACKENDS:
            near = difflib.get_close_matches(str(backend), ["auto", *BACKENDS], 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"backend={backend!r} is unknown; usable here: {names}.{hint}")
        if usable[backend] is not None:
            raise ValueError(f"backend={backend!r} cannot run this call: {usable[backend]}; usable here: {names}")
    d = call.dims
    small = d.T * d.S <= SMALL
    best = "dense" if small else next(n for n, why in usable.items() if why is None)
    chosen = best if backend == "auto" else backend
    size = f"T x S = {d.T} x {d.S} is {'at most' if small else 'over'} {SMALL} scores"
    reasons = {}
    for name, why in usable.items():
        if name == chosen:
            reasons[name] = f"chosen: {'named by the caller' if backend != 'auto' else size}"
        else:
            reasons[name] = f"cannot run: {why}" if why else f"can run; {size}, where auto takes {best}"
    return chosen, reasons


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What `attend` does with a call. Scores are over batch and heads; bytes are an estimate."""

    backend: str
    reasons: dict[str, str]
    pattern: str
    precision: str
    tile_size: tuple[int, int] | None
    tiles: dict[str, int] | None  # for one head
    scores_needed: int | None  # None where positions are known at run time only
    scores_computed: int
    bytes: int  # temporaries of the forward pass

    @property
    def waste(self) -> float:
        """Scores computed for each score needed; NaN where those needed are not known."""
        if self.scores_needed is None:
            return float("nan")
        return self.scores_computed / self.scores_needed if self.scores_needed else float("inf")

    def __str__(self) -> str:
        lines = [f"pattern    {self.pattern}", f"backend    {self.backend}"]
        lines += [f"  {name:<8} {why}" for name, why in self.reasons.items()]
        if self.tiles is not None and self.tile_size is not None:
            counts = ", ".join(f"{n} {state}" for state, n in self.tiles.items())
            lines.append(f"tiles      {self.tile_size[0]} x {self.tile_size[1]}: {counts} (one head)")
        needed = "as positions say at run time" if self.scores_needed is None else f"{self.scores_needed:,} needed"
        waste = "" if self.scores_needed is None else f" ({self.waste:.2f}x)"
        lines.append(f"scores     {needed}, {self.scores_computed:,} computed{waste}")
        lines.append(f"memory     about {self.bytes / 2**20:,.1f} MiB of temporaries")
        lines.append(f"precision  {self.precision} matrix products")
        return "\n".join(lines)


@typing.no_type_check
def explain(
    q: Queries,
    k: Keys,
    v: Values,
    pattern: Pattern | PerHead,
    *,
    q_offset: int | Int[Array, "*B"] | None = None,
    scale: float | None = None,
    soft_cap: float | None = None,
    bias: Float[Array, "..."] | None = None,
    mask: Bool[Array, "..."] | None = None,
    sink_logits: Float[Array, "N"] | None = None,
    segments: Segments | None = None,
    score_fn: Callable[..., Any] | None = None,
    score_params: Any = None,
    dropout_rate: float = 0.0,
    dropout_key: Array | None = None,
    precision: Precision = None,
    backend: str = "auto",
) -> Explanation:
    """What `attend` would do with the same arguments: backend and reasons, tiles, scores, memory.

    Nothing is computed; arrays may be `jax.ShapeDtypeStruct`. Print it, or read its fields.

    Raises:
        TypeError, ValueError: as `attend` would.

    Example:
        >>> import attnjax as aj, jax, jax.numpy as jnp
        >>> x = jax.ShapeDtypeStruct((1, 4096, 8, 64), jnp.float32)
        >>> why = aj.explain(x, x, x, aj.Window(256))
        >>> why.backend, why.tiles, round(why.waste, 2)
        ('tiled', {'empty': 931, 'partial': 62, 'full': 31}, 1.5)
    """
    call, _ = _call(
        q, k, v, pattern, q_offset, scale, soft_cap, bias, mask, sink_logits, segments, score_fn, score_params,
        dropout_rate, dropout_key, precision,
    )  # fmt: skip
    name, reasons = choose(call, backend)
    work = BACKENDS[name].work(call)
    return Explanation(
        backend=name,
        reasons=reasons,
        pattern=str(pattern),
        precision=matmul_precision(precision, call.q, call.k, call.v).name,
        tile_size=work["tile_size"],
        tiles=work["tiles"],
        scores_needed=call.scores_needed,
        scores_computed=work["scores"],
        bytes=work["bytes"],
    )
