"""The factors of the backend table, and rows that cover every pair of their levels: `python -m tests.support.pairs`.

Imports nothing but the standard library, so that the list can be made anywhere.
"""

import itertools
import math
import pathlib
import random

FACTORS = {
    "backend": ("dense", "tiled"),
    "pattern": (
        "full", "causal", "window", "band", "sink", "strided", "chunked", "prefix", "where", "gap",
    ),
    "dtype": ("bfloat16", "float16", "float32", "float64"),
    "shape": (
        "odd", "equal", "one-query", "more-queries", "fewer-queries", "grouped", "one-key-head", "wide-values",
    ),
    "option": (
        "none", "packed", "restart", "lengths", "mask", "bias", "sinks", "soft-cap", "score-fn", "dropout",
        "traced", "per-head",
    ),
    "way": ("value", "gradient", "lse-gradient", "jvp", "second-order", "vmap", "jacrev", "remat", "scan"),
}  # fmt: skip
LIST = pathlib.Path(__file__).parents[1] / "backends" / "pairs.txt"


def pairs_of(row):
    """The pairs of (factor, level) in a row."""
    return set(itertools.combinations(zip(FACTORS, row, strict=True), 2))


def every_pair():
    """All pairs of levels of different factors: any of them makes a call that attend must answer."""
    levels = [[(name, level) for level in found] for name, found in FACTORS.items()]
    return {pair for a, b in itertools.combinations(levels, 2) for pair in itertools.product(a, b)}


def cover():
    """Rows that hold every pair: each starts from the first pair left and takes level by level what covers most."""
    left = dict.fromkeys(sorted(every_pair()))  # a set with an order
    rows = []
    while left:
        row = dict(next(iter(left)))
        for name in sorted(set(FACTORS) - set(row), key=lambda name: -len(FACTORS[name])):
            turned = FACTORS[name][len(rows) % len(FACTORS[name]) :] + FACTORS[name]  # ties go round

            def gain(level, name=name, row=row):
                new = [((name, level), other) for other in row.items()]
                return sum(pair in left or pair[::-1] in left for pair in new)

            row[name] = max(turned, key=gain)
        rows.append(tuple(row[name] for name in FACTORS))
        for pair in pairs_of(rows[-1]):
            left.pop(pair, None)
    return sorted(rows)


def read():
    """The rows of the list that is checked in."""
    return [tuple(line.split()) for line in LIST.read_text().splitlines() if line and not line.startswith("#")]


def drawn(seed, count):
    """`count` different rows of the full cross, and how many rows that cross has."""
    size = math.prod(map(len, FACTORS.values()))
    rows = []
    for number in random.Random(seed).sample(range(size), count):
        row = []
        for levels in FACTORS.values():
            number, place = divmod(number, len(levels))
            row.append(levels[place])
        rows.append(tuple(row))
    return rows, size


def main():
    rows = cover()
    head = [f"# {len(rows)} rows that hold every pair of levels; made by: python -m tests.support.pairs"]
    lines = [" ".join(level.ljust(14) for level in row).rstrip() for row in rows]
    LIST.write_text("\n".join([*head, "# " + " ".join(FACTORS), *lines]) + "\n")


if __name__ == "__main__":
    main()
