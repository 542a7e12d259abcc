"""Which tiles suit a device: the one place where sizes are chosen, one record for each kind of device.

Costs are in scores of a large tile. The numbers of CPU were measured on two cores with AVX-512 and 1 MiB of L2
cache each (benchmarks/LOG.md): matrix products of few rows run at a fraction of the speed of large ones, and
every visit to a tile has a fixed price. Those of accelerators come from compiled programs (cycles in the schedules
of fused kernels on TPUs, of XLA's operations on GPUs) or are estimates: nothing was timed on one.
"""

from typing import NamedTuple

UNJITTED = 1 << 26  # scores over batch and heads up to which all at once is faster where loops run in Python
SLACK = 1.35  # faster tiles may compute this many times the scores of the thriftiest ones
QUESTIONS = 1 << 17  # tiles that a plan asks about at most, for each size that it tries
RUN_TIME = 256  # queries and keys of a tile that is classified at run time


class Heads(NamedTuple):
    """What multiplies a tile: sequences, query heads, and query heads per key head."""

    batch: int
    query: int
    group: int


class Sizes(NamedTuple):
    """What a plan tries on a kind of device, and what it costs there. `_replace` makes a variant.

    Example:
        >>> import attnjax as aj
        >>> from attnjax.plan import plan
        >>> from attnjax.tile_sizes import sizes_for
        >>> tiles_only = sizes_for("tpu")._replace(loops=((1024, 1024),), stretches=(), few=0)
        >>> print(plan(aj.Window(1024), 8192, 8192, 0, sizes=tiles_only).walks[0])
        in place: 8 rows of 1024 queries, 15 tiles of 1024 keys (0 without a mask)
    """

    loops: tuple[tuple[int, int], ...]  # queries x keys of a tile, the largest first; at least one
    stretches: tuple[int, ...]  # queries of a row whose keys are taken in one pass; () for tiles alone
    stretch: int  # keys that are taken in one pass at most
    few: int  # first keys, seen by all later queries, that get a narrow stretch of their own; 0: they lie in tiles
    speed: tuple[tuple[int, float], ...]  # rows of a matrix product, down to 1 -> its speed as a share of the best
    visit: int  # scores of a large tile that take as long as the fixed price of one visit
    block: int  # scores that a visit holds at once, over batch and heads
    batch: int  # scores that the n-th visits of many rows hold at once, as one batch; 0: rows one by one
    small: int  # scores a head up to which computing all of them at once is faster than visiting tiles
    passes: int = 0  # as `batch`, of rows that take all their keys in one pass


CPU = Sizes(
    loops=((512, 256), (256, 256), (128, 128), (64, 64), (32, 32), (16, 16)),
    stretches=(512, 256, 128, 64, 32, 16),
    stretch=2048,
    few=512,
    speed=((512, 1.0), (256, 0.9), (128, 0.6), (64, 0.45), (32, 0.25), (16, 0.12), (1, 0.05)),
    visit=50_000,
    block=1 << 20,  # 4 MiB in float32
    batch=0,
    small=128 * 128,  # a visit costs a few microseconds
)

# Schedules of a fused kernel, v5e, heads of 128 in bfloat16: 4037 cycles for a tile of 1024 x 1024, 1046, 1128 and 1476
# for 512 x 512 in rows of 512, 256 and 128; a visit costs 112 to 136 cycles, 260 scores each. Tiles of 2048 need more
# than the 16 MiB of memory that v5e and v5p give by default. batch and small: as on GPUs.
TPU = Sizes(
    loops=((1024, 1024), (512, 512), (256, 256), (128, 128)),
    stretches=(1024, 512, 256, 128),
    stretch=2048,
    few=512,
    speed=((1024, 1.0), (512, 0.95), (256, 0.9), (128, 0.7), (1, 0.35)),
    visit=35_000,
    block=1 << 25,
    batch=1 << 25,
    small=1024 * 1024,
)

# v6e: 7973 cycles for 2048 x 2048, 2169 for 1024 x 1024, 852 for 512 x 512 (in another layout); as many for a visit.
TPU_V6 = TPU._replace(
    loops=((2048, 2048), *TPU.loops),
    speed=((2048, 1.0), (1024, 0.92), (512, 0.6), (256, 0.5), (128, 0.35), (1, 0.18)),
    visit=66_000,
)

# A fused kernel for sm_90 takes 128 x 128. Loops of XLA's operations are bound by launches (ten or more for each visit
# of a batch of rows), so that larger tiles and one pass over the keys of 128 queries are tried too. Speeds: estimates.
GPU = Sizes(
    loops=((512, 256), (256, 256), (128, 128), (64, 64)),
    stretches=(256, 128, 64),
    stretch=2048,
    few=512,
    speed=((128, 1.0), (64, 0.5), (32, 0.25), (1, 0.12)),
    visit=50_000,
    block=1 << 25,  # 128 MiB in float32
    batch=1 << 25,
    small=1024 * 1024,  # a visit costs a dozen kernel launches
)

# Loops of XLA's operations, compiled for T = 8192 and 8 heads of 128 in bfloat16 (`make aot`; benchmarks/LOG.md).
# On TPUs a visit costs what 500,000 scores do. Causal rows are half as dear one by one: taken together they wait for
# the longest. Rows of one pass are all alike, and four together cost three quarters, but in the backward more than one.
TPU_LOOPS = {"visit": 500_000, "batch": 0, "passes": 10 << 20}
TPU_BACKWARD = {**TPU_LOOPS, "passes": 0}

# On GPUs a visit of a batch of rows is a dozen launches: few large tiles, as many at once as 96 MiB hold in float32.
# The backward adds gradients of keys up by key tiles, so that keys have to lie in tiles.
GPU_LOOPS = {"loops": ((1024, 1024), *GPU.loops), "visit": 500_000, "batch": 3 << 23, "passes": 3 << 23}
GPU_BACKWARD = {**GPU_LOOPS, "stretches": ()}


def sizes_for(platform: str, device_kind: str | None = None) -> Sizes:
    """The record of a device.

    Args:
        platform: as JAX names it ("cpu", "tpu"; whatever else is taken for a GPU).
        device_kind: as `jax.Device.device_kind` names it; None: what suits most devices of the platform.

    Example:
        >>> from attnjax.tile_sizes import sizes_for
        >>> sizes_for("tpu").loops[0], sizes_for("tpu", "TPU v6 lite").loops[0], sizes_for("cpu").loops[0]
        ((1024, 1024), (2048, 2048), (512, 256))
    """
    if platform == "cpu":
        return CPU
    if platform == "tpu":
        return TPU_V6 if device_kind and device_kind.startswith("TPU v6") else TPU
    return GPU


def loops_for(platform: str, device_kind: str | None = None, backward: bool = False) -> Sizes:
    """The record of a device for loops of XLA's operations, as the backend tiled has them, forward or backward.

    Example:
        >>> from attnjax.tile_sizes import loops_for, sizes_for
        >>> loops_for("cpu") == sizes_for("cpu"), loops_for("tpu").batch, loops_for("cuda", backward=True).stretches
        (True, 0, ())
    """
    sizes = sizes_for(platform, device_kind)
    if platform == "cpu":
        return sizes
    ways = (TPU_LOOPS, TPU_BACKWARD) if platform == "tpu" else (GPU_LOOPS, GPU_BACKWARD)
    return sizes._replace(**ways[backward])


def small_scores(platform: str) -> int:
    """Up to how many scores a head computing all of them at once is faster than visiting tiles."""
    return sizes_for(platform).small


def loop_sizes(heads: Heads, T: int, S: int, sizes: Sizes) -> list[tuple[int, int]]:
    """Sizes to try for a loop over tiles, none larger than the arrays."""
    found = []
    for tile_q, tile_k in sizes.loops:
        size = (max(1, min(max(tile_q // heads.group, 16), T)), max(1, min(tile_k, S)))
        asked = -(-T // size[0]) * -(-S // size[1])
        if size not in found and (asked <= QUESTIONS or not found):
            found.append(size)
    return found


def stretch_sizes(heads: Heads, T: int, sizes: Sizes) -> list[int]:
    """Rows to try where the keys of a row are one stretch."""
    return list(dict.fromkeys(min(max(size // heads.group, 16), T) for size in sizes.stretches))


def cost(heads: Heads, visits: int, tile_q: int, scores: int, sizes: Sizes) -> float:
    """What so many visits of tile_q rows cost that compute so many scores a head."""
    total = heads.batch * heads.query * scores
    speed = next(share for rows, share in sizes.speed if heads.group * tile_q >= rows)
    return total / speed + max(visits, total / sizes.block) * sizes.visit


def sequences_at_once(heads: Heads, tile_q: int, tile_k: int, sizes: Sizes | None = None) -> int:
    """How many sequences a visit takes together, so that their scores stay in the cache (None: of a CPU)."""
    block = (sizes or CPU).block
    return max(1, min(heads.batch, block // (heads.query * tile_q * tile_k)))


def rows_at_once(sizes: Sizes, rows: int, scores: int, in_tiles: bool = True) -> int:
    """How many rows of tiles to take together, given the scores of one visit.

    A loop over single tiles is bound by launches on a GPU (ten kernels or more for each tile); there the n-th tiles
    of many rows are one batch.
    """
    most = max(1, min(rows, (sizes.batch if in_tiles else sizes.passes) // scores))
    return -(-rows // -(-rows // most))  # as many in each batch, so that few are padding
