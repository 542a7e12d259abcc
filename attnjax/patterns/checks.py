"""Checks of the integers that patterns and their questions take."""

import operator
from typing import Any, NamedTuple

LARGEST = 2**31 - 1  # positions are int32 on devices
MOST = 2**63 - 1  # of any number: lengths of questions about patterns may be beyond what arrays can have
STATIC = "it must be an int: take it from the shape of an array, or name it in static_argnums of jax.jit"


def integer(
    name: str, value: object, low: int | None = None, rule: str = "", traced: str = STATIC, most: int = MOST,
    why: str = "",
) -> int:  # fmt: skip
    """`value` as an int from `low` to `most`, or an error that names the argument, the value and the rule.

    `rule` says why it is at least `low` and `why` why at most `most`, `traced` what to do about a number that is known
    only when a compiled program runs.
    """
    if isinstance(value, bool):
        raise TypeError(f"{name}={value!r} is a bool; it must be an int")
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # anything with __index__ is an int
    except TypeError:
        if any(kind.__name__ == "Tracer" for kind in type(value).__mro__):  # jax's; patterns know no jax
            aval: Any = getattr(value, "aval", None)
            found = f"{aval.dtype}{list(aval.shape)}"
            raise TypeError(f"{name} is traced ({found}), known only when the program runs; {traced}") from None
        raise TypeError(f"{name}={value!r} is a {type(value).__name__}; it must be an int") from None
    if low is not None and number < low:
        raise ValueError(f"{name}={short(number)} is too small: {rule or f'it must be at least {low}'}")
    if number > most:
        raise ValueError(f"{name}={short(number)} is too large: {why or f'it is at most {most}'}")
    if number < -MOST:
        raise ValueError(f"{name}={short(number)} is too small: it is at least {-MOST}")
    return number


def short(number: int) -> str:
    """An int for a message, however many digits it has."""
    if number.bit_length() <= 128:
        return str(number)
    return f"{'-' * (number < 0)}2**{number.bit_length() - 1} or {'less' if number < 0 else 'more'}"


def size_of(name: str, value: object, most: int = LARGEST) -> int:
    """A size of an array or a model as an int, from 1 to what arrays can have."""
    return integer(name, value, 1, most=most)


class Rule(NamedTuple):
    """Why a number of a pattern is not below its lowest, and what to write where it is traced."""

    why: str
    traced: str


def pattern_size(name: str, value: object, low: int, rule: Rule) -> int:
    """A number of a pattern: an int from `low` to the largest position."""
    static = f"a pattern's sizes are static. One program for all sizes: hide pairs with mask=, or write {rule.traced}"
    return size(name, value, low, rule.why, static)


def size(name: str, value: object, low: int, why: str, traced: str = STATIC) -> int:
    """A number of positions: an int from `low` to the largest one."""
    return integer(name, value, low, why, traced, LARGEST, f"positions are int32, at most {LARGEST}; {why}")


def lengths(T: object, S: object, q_offset: object, depends_on_positions: bool) -> tuple[int, int, int]:
    """The one rule for lengths and offset: (T, S, q_offset) as ints.

    S defaults to T. `q_offset` is the position of query row 0; it may stay None when T == S (it is 0 then)
    and when the pattern does not depend on positions.

    Raises:
        ValueError: if T != S, the pattern depends on positions and `q_offset` is None.
    """
    T = integer("T", T, 0)
    S = T if S is None else integer("S", S, 0)
    return T, S, offset_of(T, S, q_offset, depends_on_positions)


def offset_of(T: Any, S: Any, q_offset: object, depends_on_positions: bool) -> int:
    """The offset as an int; lengths may stand for any number here. Raises as `lengths`."""
    if q_offset is not None:
        return integer("q_offset", q_offset, traced="it must be an int here; attend and visible take an array")
    if T != S and depends_on_positions:
        raise ValueError(
            f"T={T} queries and S={S} keys: this pattern depends on positions, so say where query 0 sits: "
            f"q_offset={S - T} (S - T) aligns the ends as flash-attn does, q_offset=0 aligns the starts as "
            "jax.nn does"
        )
    return 0
