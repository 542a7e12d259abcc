"""A pattern as lines of text, for terminals, logs and doctests."""

import typing

from attnjax.show.cells import Cells, Drawable, cells

LIMIT = 64
SHADES = "·░▒▓█"


def _shade(share: float) -> str:
    """Only nothing is '·' and only everything is '█', however thin the rest."""
    return SHADES[0] if share == 0 else SHADES[4] if share == 1 else SHADES[1 + min(2, int(3 * share))]


def _ruler(grid: Cells, wide: int, indent: int) -> str:
    """Key positions above the columns where they start, as many as fit."""
    line = ""
    for column in range(grid.share.shape[1]):
        label, at = str(column * grid.size), indent + column * wide
        if column % 4 == 0 and (not line.strip() or len(line) < at):
            line = line.ljust(at) + label
    return line


def _legend(grid: Cells) -> str:
    """What a cell stands for and what its shades mean."""
    if grid.size == 1 and grid.heads == 1:
        return "█ visible  · hidden"
    some = "▓▒░ a part" if grid.exact else "▒ in between"
    heads = f", {grid.heads} heads together" if grid.heads > 1 else ""
    return f"one cell is {grid.size} x {grid.size} pairs{heads}: █ all visible  {some}  · none"


@typing.no_type_check
def text(pattern: Drawable, T: int, S: int | None = None, q_offset: int | None = None) -> str:
    """Draws who sees whom, at most 64 cells a side however long the text is.

    Args:
        pattern: anything with the `mask`, `count` and `tile` of a pattern.
        T: number of queries, the rows.
        S: number of keys, the columns; None means T.
        q_offset: position of the first query; needed when T != S and the pattern depends on positions.

    Returns:
        Lines: numbers, legend, grid. Up to 16 million pairs the shades are exact and each row ends with its
        number of scores; above, a cell is all, none, or in between (or not known to be all or none).

    Raises:
        ValueError: if T != S, the pattern depends on positions and `q_offset` is missing.

    Example:
        >>> import attnjax as aj
        >>> from attnjax import show
        >>> print(show.text(aj.Window(2) | aj.Sink(1), 5))
        window(2) | sink(1): 5 queries (rows) x 5 keys (columns)
        12 scores; causal() has 15, full() 25
        █ visible  · hidden
        query 0       4   scores
            0 ██········  1
            1 ████······  2
            2 ██████····  3
            3 ██··████··  3
            4 ██····████  3
    """
    grid = cells(pattern, T, S, q_offset, LIMIT)
    wide = 2 if max(grid.share.shape) <= LIMIT // 2 else 1
    labels = [str(position) for position in grid.queries[:: grid.size]]
    margin = max(len(label) for label in ["query", *labels]) + 1
    lines = [
        f"{pattern}: {len(grid.queries)} queries (rows) x {grid.keys} keys (columns)",
        grid.summary,
        _legend(grid),
    ]
    if grid.share.size:
        ruler = _ruler(grid, wide, margin).ljust(margin + wide * grid.share.shape[1])
        scores = "  scores" if grid.row_scores else ""
        lines.append("query".rjust(margin - 1) + ruler[margin - 1 :] + scores)
    for row, (label, shares) in enumerate(zip(labels, grid.share, strict=True)):
        scores = f"  {grid.row_scores[row]:,}" if grid.row_scores else ""
        lines.append(f"{label.rjust(margin - 1)} {''.join(_shade(share) * wide for share in shares)}{scores}")
    return "\n".join(lines)
