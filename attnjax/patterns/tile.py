"""What a rectangle of (queries x keys) can be, seen through a pattern."""

import enum


class Tile(enum.IntEnum):
    """State of a tile: EMPTY and FULL are promises, PARTIAL is always safe.

    Example:
        >>> import attnjax as aj
        >>> [aj.Causal().tile(0, 4, k, k + 4).name for k in (0, 4)], aj.Causal().tile(4, 8, 0, 4) is aj.Tile.FULL
        (['PARTIAL', 'EMPTY'], True)
    """

    EMPTY = 0
    PARTIAL = 1
    FULL = 2
