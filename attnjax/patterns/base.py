"""Pattern: which keys a query may look at, as a value."""

import typing
from collections.abc import Callable
from typing import Any

import numpy as np

from attnjax import notebook
from attnjax.patterns import algebra
from attnjax.patterns.algebra import FULL, NOTHING, Expr
from attnjax.patterns.checks import integer, lengths
from attnjax.patterns.count import BLOCK, count_pairs
from attnjax.patterns.leaves import Band, Prefix
from attnjax.patterns.limits import check_size
from attnjax.patterns.parts import Part, classify_parts, parts, shown_by
from attnjax.patterns.regions import FAR, regions
from attnjax.patterns.slots import Slots, slots
from attnjax.patterns.tile import Tile
from attnjax.patterns.tiles import Rects, classify, everywhere, may_hold


class Pattern:
    """Which key positions a query position may look at.

    Frozen, hashable, without arrays, lengths or tile sizes. Patterns are sets of pairs (query, key) and
    compose as sets: `a & b` (both allow), `a | b` (either allows), `~a` (what a hides, the future too). Two
    patterns are equal when their normal forms are; `str` prints that form and `parse` reads it back.

    A pattern holds at most 128 rules in its normal form, nested at most 100 deep, whose numbers cut queries, keys and
    distances into at most 65,536 regions.

    Raises:
        TypeError: if it is called; patterns are made by name.
        ValueError: of `&` and `|`, if the pattern would be larger than that.

    Example:
        >>> import attnjax as aj
        >>> p = aj.Window(4) | aj.Sink(1)
        >>> p.count(16), str(p), aj.parse("window(4) | sink(1)") == p
        (70, 'window(4) | sink(1)', True)
    """

    __slots__ = ("_expr", "_hash")
    _expr: Expr
    _hash: int

    def __init__(self) -> None:
        raise TypeError("patterns are made by name: Window(4), Causal() & ~Sink(1), or aj.parse('window(4)')")

    @staticmethod
    def _of(expr: Expr) -> "Pattern":
        check_size(expr)
        pattern = object.__new__(Pattern)
        object.__setattr__(pattern, "_expr", expr)
        object.__setattr__(pattern, "_hash", hash(expr))
        return pattern

    # -- a value ------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"patterns are frozen: cannot set {name!r}; build a new pattern instead")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"patterns are frozen: cannot delete {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Pattern._of, (self._expr,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and self._expr == other._expr

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return algebra.text(self._expr)

    def __repr__(self) -> str:
        return f"<pattern {self}>"

    _repr_html_ = notebook.html

    # -- set algebra --------------------------------------------------------------------------------------

    def __and__(self, other: object) -> "Pattern":
        if not isinstance(other, Pattern):
            return NotImplemented
        return Pattern._of(algebra.combine("&", (self._expr, other._expr)))

    def __or__(self, other: object) -> "Pattern":
        if not isinstance(other, Pattern):
            return NotImplemented
        return Pattern._of(algebra.combine("|", (self._expr, other._expr)))

    def __invert__(self) -> "Pattern":
        return Pattern._of(algebra.negate(self._expr))

    def __bool__(self) -> bool:
        raise TypeError(f"a pattern has no truth value: write `&`, `|`, `~` (not `and`, `or`, `not`) with {self}")

    # -- questions ----------------------------------------------------------------------------------------

    @property
    def sees_future(self) -> bool:
        """Whether some query position >= 0 may look at a later key. Exact, but for `Where`: as declared."""
        ahead = everywhere(0, d1=0)
        return any(may_hold(cell, True, ahead)[0] for cell in regions(self._expr).shown)

    @property
    def sees_itself(self) -> bool:
        """Whether every query position >= 0 may look at its own key. A `Where` that decides it counts as no."""
        own = everywhere(0, d0=0, d1=1)
        return not any(may_hold(cell, False, own)[0] for cell in regions(self._expr).cells)

    def hull(self) -> "Pattern":
        """The band of all diagonals q - k on which anything is visible: a superset that only counts distance."""
        used = regions(self._expr).shown
        if not used:
            return Pattern._of(NOTHING)
        low, high = min(cell.d0 for cell in used), max(cell.d1 for cell in used) - 1
        left, right = (None if v >= FAR - 1 else max(v, 0) for v in (high, -low))
        return Pattern._of(Band(left, right))

    @property
    def depends_on_positions(self) -> bool:
        """Whether moving the queries (`q_offset`) can change what they see."""
        return self._expr not in (FULL, NOTHING)

    @property
    def is_prefix(self) -> bool:
        """Whether this is exactly `Prefix(n)`: the one pattern that sees ahead and can still be decoded."""
        return isinstance(self._expr, Prefix)

    @property
    def prefix_length(self) -> int:
        """n of exactly `Prefix(n)`; 0 of every other pattern."""
        return self._expr.n if isinstance(self._expr, Prefix) else 0

    @property
    def rules(self) -> tuple[Callable[..., Any], ...]:
        """The functions of each `Where` that takes part: tiles are PARTIAL for them, counts ask them pair by pair."""
        return algebra.rules(self._expr)

    @property
    def has_rule(self) -> bool:
        """Whether a `Where` takes part."""
        return bool(self.rules)

    def asking(self, given: Callable[[Any], Any]) -> "Pattern":
        """The same pattern with given(fn) in place of each of its functions."""
        return Pattern._of(algebra.asking(self._expr, given)) if self.rules else self

    @typing.no_type_check
    def allows(self, q: Any, k: Any) -> Any:
        """Whether query position q may look at key position k, elementwise.

        Args:
            q: query positions, an int or an integer array (NumPy or JAX).
            k: key positions, broadcastable with q.

        Returns:
            A bool array of the broadcast shape (NumPy for ints and NumPy arrays, JAX for JAX arrays).

        Example:
            >>> import attnjax as aj
            >>> aj.Window(2).allows(5, [3, 4, 5, 6]).tolist()
            [False, True, True, False]
        """
        q, k = (x if hasattr(x, "dtype") else np.asarray(x) for x in (q, k))
        return algebra.allows(self._expr, q, k)

    @typing.no_type_check
    def mask(self, T: int, S: int | None = None, q_offset: int | None = None) -> np.ndarray:
        """The pattern as a NumPy bool array [T, S]: rows are queries, True means may look.

        Args:
            T: number of queries.
            S: number of keys; T when None.
            q_offset: position of query row 0. None means 0 when T == S; with T != S it must be given for
                a pattern that depends on positions.

        Raises:
            ValueError: if T != S and `q_offset` is needed but None.

        Example:
            >>> import attnjax as aj
            >>> aj.Window(2).mask(3).astype(int).tolist()
            [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
        """
        T, S, q_offset = lengths(T, S, q_offset, self.depends_on_positions)
        mask = np.empty((T, S), bool)
        k = np.arange(S)[None, :]
        rows = max(1, BLOCK // max(S, 1))
        for start in range(0, T, rows):
            stop = min(T, start + rows)
            mask[start:stop] = self.allows(np.arange(start + q_offset, stop + q_offset)[:, None], k)
        return mask

    @typing.no_type_check
    def count(self, T: int, S: int | None = None, q_offset: int | None = None) -> int:
        """Exact number of visible pairs: the scores that attention needs. Arguments as in `mask`.

        Closed form for every composition of the shipped patterns (many strides and chunks in one place are counted
        distance by distance); a `Where` is evaluated where it decides, in blocks of rows, never as a T x S array.

        Example:
            >>> import attnjax as aj
            >>> (aj.Window(4096) | aj.Sink(1)).count(131072), aj.Causal().count(131072)
            (528611328, 8590000128)
        """
        T, S, q_offset = lengths(T, S, q_offset, self.depends_on_positions)
        return int(count_pairs(self._expr, q_offset, q_offset + T, 0, S))

    def parts(self) -> tuple[Part, ...]:
        """The visible pairs as disjoint parts: bands, columns, combs, blocks and the rest.

        Example:
            >>> import attnjax as aj
            >>> [part.kind for part in (aj.Window(4) | aj.Sink(1) | aj.Strided(8)).parts()]
            ['column', 'band', 'comb']
        """
        return parts(self._expr)

    def allows_in(
        self, chosen: tuple[Part, ...], q: Any, k: Any, given: Callable[[Any], Any] = lambda fn: fn
    ) -> Any:
        """As `allows`, of these parts alone; pairs must lie on a comb among them. given(fn) is asked for fn."""
        return shown_by(self._expr, chosen, q, k, given)

    @typing.no_type_check
    def slots(self, max_length: int) -> Slots:
        """What a cache of at most `max_length` tokens keeps: a key as long as the newest query, or one after it,
        may look at it.

        Raises:
            ValueError: if `max_length` is below 1.

        Example:
            >>> import attnjax as aj
            >>> aj.Window(4).slots(100).size, aj.Chunked(8).slots(100).kind, aj.Strided(4).slots(100).size
            (4, 'chunk', 100)
        """
        return slots((self._expr,), integer("max_length", max_length, 1))

    @typing.no_type_check
    def tile(self, q0: Any, q1: Any, k0: Any, k1: Any) -> Any:
        """State of the rectangle of query positions [q0, q1) and key positions [k0, k1).

        Positions are absolute; a tile knows no lengths, so clip to them first. EMPTY and FULL are promises,
        PARTIAL is always safe.

        Args:
            q0, q1, k0, k1: ints, or integer arrays that broadcast.

        Returns:
            A `Tile` for ints; an int8 array of its codes for arrays.

        Raises:
            ValueError: if a rectangle holds no pair.

        Example:
            >>> import attnjax as aj
            >>> aj.Causal().tile(0, 4, 0, 4), aj.Causal().tile(4, 8, 0, 4), aj.Causal().tile(0, 4, 4, 8)
            (<Tile.PARTIAL: 1>, <Tile.FULL: 2>, <Tile.EMPTY: 0>)
        """
        return tile_states(lambda *rects: classify(self._expr, *rects), q0, q1, k0, k1)

    def tile_in(self, chosen: tuple[Part, ...], q0: Any, q1: Any, k0: Any, k1: Any) -> Any:
        """As `tile`, of these parts alone; PARTIAL where only several of them together show a rectangle."""
        return tile_states(lambda *rects: classify_parts(chosen, Rects(*rects)), q0, q1, k0, k1)


def tile_states(classify_arrays: Any, q0: Any, q1: Any, k0: Any, k1: Any) -> Any:
    """Checks the bounds, asks in arrays, and answers with a Tile for ints or int8 codes for arrays."""
    bounds: list[np.ndarray] = []
    arrays = False
    for name, value in (("q0", q0), ("q1", q1), ("k0", k0), ("k1", k1)):
        if isinstance(value, (np.ndarray, list, tuple)):
            found, arrays = np.asarray(value), True
            if not np.issubdtype(found.dtype, np.integer):
                raise TypeError(f"{name} is an array of {found.dtype}; positions are integers")
            bounds.append(found)
        else:
            bounds.append(np.asarray(integer(name, value)))
    rects = np.broadcast_arrays(*(np.atleast_1d(b.astype(np.int64)) for b in bounds))
    bad = (rects[0] >= rects[1]) | (rects[2] >= rects[3])
    if bad.any():
        a, b, c, d = (int(r[bad][0]) for r in rects)
        raise ValueError(f"tile [{a}, {b}) x [{c}, {d}) holds no pair: q0 < q1 and k0 < k1 are needed")
    codes = classify_arrays(*rects)
    if not arrays:
        return Tile(int(codes[0]))
    return codes.reshape(np.broadcast_shapes(*(b.shape for b in bounds)))
