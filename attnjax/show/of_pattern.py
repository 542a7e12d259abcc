"""A pattern as a picture: rows are queries, columns are keys, filled where the query may look."""

import numpy as np

from attnjax.patterns import Pattern, PerHead
from attnjax.show.cells import Cells, Drawable, cells
from attnjax.show.labels import broken, shortened
from attnjax.show.sheet import Box, Item, Line, Number, Picture, Words, shifted

LIMIT = 64  # cells a side
SIDE, SMALL = 336.0, 150.0  # of the grid: one pattern alone, one of several heads
MOST_PANELS = 12
WIDE = 62  # characters of a line


def pattern_picture(
    pattern: Drawable | PerHead, T: int, S: int | None, q_offset: int | None, title: str | None
) -> Picture:
    """The pattern, or a panel for each different pattern among its heads."""
    grid = cells(pattern, T, S, q_offset, LIMIT)
    name = str(pattern) if title is None else title
    shapes = f"{len(grid.queries):,} queries (rows) x {grid.keys:,} keys (columns)"
    notes, panels = [shapes, grid.summary], []
    if isinstance(pattern, PerHead) and grid.share.size:
        different = list(dict.fromkeys(pattern.patterns))
        grids = {one: cells(one, T, S, q_offset, LIMIT // 2) for one in different[:MOST_PANELS]}
        which = "one panel each" if len(grids) == len(different) else f"the first {MOST_PANELS} are drawn"
        notes += [f"{len(pattern.patterns)} heads with {len(different)} different patterns, {which}"]
        notes += [_legend(grids[different[0]])]
        panels = [_panel(pattern, one, small) for one, small in grids.items()]
    elif grid.share.size:
        notes += [_legend(grid)]
        panels = [(_grid(grid, SIDE), *_extent(grid, SIDE))]
    items, width, height = headed(name, notes, panels)
    return Picture(name, ". ".join(notes), width, height, tuple(items))


def headed(
    name: str, notes: list[str], panels: list[tuple[list[Item], float, float]], across: int = 4
) -> tuple[list[Item], float, float]:
    """(items, width, height): a heading, notes, and panels (items, width, height) in rows below them."""
    items: list[Item] = [Words(12, 22, shortened(name, WIDE), 14, bold=True)]
    lines = [line for note in notes for line in broken(note, 74)]
    items += [Words(12, 40 + 15 * i, line, 10.5, opacity=0.75) for i, line in enumerate(lines)]
    top = 40.0 + 15 * len(lines)
    width = max([420.0, *(24 + 5.9 * len(line) for line in lines), 24 + 9.0 * min(len(name), WIDE)])
    for start in range(0, len(panels), across):
        row = panels[start : start + across]
        left = 12.0
        for drawn, wide, _ in row:
            items += shifted(drawn, left, top)
            left += wide + 14
        width, top = max(width, left), top + max(high for _, _, high in row) + 14
    return items, width, top


def _legend(grid: Cells) -> str:
    if grid.size == 1 and grid.heads == 1:
        return "filled: the query may look at the key"
    heads = f", {grid.heads} heads together" if grid.heads > 1 else ""
    exact, else_ = "the darker, the more are visible", "dark: all visible, pale: some or not known, empty: none"
    return f"one cell is {grid.size:,} x {grid.size:,} pairs{heads}; {exact if grid.exact else else_}"


def _panel(pattern: PerHead, one: Pattern, grid: Cells) -> tuple[list[Item], float, float]:
    """A small grid, headed by the heads that have this pattern."""
    who = [n for n, other in enumerate(pattern.patterns) if other == one]
    whose = f"head {who[0]}" if len(who) == 1 else f"heads {', '.join(map(str, who))}"
    head: list[Item] = [Words(0, 12, shortened(whose, 28), 10.5, bold=True)]
    head.append(Words(0, 26, shortened(f"{one}: {grid.scores:,}", 34), 9, opacity=0.75))
    wide, high = _extent(grid, SMALL)
    return head + shifted(_grid(grid, SMALL), 0, 30), max(wide, 180.0), high + 30


def _extent(grid: Cells, side: Number) -> tuple[float, float]:
    """(width, height) of what `_grid` draws."""
    rows, columns = grid.share.shape
    cell = side / max(rows, columns, 1)
    return 48 + columns * cell + 60, 26 + rows * cell + 4


def _grid(grid: Cells, side: Number) -> list[Item]:
    """The cells with positions beside them, and the number of scores at the end of each row."""
    rows, columns = grid.share.shape
    cell = side / max(rows, columns)
    gap = 0.08 * cell if cell > 6 else 0
    left, top = 48.0, 26.0
    items: list[Item] = [Box(left, top, columns * cell, rows * cell, "text", 0.06)]
    # A thin stripe in a large cell has a share near 0; the floor keeps it apart from nothing at all.
    for row, column in zip(*np.nonzero(grid.share), strict=True):
        shade = 0.3 + 0.7 * float(grid.share[row, column])
        x, y = left + column * cell, top + row * cell
        items.append(Box(x + gap / 2, y + gap / 2, cell - gap, cell - gap, "seen", shade))
    first, size = grid.queries.start, grid.size
    items += scale_marks(left, top, rows, columns, cell, cell, first, size, size)
    counts = [] if grid.row_scores is None else [f"{count:,}" for count in grid.row_scores]
    for row in range(rows):
        low, high = first + row * size, min(first + (row + 1) * size, grid.queries.stop) - 1
        whose = f"query {low}" if low == high else f"queries {low} to {high}"
        tip = f"{whose}: {counts[row]} scores" if counts else whose
        items.append(Box(left, top + row * cell, columns * cell, cell, "text", 0, tip))
        if counts and cell >= 7.5:
            y = top + (row + 0.5) * cell + 3
            items.append(Words(left + columns * cell + 6, y, counts[row], 8.5, opacity=0.6))
    if counts and cell >= 7.5:
        items.append(Words(left + columns * cell + 6, top - 5, "scores", 8.5, opacity=0.6))
    return items


def scale_marks(
    left: Number, top: Number, rows: int, columns: int, wide: Number, high: Number, first: int, q_size: int, k_size: int
) -> list[Item]:
    """Positions of queries beside the rows and of keys above the columns, about eight of each."""
    items: list[Item] = [
        Words(left - 40, top + rows * high / 2, "query", 9, "middle", 0.6, turned=True),
        Words(left + columns * wide / 2, top - 16, "key", 9, "middle", 0.6),
    ]
    for row in range(0, rows, max(1, -(-rows // 8))):
        items.append(Words(left - 6, top + (row + 0.5) * high + 3, str(first + row * q_size), 8.5, "end", 0.6))
    for column in range(0, columns, max(1, -(-columns // 8))):
        items.append(Words(left + (column + 0.5) * wide, top - 5, str(column * k_size), 8.5, "middle", 0.6))
    line = ((left, top), (left + columns * wide, top))
    items.append(Line(line, "text", 0.25, 0.75))
    return items
