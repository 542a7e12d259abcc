"""A pattern, or what is computed of a call, as lines of text: for terminals, logs and doctests."""

import typing

from attnjax.explain import Explanation
from attnjax.patterns import Tile
from attnjax.plan import Plan
from attnjax.show.cells import Cells, Drawable, cells, checked
from attnjax.show.of_plan import Grid, computed

LIMIT = 64
SHADES = "·░▒▓█"
STATES = {Tile.EMPTY: "·", Tile.PARTIAL: "▒", Tile.FULL: "█"}


def _shade(share: float) -> str:
    """Only nothing is '·' and only everything is '█', however thin the rest."""
    return SHADES[0] if share == 0 else SHADES[4] if share == 1 else SHADES[1 + min(2, int(3 * share))]


def _ruler(columns: int, size: int, wide: int, indent: int) -> str:
    """Key positions above the columns where they start, as many as fit."""
    line = ""
    for column in range(columns):
        label, at = str(column * size), indent + column * wide
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
def text(
    what: Drawable | Explanation | Plan, T: int | None = None, S: int | None = None, q_offset: int | None = None
) -> str:
    """Draws who sees whom, or which scores a call computes, at most 64 cells a side however long the text is.

    Args:
        what: a pattern (anything with the `mask`, `count` and `tile` of one), or what `aj.explain` returned.
        T: number of queries, the rows. Only for a pattern.
        S: number of keys, the columns; None means T.
        q_offset: position of the first query; needed when T != S and the pattern depends on positions.

    Returns:
        Lines: numbers, legend, grid. Of a pattern of up to 16 million pairs the shades are exact and each row ends
        with its number of scores; above, a cell is all, none, or in between (or not known to be all or none).

    Raises:
        TypeError: if `what` cannot be drawn, a pattern comes without T, or an explanation with lengths.
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
    checked(what, T, S, q_offset)
    return _plan_text(what) if isinstance(what, Explanation | Plan) else _pattern_text(what, T, S, q_offset)


def _pattern_text(pattern: Drawable, T: int, S: int | None, q_offset: int | None) -> str:
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
        ruler = _ruler(grid.share.shape[1], grid.size, wide, margin).ljust(margin + wide * grid.share.shape[1])
        scores = "  scores" if grid.row_scores else ""
        lines.append("query".rjust(margin - 1) + ruler[margin - 1 :] + scores)
    for row, (label, shares) in enumerate(zip(labels, grid.share, strict=True)):
        scores = f"  {grid.row_scores[row]:,}" if grid.row_scores else ""
        lines.append(f"{label.rjust(margin - 1)} {''.join(_shade(share) * wide for share in shares)}{scores}")
    return "\n".join(lines)


def _plan_text(what: Explanation | Plan) -> str:
    """The numbers, and a grid for each walk."""
    said = computed(what)
    lines = [said.name, *said.notes]
    if said.grids:
        lines.append("█ FULL (computed without a mask)  ▒ PARTIAL (with one)  · EMPTY (never visited)")
    for grid in said.grids:
        lines += ["", *_walk_lines(grid)]
    return "\n".join(lines)


def _walk_lines(grid: Grid) -> list[str]:
    rows, columns = grid.states.shape
    wide = 2 if max(rows, columns) <= LIMIT // 2 else 1
    labels = [str(row * grid.q_size) for row in range(rows)]
    margin = max(len(label) for label in ["query", *labels]) + 1
    ruler = _ruler(columns, grid.k_size, wide, margin)
    lines = [f"{grid.about}; one cell is {grid.q_size:,} x {grid.k_size:,} pairs"]
    lines.append("query".rjust(margin - 1) + ruler[margin - 1 :])
    for label, states in zip(labels, grid.states, strict=True):
        lines.append(f"{label.rjust(margin - 1)} {''.join(STATES[Tile(int(state))] * wide for state in states)}")
    return lines
