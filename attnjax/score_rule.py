"""The score rule: what becomes of q . k * scale before the softmax. One object, which every backend asks."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from attnjax.captures import Arrays, Closed
from attnjax.scores import capped, check_scale, check_soft_cap


class Places(NamedTuple):
    """Where scores stand: int32 arrays that broadcast with scores [B, N, rows, columns]."""

    q: Any
    k: Any
    head: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ScoreArrays:
    """What the rule reads; differentiable.

    The bias lies as the scores do, [B|1, N|1, T|1, S|1], and is cut with them; all else is read whole, and may be
    indexed by positions and heads.
    """

    bias: Any = None
    params: Any = None  # of score_fn, any tree
    closed: tuple[Any, ...] = ()  # floats that score_fn closes over

    def cut(self, bias: Callable[[Any], Any], whole: Callable[[Any], Any]) -> "ScoreArrays":
        """The bias through one function, every other array through another."""
        others = jax.tree.map(whole, dataclasses.replace(self, bias=None))
        return others if self.bias is None else dataclasses.replace(others, bias=bias(self.bias))


@dataclasses.dataclass(frozen=True)
class ScoreRule:
    """Static: equal rules share one trace. The order is scale, soft cap, score_fn, bias."""

    scale: float
    soft_cap: float | None = None
    score_fn: Callable[..., Any] | None = None
    closed: Closed | None = None  # the trace of score_fn, if it closes over arrays

    @property
    def options(self) -> dict[str, Any]:
        """As `attend` takes them."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "closed"}

    @property
    def only_scales(self) -> bool:
        """Whether nothing but a bias may follow the product."""
        return self.soft_cap is None and self.score_fn is None

    def __call__(self, dots: Any, at: Callable[[], Places], arrays: ScoreArrays, fixed: Arrays) -> Any:
        """Scores of q . k * scale [B, N, rows, columns], elementwise; a bias of -inf hides whatever the score is.

        Args:
            dots: float32 or float64.
            at: gives the places, where they are asked for.
            arrays: what the rule reads, the bias as it lies here.
            fixed: arrays that score_fn closes over and that have no derivative.

        Raises:
            ValueError: if score_fn is not elementwise.
        """
        s = capped(dots, self.soft_cap)
        if self.score_fn is not None:
            s = self._rescored(s, at(), arrays, fixed)
        if arrays.bias is None:
            return s
        bias = arrays.bias.astype(s.dtype)
        return jnp.where(jnp.isneginf(bias), -jnp.inf, s + bias)

    def _rescored(self, s: Any, at: Places, arrays: ScoreArrays, fixed: Arrays) -> Any:
        if self.closed is None:
            new = self.score_fn(s, *at, arrays.params)  # type: ignore[misc]  # asked only where there is one
        else:
            new = self.closed(fixed._replace(floats=fixed.floats or arrays.closed), (s, *at), arrays.params)
        if getattr(new, "shape", None) != s.shape:
            raise ValueError(
                f"score_fn returned {getattr(new, 'shape', type(new).__name__)}, but the scores are {s.shape}: it must "
                "work elementwise on (scores, q_pos, k_pos, head, params), which broadcast"
            )
        return new.astype(s.dtype)


def rule_of(options: Mapping[str, Any], head_size: int, dtype: Any) -> ScoreRule:
    """The rule that `RuleOptions` ask for, checked; what score_fn closes over is not looked at.

    Raises:
        TypeError: if an option has the wrong type.
        ValueError: if `dtype`, in which scores are computed, does not hold a number.
    """
    score_fn = options.get("score_fn")
    if score_fn is not None and not callable(score_fn):
        raise TypeError(f"score_fn={score_fn!r} cannot be called; it is score_fn(s, q_pos, k_pos, head, params)")
    scale = check_scale(options.get("scale"), head_size, dtype)
    return ScoreRule(scale, check_soft_cap(options.get("soft_cap"), dtype=dtype), score_fn)
