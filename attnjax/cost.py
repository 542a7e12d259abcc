"""What a pattern costs, from its exact count."""

import dataclasses
import typing

from attnjax.patterns import Pattern, PerHead
from attnjax.patterns.checks import integer, lengths
from attnjax.shapes import check_heads
from attnjax.visible import check_pattern


@dataclasses.dataclass(frozen=True)
class Cost:
    """Cost of one forward pass of attention, projections left out.

    scores: exact number of scores over batch and heads. flops: 2 (H + h) for each score (one multiply and
    one add for each number of q . k and of the blend). bytes: q, k, v and the output, each moved once.
    kv_bytes_per_token: keys and values of one token in one layer's cache. kv_bytes: the whole cache of S tokens, of
    which it holds as many as the pattern needs (`Pattern.slots`).
    """

    scores: int
    flops: int
    bytes: int
    kv_bytes_per_token: int
    kv_bytes: int


@typing.no_type_check
def cost(
    pattern: Pattern | PerHead,
    T: int,
    S: int | None = None,
    *,
    num_heads: int,
    head_dim: int,
    num_kv_heads: int | None = None,
    value_dim: int | None = None,
    batch: int = 1,
    q_offset: int | None = None,
    bytes_per_number: int = 2,
) -> Cost:
    """Scores, FLOPs and bytes of attention under a pattern.

    Args:
        pattern: which keys a query position may look at.
        T, S, q_offset: number of queries and keys, position of query 0; as in `Pattern.mask`.
        num_heads: query heads.
        head_dim: head size of q and k.
        num_kv_heads: key/value heads; as many as query heads when None.
        value_dim: head size of v; `head_dim` when None.
        batch: sequences.
        bytes_per_number: 2 for bfloat16 and float16, 4 for float32.

    Raises:
        TypeError: if a number is not an int.
        ValueError: if one is below 1, heads do not divide, or `q_offset` is needed but None.

    Example:
        >>> import attnjax as aj
        >>> llama2_7b = dict(num_heads=32, head_dim=128)
        >>> aj.cost(aj.Causal(), 4096, **llama2_7b).scores
        268500992
        >>> 32 * aj.cost(aj.Causal(), 1, **llama2_7b).kv_bytes_per_token // 1024  # KiB a token, 32 layers
        512
        >>> mistral_7b = dict(num_heads=32, num_kv_heads=8, head_dim=128)
        >>> [32 * aj.cost(aj.Window(4096), n, **mistral_7b).kv_bytes // 2**20 for n in (2048, 4096, 32768)]  # MiB
        [256, 512, 512]
    """
    T, S, q_offset = lengths(T, S, q_offset, check_pattern(pattern).depends_on_positions)
    N, H = integer("num_heads", num_heads, 1), integer("head_dim", head_dim, 1)
    K = N if num_kv_heads is None else integer("num_kv_heads", num_kv_heads, 1)
    h = H if value_dim is None else integer("value_dim", value_dim, 1)
    B, width = integer("batch", batch, 1), integer("bytes_per_number", bytes_per_number, 1)
    check_heads(N, K)
    if isinstance(pattern, PerHead) and len(pattern.patterns) != N:
        raise ValueError(f"PerHead has {len(pattern.patterns)} patterns but num_heads={N}: give one per query head")
    per_sequence = pattern.count(T, S, q_offset) * (1 if isinstance(pattern, PerHead) else N)
    moved = T * N * (H + h) + S * K * (H + h)
    return Cost(
        scores=B * per_sequence,
        flops=2 * B * per_sequence * (H + h),
        bytes=B * moved * width,
        kv_bytes_per_token=K * (H + h) * width,
        kv_bytes=B * min(S, pattern.slots(max(S, 1)).size) * K * (H + h) * width,
    )
