"""What files say, as it may stand in a message: cut to a length, however long or deep the file's value is."""

import difflib
import itertools
import reprlib
from collections.abc import Iterable
from typing import Any

LONGEST = 100  # characters of a value in a message
LONGEST_MESSAGE = 500  # of a message that others made from what a file says
CANDIDATES = 1000  # more names than that are not compared with a wrong one

_REPR = reprlib.Repr()
_REPR.maxlevel, _REPR.maxdict, _REPR.maxlist, _REPR.maxlong = 3, 4, 6, 40
_REPR.maxstring = _REPR.maxother = LONGEST


def shown(value: Any) -> str:
    """The value's repr, in full if it is short; neither a long nor a deep value takes long."""
    return cut(_REPR.repr(value), LONGEST)


def cut(text: object, longest: int = LONGEST_MESSAGE) -> str:
    """The text, without its middle if it is longer than that."""
    text = str(text)
    half = longest // 2 - 2
    return text if len(text) <= longest else f"{text[:half]}...{text[-half:]}"


def nearest(name: object, known: Iterable[str], least: float = 0.0) -> str:
    """`; did you mean 'x'?` for the known name that looks most like this one; nothing if none does, or for no name."""
    names = [cut(other, LONGEST) for other in itertools.islice(known, CANDIDATES)]
    near = difflib.get_close_matches(cut(name, LONGEST), names, 1, least)
    return f"; did you mean {near[0]!r}?" if near else ""
