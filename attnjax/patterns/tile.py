"""What a rectangle of (queries x keys) can be, seen through a pattern."""

import enum


class Tile(enum.IntEnum):
    """State of a tile: EMPTY and FULL are promises, PARTIAL is always safe."""

    EMPTY = 0
    PARTIAL = 1
    FULL = 2
