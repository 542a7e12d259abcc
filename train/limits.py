"""Which numbers a setting or an option may have: known before anything is computed, and said with its name."""

import numpy as np

LARGEST = 2**31 - 1  # steps and sizes are int32 on devices
SEEDS = -(2**31), 2**32 - 1  # a key keeps 32 bits of its seed: beyond these, two seeds would draw the same
BYTES = 10**6  # of a sample; each takes a full pass of the model
PATH = 240  # letters of a path that an error shows
FLOATS = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


def within(name: str, value: int, low: int, high: int) -> None:
    """Raises ValueError for an int that is not from `low` to `high`.

    Example:
        >>> within("run.seed", 2**40, *SEEDS)
        Traceback (most recent call last):
            ...
        ValueError: run.seed=1099511627776 must be from -2147483648 to 4294967295
    """
    if not low <= value <= high:
        raise ValueError(f"{name}={shown(value)} must be from {low} to {high}")


def positive(section: str, **values: float) -> None:
    """Raises ValueError for the first value that is not above zero, or an int beyond int32."""
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{section}.{name}={shown(value)} must be above 0")
        if isinstance(value, int):
            within(f"{section}.{name}", value, 1, LARGEST)


def number(name: str, value: float) -> float:
    """The value as a float, if float32 holds it: the model computes in no wider numbers.

    Raises:
        ValueError: for NaN, an infinity, and what float32 would make one of these or 0.
    """
    try:
        found = float(value)
    except OverflowError:
        found = float("inf")
    if found and not FLOATS[0] <= abs(found) <= FLOATS[1]:
        raise ValueError(f"{name}={shown(value)} must be a finite number that float32 holds: 0, or from "
                         f"{FLOATS[0]:.2g} to {FLOATS[1]:.2g} in size")
    return found


def shown(value: object, most: int = 60) -> str:
    """A value in an error: all of it, if it is short.

    Example:
        >>> shown("a" * 100, 20), shown(10**5000)
        ("'aaaaaaaaaaaaaaaa...", 'int')
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an int of thousands of digits, or endless nesting
        return type(value).__name__
    return short(text, most)


def short(text: object, most: int = PATH) -> str:
    """The text, or what fits of it into an error of one line."""
    text = str(text)
    return text if len(text) <= most else text[: most - 3] + "..."
