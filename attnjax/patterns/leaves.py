"""The rules that patterns are made of. A new rule is one class here and one constructor in `shipped.py`.

A leaf answers in two ways. `allows` is the rule itself, elementwise. For everything exact (counts, tiles) a
leaf also says where its rule changes: `cuts` lists thresholds of d = q - k, of k and of q, and between these
its answer is a constant or one `Atom` (periodic in d, blocks of positions, or an opaque function).
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from attnjax.patterns.checks import LARGEST


class Atom(NamedTuple):
    """A fact about (q, k) that no threshold decides.

    kind "step": (q - k) % size == 0. kind "block": q // size == k // size. kind "rule": fn(q, k).
    """

    kind: str
    size: int = 0
    fn: Any = None

    def asking(self, given: Callable[[Any], Any]) -> "Atom":
        """The same fact with given(fn) in place of its function."""
        return self if self.fn is None else self._replace(fn=given(self.fn))

    def holds(self, q: Any, k: Any) -> Any:
        """Whether it is a fact, elementwise (of a block where k <= q)."""
        if self.kind == "step":
            return (q - k) % self.size == 0
        if self.kind == "block":
            return k >= q - q % self.size  # where q's block starts
        visible = self.fn(q, k)
        if isinstance(q, np.ndarray) or not hasattr(visible, "dtype"):
            visible = self._known(visible)
        if visible.dtype != np.bool_:
            raise TypeError(f"the rule {_name(self.fn)} of a Where returned {visible.dtype}; it must return bools")
        return visible

    def _known(self, visible: Any) -> np.ndarray:
        """What the rule says of positions that are known."""
        try:
            return np.asarray(visible)
        except TypeError:  # JAX's, of a traced array
            raise TypeError(
                f"the rule {_name(self.fn)} of a Where gives a traced array even for known positions: it computes with "
                "JAX arrays inside of jax.jit, grad or vmap. attend takes it there; mask, count and pictures ask it in "
                "NumPy: call them outside"
            ) from None


def _name(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__qualname__", repr(fn))


class Cuts(NamedTuple):
    """Thresholds: the leaf's answer may change where d, k or q reaches one of these values."""

    d: tuple[int, ...] = ()
    k: tuple[int, ...] = ()
    q: tuple[int, ...] = ()


class Corner(NamedTuple):
    """Smallest d, k and q of a cell that no cut crosses."""

    d: int
    k: int
    q: int


@dataclasses.dataclass(frozen=True)
class Leaf:
    """Base of all rules. Subclasses are frozen dataclasses of ints."""

    name: ClassVar[str]
    order: ClassVar[int]  # place in the normal form's text

    def allows(self, q: Any, k: Any) -> Any:
        raise NotImplementedError

    def cuts(self) -> Cuts:
        raise NotImplementedError

    def atom(self) -> Atom | None:
        return None

    def at(self, corner: Corner) -> bool | Atom:
        """The answer inside the cell with this corner: True, False or the leaf's atom."""
        raise NotImplementedError

    def meet(self, other: Any) -> "Leaf | None":
        """self & other as one leaf of the same class, or None."""
        return None

    def join(self, other: Any) -> "Leaf | None":
        """self | other as one leaf of the same class, or None."""
        return None

    def text(self) -> tuple[str, tuple[str, ...]]:
        """Name and arguments, as in the pattern language."""
        return self.name, tuple(str(getattr(self, f.name)).lower() for f in dataclasses.fields(self))

    def sort_key(self) -> tuple[Any, ...]:
        return (self.order, *(math.inf if v is None else v for v in vars(self).values()))


@dataclasses.dataclass(frozen=True)
class Band(Leaf):
    """-right <= q - k <= left; None is unbounded."""

    left: int | None
    right: int | None
    name = "band"
    order = 0

    def allows(self, q, k):
        d = q - k
        inside = d == d
        if self.left is not None:
            inside = inside & (d <= self.left)
        if self.right is not None:
            inside = inside & (d >= -self.right)
        return inside

    def cuts(self):
        return Cuts(d=(() if self.right is None else (-self.right,)) + (() if self.left is None else (self.left + 1,)))

    def at(self, corner):
        return (self.right is None or corner.d >= -self.right) and (self.left is None or corner.d <= self.left)

    def _bounds(self) -> tuple[int | float, int | float]:
        return (-math.inf if self.right is None else -self.right, math.inf if self.left is None else self.left)

    @staticmethod
    def _of(low: int | float, high: int | float) -> "Band":
        return Band(None if high == math.inf else int(high), None if low == -math.inf else int(-low))

    def meet(self, other):
        (a, b), (c, d) = self._bounds(), other._bounds()
        low, high = max(a, c), min(b, d)
        return self._of(low, high)  # both contain d = 0, so the meet does too

    def join(self, other):
        (a, b), (c, d) = self._bounds(), other._bounds()
        return self._of(min(a, c), max(b, d))  # both contain d = 0, so the join has no gap

    def text(self):
        if (self.left, self.right) == (None, None):
            return "full", ()
        if (self.left, self.right) == (None, 0):
            return "causal", ()
        if self.right == 0:
            return "window", (str(self.left + 1),)  # type: ignore[operator]  # left None was answered above
        return super().text()


@dataclasses.dataclass(frozen=True)
class Sink(Leaf):
    """k < n and k <= q."""

    n: int
    name = "sink"
    order = 1

    def allows(self, q, k):
        return (k < self.n) & (k <= q)

    def cuts(self):
        return Cuts(d=(0,), k=(self.n,))

    def at(self, corner):
        return corner.d >= 0 and corner.k < self.n

    def meet(self, other):
        return Sink(min(self.n, other.n))

    def join(self, other):
        return Sink(max(self.n, other.n))


@dataclasses.dataclass(frozen=True)
class Prefix(Leaf):
    """k <= q, or both inside the first n positions."""

    n: int
    name = "prefix"
    order = 2

    def allows(self, q, k):
        return (k <= q) | ((q >= 0) & (q < self.n) & (k < self.n))

    def cuts(self):
        return Cuts(d=(0,), k=(self.n,), q=(0, self.n))

    def at(self, corner):
        return corner.d >= 0 or (0 <= corner.q < self.n and corner.k < self.n)

    def meet(self, other):
        return Prefix(min(self.n, other.n))

    def join(self, other):
        return Prefix(max(self.n, other.n))


@dataclasses.dataclass(frozen=True)
class Strided(Leaf):
    """(q - k) % stride == 0 and k <= q."""

    stride: int
    name = "strided"
    order = 3

    def allows(self, q, k):
        return self.atom().holds(q, k) & (k <= q)

    def cuts(self):
        return Cuts(d=(0,))

    def atom(self):
        return Atom("step", self.stride)

    def at(self, corner):
        return corner.d >= 0 and self.atom()

    def meet(self, other):
        both = math.lcm(self.stride, other.stride)
        return Strided(both) if both <= LARGEST else None

    def join(self, other):
        small, large = sorted((self.stride, other.stride))
        return Strided(small) if large % small == 0 else None


@dataclasses.dataclass(frozen=True)
class Chunked(Leaf):
    """q // size == k // size and k <= q."""

    size: int
    name = "chunked"
    order = 4

    def allows(self, q, k):
        return self.atom().holds(q, k) & (k <= q)

    def cuts(self):
        return Cuts(d=(0, self.size))

    def atom(self):
        return Atom("block", self.size)

    def at(self, corner):
        return 0 <= corner.d < self.size and self.atom()

    def meet(self, other):
        small, large = sorted((self.size, other.size))
        return Chunked(small) if large % small == 0 else None

    def join(self, other):
        small, large = sorted((self.size, other.size))
        return Chunked(large) if large % small == 0 else None


@dataclasses.dataclass(frozen=True)
class Where(Leaf):
    """fn(q, k), elementwise; with future=False also k <= q."""

    fn: Callable[..., Any]
    future: bool
    name = "where"
    order = 5

    def allows(self, q, k):
        visible = self.atom().holds(q, k)
        return visible if self.future else visible & (k <= q)

    def cuts(self):
        return Cuts() if self.future else Cuts(d=(0,))

    def atom(self):
        return Atom("rule", fn=self.fn)

    def at(self, corner):
        return (self.future or corner.d >= 0) and self.atom()

    def text(self):
        name = _name(self.fn)
        return self.name, (name,) if self.future else (name, "sees_future=False")

    def sort_key(self):
        return (self.order, getattr(self.fn, "__module__", "") or "", self.text()[1], id(self.fn))
