"""What is computed, said in plain data: both processes build the same arrays and the same rule from it.

No attnjax, jax or torch here, so that the process which holds torch can read it too.
"""

import dataclasses
import re

import numpy as np

LEAVES = {
    "full": lambda i, j: i == i,
    "causal": lambda i, j: j <= i,
    "window": lambda i, j, n: (j <= i) & (i - j < n),
    "sink": lambda i, j, n: (j < n) & (j <= i),
    "strided": lambda i, j, n: (j <= i) & ((i - j) % n == 0),
}


@dataclasses.dataclass(frozen=True)
class Work:
    """One attention call, or its forward and backward together."""

    pattern: str  # leaves of LEAVES joined by " | ", as attnjax.parse reads them
    T: int
    direction: str = "forward"  # or "backward": output and the gradients of q, k and v
    dtype: str = "float32"  # or "bfloat16"
    heads: int = 8
    group: int = 1  # query heads that share a key head
    head_dim: int = 64


def leaves(pattern):
    """[(name, number or None)] of a union written as text."""
    parts = [re.fullmatch(r"(\w+)\((\d*)\)", part.strip()) for part in pattern.split("|")]
    if not all(parts) or any(part[1] not in LEAVES for part in parts):
        raise ValueError(f"pattern {pattern!r} is not a union of {', '.join(LEAVES)}")
    return [(part[1], int(part[2]) if part[2] else None) for part in parts]


def rule(pattern):
    """fn(query position, key position) -> may look, written out by hand: on NumPy, JAX and torch arrays."""

    def visible(i, j):
        shown = [LEAVES[name](i, j) if n is None else LEAVES[name](i, j, n) for name, n in leaves(pattern)]
        answer = shown[0]
        for more in shown[1:]:
            answer = answer | more
        return answer

    return visible


def numbers(work, seed):
    """q, k, v and the output's cotangent, float32 [1, T, heads, head_dim], standard normal."""
    rng = np.random.default_rng([seed, work.T])
    kv = work.heads // work.group
    return [rng.standard_normal((1, work.T, n, work.head_dim), np.float32) for n in (work.heads, kv, kv, work.heads)]
