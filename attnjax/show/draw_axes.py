"""A pattern in matplotlib axes of the caller's."""

import typing

import numpy as np

from attnjax.show.cells import Drawable, cells

if typing.TYPE_CHECKING:
    from matplotlib.axes import Axes

LIMIT = 128


@typing.no_type_check
def draw(
    ax: "Axes", pattern: Drawable, T: int, S: int | None = None, q_offset: int | None = None,
    title: str | None = None,
) -> None:  # fmt: skip
    """Draws a pattern into matplotlib axes of the caller's, so that several can stand side by side.

    Args:
        ax: the axes to draw in.
        pattern: anything with the `mask`, `count` and `tile` of a pattern.
        T: number of queries, the rows.
        S: number of keys, the columns; None means T.
        q_offset: position of the first query; needed when T != S and the pattern depends on positions.
        title: None means the pattern's own text.

    Raises:
        ValueError: if T != S, the pattern depends on positions and `q_offset` is missing.

    Example:
        >>> import attnjax as aj
        >>> from attnjax import show
        >>> from matplotlib.figure import Figure
        >>> show.draw(Figure().subplots(), aj.Window(4), 16)
    """
    grid = cells(pattern, T, S, q_offset, LIMIT)
    first = grid.queries.start
    rows, columns = grid.share.shape
    # Whole cells at the far edges, so that a ragged last cell is drawn as large as the others.
    extent = (-0.5, columns * grid.size - 0.5, first + rows * grid.size - 0.5, first - 0.5)
    if grid.share.size:
        # A thin stripe in a large cell has a share near 0; the floor keeps it apart from nothing at all.
        shade = np.where(grid.share > 0, 0.3 + 0.7 * grid.share, 0)
        ax.imshow(shade, cmap="Blues", vmin=0, vmax=1.25, extent=extent, interpolation="nearest")
        ax.set_xlim(-0.5, grid.keys - 0.5)
        ax.set_ylim(first + len(grid.queries) - 0.5, first - 0.5)
    if max(rows, columns) <= 32:
        ax.set_xticks([column - 0.5 for column in range(columns)], minor=True)
        ax.set_yticks([first + row - 0.5 for row in range(rows)], minor=True)
        ax.grid(which="minor", color="white", linewidth=1)
        ax.tick_params(which="minor", length=0)
    ax.set_xlabel("key")
    ax.set_ylabel("query")
    lines = [str(pattern) if title is None else title, grid.summary]
    if grid.size > 1:
        lines.append(f"one cell is {grid.size} x {grid.size} pairs")
    ax.set_title("\n".join(lines), fontsize=8)
