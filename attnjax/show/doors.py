"""picture, svg and png: a pattern at a length, or what attention computes of a call."""

import os
import pathlib
import typing

from attnjax.explain import Explanation
from attnjax.plan import Plan
from attnjax.show.cells import Drawable, checked
from attnjax.show.of_pattern import pattern_picture
from attnjax.show.of_plan import plan_picture
from attnjax.show.sheet import Picture


@typing.no_type_check
def picture(
    what: Drawable | Explanation | Plan, T: int | None = None, S: int | None = None, q_offset: int | None = None,
    title: str | None = None,
) -> Picture:  # fmt: skip
    """Draws who sees whom under a pattern, or which scores a call computes.

    Args:
        what: a pattern (anything with the `mask`, `count` and `tile` of one), or what `aj.explain` returned:
            then FULL, PARTIAL and EMPTY tiles are drawn, and scores computed stand beside scores needed.
        T: number of queries, the rows: any length, aggregated to at most 64 cells a side. Only for a pattern.
        S: number of keys, the columns; None means T.
        q_offset: position of the first query; needed when T != S and the pattern depends on positions.
        title: None means the pattern's own text.

    Returns:
        The picture: a notebook shows it, `save` writes it as .svg or .png.

    Raises:
        TypeError: if `what` cannot be drawn, a pattern comes without T, or an explanation with lengths.
        ValueError: if T != S, the pattern depends on positions and `q_offset` is missing.

    Example:
        >>> import attnjax as aj, jax, jax.numpy as jnp
        >>> from attnjax import show
        >>> show.picture(aj.Window(4) | aj.Sink(1), 16)
        <picture window(4) | sink(1): 16 queries (rows) x 16 keys (columns). 70 scores; causal() has 136, ...
        >>> x = jax.ShapeDtypeStruct((1, 4096, 8, 64), jnp.float32)
        >>> show.picture(aj.explain(x, x, x, aj.Window(256))).description
        '4,096 queries (rows) x 4,096 keys (columns), backend tiled. scores: 8,127,488 needed, ...
    """
    checked(what, T, S, q_offset)
    if isinstance(what, Explanation | Plan):
        return plan_picture(what, title)
    return pattern_picture(what, T, S, q_offset, title)


@typing.no_type_check
def svg(
    what: Drawable | Explanation | Plan, T: int | None = None, path: str | os.PathLike | None = None,
    S: int | None = None, q_offset: int | None = None, title: str | None = None,
) -> pathlib.Path:  # fmt: skip
    """Writes a picture as SVG, whole or not at all. Needs neither matplotlib nor a display.

    Args:
        what, T, S, q_offset, title: as in `picture`; what `explain` returned takes no T.
        path: where to write, ending in .svg.

    Returns:
        The path written.

    Raises:
        TypeError, ValueError: as `picture`, or if there is no path ending in .svg.
        OSError: if the file cannot be written.

    Example:
        >>> import pathlib, tempfile
        >>> import attnjax as aj
        >>> from attnjax import show
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     show.svg(aj.Strided(4), 64, pathlib.Path(folder, "pattern.svg")).name
        'pattern.svg'
    """
    path = _checked_path(path, ".svg")
    return picture(what, T, S, q_offset, title).save(path)


@typing.no_type_check
def png(
    what: Drawable | Explanation | Plan, T: int | None = None, path: str | os.PathLike | None = None,
    S: int | None = None, q_offset: int | None = None, title: str | None = None,
) -> pathlib.Path:  # fmt: skip
    """Writes a picture as PNG, whole or not at all. Needs matplotlib but no display.

    Args:
        what, T, S, q_offset, title: as in `picture`; what `explain` returned takes no T.
        path: where to write, ending in .png.

    Returns:
        The path written.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError, ValueError: as `picture`, or if there is no path ending in .png.
        OSError: if the file cannot be written.

    Example:
        >>> import pathlib, tempfile
        >>> import attnjax as aj
        >>> from attnjax import show
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     show.png(aj.Window(4) | aj.Sink(1), 64, pathlib.Path(folder, "pattern.png")).name
        'pattern.png'
    """
    path = _checked_path(path, ".png")
    return picture(what, T, S, q_offset, title).save(path)


def _checked_path(path: str | os.PathLike | None, ending: str) -> pathlib.Path:
    if path is None:
        raise TypeError(f"say where to write: path='pattern{ending}'")
    path = pathlib.Path(path)
    if path.suffix.lower() != ending:
        raise ValueError(f"path={str(path)!r} must end in {ending}: show.svg writes .svg, show.png writes .png")
    return path
