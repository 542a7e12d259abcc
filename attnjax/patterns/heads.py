"""PerHead: a pattern for each query head."""

import functools
import typing
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from attnjax import notebook
from attnjax.patterns.base import Pattern, tile_states
from attnjax.patterns.checks import integer, lengths
from attnjax.patterns.slots import Slots, slots
from attnjax.patterns.tile import Tile


class PerHead:
    """One pattern for each query head. Operators distribute over the heads; there is no nesting.

    Args:
        patterns: the heads' patterns in order, at least one.

    Raises:
        TypeError: if an item is not a pattern.
        ValueError: if there is none.

    Example:
        >>> import attnjax as aj
        >>> heads = aj.PerHead((aj.Window(2), aj.Causal()))
        >>> heads.count(4), heads.mask(4).shape, str(heads & aj.Sink(1))
        (17, (2, 4, 4), 'perhead(window(2) & sink(1), causal() & sink(1))')
    """

    __slots__ = ("patterns",)
    patterns: tuple[Pattern, ...]

    @typing.no_type_check
    def __init__(self, patterns: Iterable[Pattern]) -> None:
        if isinstance(patterns, Pattern):
            raise TypeError(f"PerHead takes a tuple of patterns, one per query head, got the pattern {patterns}")
        patterns = tuple(patterns)
        if not patterns:
            raise ValueError("PerHead(()) has no heads: give one pattern per query head")
        for i, p in enumerate(patterns):
            if isinstance(p, PerHead):
                raise TypeError(f"head {i} is a PerHead: PerHead does not nest; list the patterns themselves")
            if not isinstance(p, Pattern):
                hint = f"; write aj.parse({p!r})" if isinstance(p, str) else ""
                raise TypeError(f"head {i} is a {type(p).__name__}, not a pattern{hint}")
        object.__setattr__(self, "patterns", patterns)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"patterns are frozen: cannot set {name!r}; build a new PerHead instead")

    def __reduce__(self) -> tuple[Any, ...]:
        return PerHead, (self.patterns,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PerHead) and self.patterns == other.patterns

    def __hash__(self) -> int:
        return hash((PerHead, self.patterns))

    def __str__(self) -> str:
        return f"perhead({', '.join(map(str, self.patterns))})"

    def __repr__(self) -> str:
        return f"<pattern {self}>"

    _repr_html_ = notebook.html

    def __bool__(self) -> bool:
        raise TypeError(f"a pattern has no truth value: write `&`, `|`, `~` (not `and`, `or`, `not`) with {self}")

    def _each(self, other: object, op: Callable[[Pattern, Pattern], Pattern]) -> "PerHead":
        if isinstance(other, PerHead):
            if len(other.patterns) != len(self.patterns):
                raise ValueError(
                    f"PerHead of {len(self.patterns)} heads and PerHead of {len(other.patterns)} heads do not "
                    "combine: both must have the same number of heads"
                )
            return PerHead(op(a, b) for a, b in zip(self.patterns, other.patterns, strict=True))
        if isinstance(other, Pattern):
            return PerHead(op(a, other) for a in self.patterns)
        return NotImplemented

    def __and__(self, other: object) -> "PerHead":
        return self._each(other, lambda a, b: a & b)

    def __or__(self, other: object) -> "PerHead":
        return self._each(other, lambda a, b: a | b)

    __rand__ = __and__
    __ror__ = __or__

    def __invert__(self) -> "PerHead":
        return PerHead(~p for p in self.patterns)

    @property
    def sees_future(self) -> bool:
        """Whether any head may look at a later key."""
        return any(p.sees_future for p in self.patterns)

    @property
    def sees_itself(self) -> bool:
        """Whether in some head every query may look at its own key."""
        return any(p.sees_itself for p in self.patterns)

    def hull(self) -> Pattern:
        """The band that holds every head's hull."""
        hulls = [p.hull() for p in self.patterns]
        return functools.reduce(Pattern.__or__, hulls)

    @typing.no_type_check
    def slots(self, max_length: int) -> Slots:
        """What a cache keeps: whatever any head needs, see `Pattern.slots`."""
        return slots(tuple(dict.fromkeys(p._expr for p in self.patterns)), integer("max_length", max_length, 1))

    def union(self) -> Pattern:
        """What any head may see; a ValueError if that is too large for one pattern."""
        return functools.reduce(Pattern.__or__, self.patterns)

    @property
    def depends_on_positions(self) -> bool:
        """Whether moving the queries can change what any head sees."""
        return any(p.depends_on_positions for p in self.patterns)

    @property
    def is_prefix(self) -> bool:
        """Whether every head that sees ahead is exactly `Prefix(n)`, with one n."""
        ahead = {p for p in self.patterns if p.sees_future}
        return len(ahead) == 1 and all(p.is_prefix for p in ahead)

    @property
    def prefix_length(self) -> int:
        """The longest prefix among the heads that are exactly `Prefix(n)`; 0 where there is none."""
        return max(p.prefix_length for p in self.patterns)

    @property
    def rules(self) -> tuple[Callable[..., Any], ...]:
        """The functions of each `Where` that takes part in any head."""
        return tuple(dict.fromkeys(fn for p in self.patterns for fn in p.rules))

    @property
    def has_rule(self) -> bool:
        """Whether a `Where` takes part in any head."""
        return bool(self.rules)

    def asking(self, given: Callable[[Any], Any]) -> "PerHead":
        """The same patterns with given(fn) in place of each of their functions."""
        return PerHead(p.asking(given) for p in self.patterns)

    @typing.no_type_check
    def allows(self, q: Any, k: Any) -> Any:
        """Whether query position q may look at key position k: a list, one answer per head."""
        return [p.allows(q, k) for p in self.patterns]

    @typing.no_type_check
    def mask(self, T: int, S: int | None = None, q_offset: int | None = None) -> np.ndarray:
        """The heads' masks as a NumPy bool array [N, T, S]. Arguments as in `Pattern.mask`."""
        T, S, q_offset = lengths(T, S, q_offset, self.depends_on_positions)
        return np.stack([p.mask(T, S, q_offset) for p in self.patterns])

    @typing.no_type_check
    def count(self, T: int, S: int | None = None, q_offset: int | None = None) -> int:
        """Exact number of visible pairs, summed over the heads. Arguments as in `Pattern.mask`."""
        T, S, q_offset = lengths(T, S, q_offset, self.depends_on_positions)
        return sum(p.count(T, S, q_offset) for p in self.patterns)

    @typing.no_type_check
    def tile(self, q0: Any, q1: Any, k0: Any, k1: Any) -> Any:
        """As `Pattern.tile`: EMPTY or FULL only if all heads agree."""

        def classify(*rects: np.ndarray) -> np.ndarray:
            states = [np.asarray(p.tile(*rects)) for p in self.patterns]
            same = np.all([s == states[0] for s in states], axis=0)
            return np.where(same, states[0], Tile.PARTIAL).astype(np.int8)

        return tile_states(classify, q0, q1, k0, k1)
