"""How a value of an early stage shows itself in a notebook, without knowing who draws it.

Patterns, plans and explanations take `html` as their `_repr_html_`; `attnjax/__init__.py` says who draws, so that
`import attnjax` is all that a notebook needs and no early stage imports a later one.
"""

from collections.abc import Callable

_drawers: list[Callable[[object], str]] = []


def draw_with(drawer: Callable[[object], str]) -> None:
    """From now on `drawer` makes the HTML."""
    _drawers[:] = [drawer]


def html(self: object) -> str | None:
    """HTML of a value, or None where nobody draws: a notebook then falls back on its text."""
    return _drawers[0](self) if _drawers else None
