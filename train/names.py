"""Errors about names: what was given, and the nearest name that exists."""

import difflib
from collections.abc import Iterable


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The text of an error about a name that does not exist.

    Example:
        >>> unknown("row", "windw-1", ["window-1", "sink-0"])
        "unknown row 'windw-1'; did you mean 'window-1'? There are: window-1, sink-0"
    """
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return f"unknown {kind} {name!r}{hint} There are: {', '.join(known)}"
