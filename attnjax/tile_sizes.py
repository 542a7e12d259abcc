"""Which tiles suit a device: the one place where sizes are chosen.

Costs are in scores of a large tile. The numbers for a CPU were measured on two cores with AVX-512 and 1 MiB of L2
cache each (benchmarks/LOG.md): matrix products of few rows run at a fraction of the speed of large ones, and
every visit to a tile has a fixed price. Those for accelerators are estimates: nothing was timed on one.
"""

from typing import NamedTuple

# rows of a matrix product -> its speed as a share of the best
SPEED = ((512, 1.0), (256, 0.9), (128, 0.6), (64, 0.45), (32, 0.25), (16, 0.12), (1, 0.05))
VISIT = 50_000  # scores of a large tile that take as long as the fixed price of one visit
BLOCK = 1 << 20  # scores that a visit holds at once, over batch and heads: 4 MiB in float32
BATCH = 1 << 25  # scores that a visit to a batch of tiles holds at once on an accelerator: 128 MiB in float32
UNJITTED = 1 << 26  # scores over batch and heads up to which all at once is faster where loops run in Python
SLACK = 1.35  # faster tiles may compute this many times the scores of the thriftiest ones
QUESTIONS = 1 << 17  # tiles that a plan asks about at most, for each size that it tries
STRETCH = 2048  # keys that are taken in one pass at most

LOOPS = ((512, 256), (256, 256), (128, 128), (64, 64), (32, 32), (16, 16))  # queries x keys
STRETCHES = (512, 256, 128, 64, 32, 16)  # queries of a row whose keys are taken in one pass
RUN_TIME = 256  # queries and keys of a tile that is classified at run time


class Heads(NamedTuple):
    """What multiplies a tile: sequences, query heads, and query heads per key head."""

    batch: int
    query: int
    group: int


def small_scores(platform: str) -> int:
    """Up to how many scores a head computing all of them at once is faster than visiting tiles.

    An accelerator pays for every visit with a dozen kernel launches, a CPU with a few microseconds.
    """
    return 128 * 128 if platform == "cpu" else 1024 * 1024


def loop_sizes(heads: Heads, T: int, S: int) -> list[tuple[int, int]]:
    """Sizes to try for a loop over tiles, none larger than the arrays."""
    found = []
    for tile_q, tile_k in LOOPS:
        size = (max(1, min(max(tile_q // heads.group, 16), T)), max(1, min(tile_k, S)))
        asked = -(-T // size[0]) * -(-S // size[1])
        if size not in found and (asked <= QUESTIONS or not found):
            found.append(size)
    return found


def stretch_sizes(heads: Heads, T: int) -> list[int]:
    """Rows to try where the keys of a row are one stretch."""
    return list(dict.fromkeys(min(max(size // heads.group, 16), T) for size in STRETCHES))


def cost(heads: Heads, visits: int, tile_q: int, scores: int) -> float:
    """What so many visits of tile_q rows cost that compute so many scores a head."""
    total = heads.batch * heads.query * scores
    speed = next(share for rows, share in SPEED if heads.group * tile_q >= rows)
    return total / speed + max(visits, total / BLOCK) * VISIT


def sequences_at_once(heads: Heads, tile_q: int, tile_k: int) -> int:
    """How many sequences a visit takes together, so that their scores stay in the cache."""
    return max(1, min(heads.batch, BLOCK // (heads.query * tile_q * tile_k)))


def rows_at_once(platform: str, rows: int, scores: int) -> int:
    """How many rows of tiles to take together, given the scores of one visit.

    A loop over single tiles is bound by launches on a GPU (ten kernels or more for each tile); there the n-th tiles
    of many rows are one batch.
    """
    return 1 if platform == "cpu" else max(1, min(rows, BATCH // scores))
