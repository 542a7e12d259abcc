"""explain: what attend would do with a call, and why."""

import dataclasses
import typing
from typing import Unpack

from attnjax import notebook
from attnjax.backends import BACKENDS, choose
from attnjax.backends.base import default_target
from attnjax.door import bind
from attnjax.options import AttendOptions, check_names
from attnjax.patterns import Pattern, PerHead
from attnjax.plan import Plan
from attnjax.scores import matmul_precision
from attnjax.shapes import Keys, Queries, Values


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What `attend` does with a call. Scores are over batch and heads; bytes are an estimate."""

    backend: str
    reasons: dict[str, str]
    pattern: str
    precision: str
    walks: tuple[str, ...]  # how each part of the pattern is walked through; empty for a backend without tiles
    tiles: dict[str, int] | None  # visits with and without a mask ("partial", "full"), for one head
    scores_needed: int | None  # None where positions are known at run time only
    scores_computed: int
    bytes: int  # temporaries of the forward pass
    T: int
    S: int
    plans: tuple[tuple[tuple[int, ...], Plan], ...] = dataclasses.field(repr=False)  # (heads, their plan)

    _repr_html_ = notebook.html

    @property
    def waste(self) -> float:
        """Scores computed for each score needed; NaN where those needed are not known."""
        if self.scores_needed is None:
            return float("nan")
        return self.scores_computed / self.scores_needed if self.scores_needed else float("inf")

    def __str__(self) -> str:
        lines = [f"pattern    {self.pattern}", f"backend    {self.backend}"]
        lines += [f"  {name:<8} {why}" for name, why in self.reasons.items()]
        if self.tiles is not None:
            counts = ", ".join(f"{n} {state}" for state, n in self.tiles.items())
            lines.append(f"tiles      {counts} (one head)")
            lines += [f"  {walk}" for walk in self.walks]
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
    backend: str = "auto",
    **options: Unpack[AttendOptions],
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
        ('tiled', {'full': 0, 'partial': 64}, 1.29)
    """
    check_names(options, AttendOptions, "explain", ("backend",))
    (call, _), target = bind(q, k, v, pattern, **options), default_target()
    name, reasons = choose(call, backend, target)
    work = BACKENDS[name].work(call, target)
    return Explanation(
        backend=name,
        reasons=reasons,
        pattern=str(pattern),
        precision=matmul_precision(call.options.precision, call.q, call.k, call.v).name,
        walks=work.walks,
        tiles=work.tiles,
        scores_needed=call.scores_needed,
        scores_computed=work.scores,
        bytes=work.bytes,
        T=call.dims.T,
        S=call.dims.S,
        plans=work.plans,
    )
