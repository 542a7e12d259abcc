"""Picture: boxes, lines and words on a sheet. Two writers draw it: SVG needs nothing, PNG needs matplotlib."""

import dataclasses
import os
import pathlib
import typing
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from attnjax.show.whole import write_whole

# Every ink is readable on white and on black; "text" is the page's own text colour where there is one.
INKS = {"text": "#1b1b1b", "seen": "#3d7fc7", "mixed": "#d08a2e", "third": "#3f9d6b", "fourth": "#b565a7"}


Number: TypeAlias = float | int  # a length on the sheet, in points


class Box(NamedTuple):
    """A filled rectangle; `tip` is what a pointer that rests on it reads."""

    x: float
    y: float
    w: float
    h: float
    ink: str = "seen"
    opacity: float = 1.0
    tip: str = ""


class Line(NamedTuple):
    """A stroke through points; a dotted one marks a level that is no measurement."""

    points: tuple[tuple[float, float], ...]
    ink: str = "text"
    opacity: float = 1.0
    width: float = 1.0
    dotted: bool = False
    tip: str = ""


class Words(NamedTuple):
    """A line of text; (x, y) is its baseline at the start, middle or end; `turned` ones run upwards."""

    x: float
    y: float
    text: str
    size: float = 11
    anchor: str = "start"
    opacity: float = 1.0
    turned: bool = False
    bold: bool = False


Item = Box | Line | Words


def shifted(items: Iterable[Item], dx: Number, dy: Number) -> list[Item]:
    """The same drawing elsewhere on the sheet."""
    moved: list[Item] = []
    for item in items:
        if isinstance(item, Line):
            moved.append(item._replace(points=tuple((x + dx, y + dy) for x, y in item.points)))
        else:
            moved.append(item._replace(x=item.x + dx, y=item.y + dy))
    return moved


@typing.no_type_check
@dataclasses.dataclass(frozen=True)
class Picture:
    """What `show.picture`, `show.heads` and `show.curve` return: shown by notebooks, written by `save`.

    `title` and `description` are what a screen reader says. Made by those functions, not by hand.

    Example:
        >>> import attnjax as aj
        >>> from attnjax import show
        >>> picture = show.picture(aj.Window(4) | aj.Sink(1), 16)
        >>> picture.title
        'window(4) | sink(1)'
        >>> picture.svg().startswith("<svg")
        True
    """

    title: str
    description: str
    width: float
    height: float
    items: tuple[Item, ...]

    def __repr__(self) -> str:
        return f"<picture {self.title}: {self.description}>"

    def svg(self, *, alone: bool = True) -> str:
        """The picture as SVG text, readable on light and on dark pages.

        Args:
            alone: True for a file of its own, which brings its background and follows the reader's light or dark
                theme; False inside an HTML page, where it takes over the page's text colour.
        """
        from attnjax.show.to_svg import svg_text

        return svg_text(self, alone)

    def _repr_html_(self) -> str:
        return self.svg(alone=False)

    def save(self, path: str | os.PathLike) -> pathlib.Path:
        """Writes the picture, whole or not at all; a display is not needed.

        Args:
            path: the ending picks the format: .svg, or .png (which needs matplotlib).

        Returns:
            The path written.

        Raises:
            ValueError: if the ending is another one.
            ImportError: if the ending is .png and matplotlib is not installed.
            OSError: if the file cannot be written.
        """
        path = pathlib.Path(path)
        ending = path.suffix.lower()
        if ending == ".svg":
            return write_whole(path, self.svg() + "\n")
        if ending == ".png":
            from attnjax.show.to_png import png_bytes

            return write_whole(path, png_bytes(self))
        raise ValueError(f"{path.name!r} ends in {ending or 'nothing'!r}: pictures are written as .svg or .png")
