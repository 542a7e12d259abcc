"""What the settings of an attention layer mean, and how they must fit together."""

import dataclasses
import difflib
import math
from collections.abc import Mapping
from typing import Any

from attnjax.patterns import PerHead
from attnjax.patterns.checks import integer, size_of
from attnjax.rope import Rope
from attnjax.visible import check_pattern


def head_sizes(
    d_model: Any, num_heads: Any, num_kv_heads: Any = None, head_dim: Any = None
) -> tuple[int, int, int, int]:
    """(D, N, K, H) as ints that fit together, or an error that names the two that do not."""
    D, N = size_of("d_model", d_model), size_of("num_heads", num_heads)
    K = N if num_kv_heads is None else integer("num_kv_heads", num_kv_heads, 1)
    if N % K:
        small = [n for n in range(1, math.isqrt(N) + 1) if N % n == 0]
        near = max(n for n in (*small, *(N // n for n in small)) if n <= K)
        raise ValueError(
            f"num_heads={N} is not a multiple of num_kv_heads={K}; every key head serves the same number of "
            f"query heads, so take num_kv_heads={near} or num_heads={K * -(-N // K)}"
        )
    if head_dim is None and D % N:
        raise ValueError(
            f"d_model={D} is not a multiple of num_heads={N}; give head_dim= (any size works) or take "
            f"d_model={N * -(-D // N)}"
        )
    return D, N, K, D // N if head_dim is None else size_of("head_dim", head_dim)


def pattern_for(pattern: Any, num_heads: int) -> Any:
    """The pattern, if it is one and has a part for every head."""
    check_pattern(pattern)
    if isinstance(pattern, PerHead) and len(pattern.patterns) != num_heads:
        raise ValueError(f"{pattern} has {len(pattern.patterns)} heads, but num_heads={num_heads}")
    return pattern


def as_rope(rope: Any, head_dim: int) -> Rope | None:
    """The forms that `rope=` takes, as one record that fits heads of this size."""
    if rope is None:
        return None
    if isinstance(rope, Mapping):
        known = [field.name for field in dataclasses.fields(Rope)]
        for key in rope:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, 1, 0)[0]
                raise ValueError(f"rope has no setting {key!r}; did you mean {near!r}? It has {', '.join(known)}")
        rope = Rope(**rope)
    elif not isinstance(rope, Rope):
        if isinstance(rope, bool) or not isinstance(rope, (int, float)):
            raise TypeError(
                f"rope={rope!r} is a {type(rope).__name__}; give None, nn.Rope(theta=10000.0), a mapping of its "
                "settings or a number (its theta)"
            )
        rope = Rope(theta=rope)
    rope.check_head(head_dim)
    return rope
