"""attend: check at the door, choose a backend, run it. explain: what it would do, and why."""

import dataclasses
import difflib
import functools
import typing
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from attnjax import seam
from attnjax.backends import BACKENDS
from attnjax.call import Call, Options
from attnjax.patterns import Pattern, PerHead
from attnjax.patterns.checks import lengths
from attnjax.scores import Precision, check_precision, check_scale, check_soft_cap, matmul_precision
from attnjax.shapes import Dims, Keys, Lse, Output, Queries, Values, broadcasts, check_float, check_qkv, shown, to_rank
from attnjax.visible import check_pattern, seen_keys

SMALL = 512 * 512  # up to this many scores a head, `auto` takes dense: a loop over tiles costs more than it saves


@typing.no_type_check
def attend(
    q: Queries,
    k: Keys,
    v: Values,
    pattern: Pattern | PerHead,
    *,
    q_offset: int | None = None,
    scale: float | None = None,
    soft_cap: float | None = None,
    bias: Float[Array, "..."] | None = None,
    mask: Bool[Array, "..."] | None = None,
    precision: Precision = None,
    backend: str = "auto",
    return_lse: bool = False,
) -> Output | tuple[Output, Lse]:
    """Attention under a pattern: each query blends the values that it may look at.

    softmax(cap(q . k * scale) + bias, over visible keys) v. A key is visible if the pattern shows it and
    `mask` is True there. A query that sees no key gives 0, log-sum-exp -inf and gradient 0. Differentiable in
    every mode and order, under every backend. Vaswani et al. 2017, "Attention Is All You Need"; tiles and
    backward after Dao et al. 2022, "FlashAttention".

    Args:
        q: queries [*B, T, N, H] (with or without the batch axis, q, k and v alike).
        k: keys [*B, S, K, H]; query head n uses key head n // (N / K), so K = N is MHA, K = 1 MQA.
        v: values [*B, S, K, h].
        pattern: which key positions a query position may look at. Key row j is position j.
        q_offset: position of query row 0. None means 0 when T == S; with T != S it must be given for a pattern
            that depends on positions: S - T aligns the ends (flash-attn), 0 the starts (jax.nn).
        scale: factor on q . k; None means 1 / sqrt(H).
        soft_cap: scores become soft_cap * tanh(score / soft_cap), before bias and mask; None means no cap.
        bias: floating, broadcasts to [*B, N, T, S], added after the cap; -inf hides.
        mask: bool, broadcasts to [*B, N, T, S]; True means may look. It narrows the pattern.
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
    call, dims = _call(q, k, v, pattern, q_offset, scale, soft_cap, bias, mask, precision)
    name = choose(call, backend)[0]
    o, lse = _attend(call.q, call.k, call.v, call.bias, call.mask, call.options, name)
    o, lse = (o, lse) if dims.batched else (o[0], lse[0])
    return (o, lse) if return_lse else o


@functools.partial(jax.jit, static_argnames=("options", "backend"))
def _attend(q: Any, k: Any, v: Any, bias: Any, mask: Any, options: Options, backend: str) -> tuple[Any, Any]:
    """The call on arrays with a batch axis; jitted, so that equal options share one trace."""
    shown_by_arrays = mask
    if bias is not None:
        shown_by_arrays = ~jnp.isneginf(bias) if mask is None else mask & ~jnp.isneginf(bias)
    seen = seen_keys(options.pattern, q.shape[1], k.shape[1], options.q_offset, shown_by_arrays)
    if seen is not None:
        k, v = (jnp.where(seen[:, :, None, None], x, jnp.zeros_like(x)) for x in (k, v))
    if not BACKENDS[backend].HAS_BACKWARD:
        return BACKENDS[backend].forward(Call(options, q, k, v, bias, mask))
    diff = (q, k, v) if bias is None else (q, k, v, bias)
    return seam.run(seam.Static(options, backend), diff, mask)


def _call(
    q: Any, k: Any, v: Any, pattern: Any, q_offset: Any, scale: Any, soft_cap: Any, bias: Any, mask: Any, precision: Any
) -> tuple[Call, Dims]:
    """Everything checked, arrays with a batch axis; works on `jax.ShapeDtypeStruct` as well."""
    dims = check_qkv(q, k, v)
    check_pattern(pattern)
    if isinstance(pattern, PerHead) and len(pattern.patterns) != dims.N:
        raise ValueError(f"PerHead has {len(pattern.patterns)} patterns but q has {dims.N} heads: give one for each")
    _, _, q_offset = lengths(dims.T, dims.S, q_offset, pattern.depends_on_positions)
    options = Options(
        pattern, check_scale(scale, dims.H), q_offset, check_soft_cap(soft_cap), check_precision(precision)
    )
    if bias is not None:
        check_float(bias=bias)
    if mask is not None and getattr(mask, "dtype", None) != bool:
        what = f"has dtype {mask.dtype}" if hasattr(mask, "dtype") else f"is a {type(mask).__name__}"
        raise TypeError(f"mask {what}; a mask is a bool array, True means may look. Numbers to add: pass it as bias=")
    arrays = [_batch(x, not dims.batched) for x in (q, k, v)]
    return Call(options, *arrays, *(_score_array(n, x, dims) for n, x in (("bias", bias), ("mask", mask)))), dims


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
    scores_needed: int
    scores_computed: int
    bytes: int  # temporaries of the forward pass

    @property
    def waste(self) -> float:
        """Scores computed for each score needed."""
        return self.scores_computed / self.scores_needed if self.scores_needed else float("inf")

    def __str__(self) -> str:
        lines = [f"pattern    {self.pattern}", f"backend    {self.backend}"]
        lines += [f"  {name:<8} {why}" for name, why in self.reasons.items()]
        if self.tiles is not None and self.tile_size is not None:
            counts = ", ".join(f"{n} {state}" for state, n in self.tiles.items())
            lines.append(f"tiles      {self.tile_size[0]} x {self.tile_size[1]}: {counts} (one head)")
        lines.append(f"scores     {self.scores_needed:,} needed, {self.scores_computed:,} computed ({self.waste:.2f}x)")
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
    q_offset: int | None = None,
    scale: float | None = None,
    soft_cap: float | None = None,
    bias: Float[Array, "..."] | None = None,
    mask: Bool[Array, "..."] | None = None,
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
    call, _ = _call(q, k, v, pattern, q_offset, scale, soft_cap, bias, mask, precision)
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
