"""The patterns of the chapter, by name. Constructors: what they return are plain `Pattern` values, so that
equal patterns are of one type and share one trace however they were written."""

import typing
from collections.abc import Callable
from typing import Any

from attnjax.patterns import leaves
from attnjax.patterns.base import Pattern
from attnjax.patterns.checks import Rule
from attnjax.patterns.checks import pattern_size as checked


@typing.no_type_check
def Full() -> Pattern:
    """Every query sees every key (bidirectional attention). Vaswani et al. 2017, "Attention Is All You Need".

    Example:
        >>> import attnjax as aj
        >>> aj.Full().count(4)
        16
    """
    return Pattern._of(leaves.Band(None, None))


@typing.no_type_check
def Causal() -> Pattern:
    """Each query sees itself and every key before it: k <= q. Vaswani et al. 2017, section 3.2.3.

    Example:
        >>> import attnjax as aj
        >>> aj.Causal().count(16)
        136
    """
    return Pattern._of(leaves.Band(None, 0))


@typing.no_type_check
def Window(window: int) -> Pattern:
    """The last `window` keys, including itself: q - window < k <= q. Jiang et al. 2023, "Mistral 7B".

    `Window(4)` sees the query's own key and the 3 before it. L layers reach back L * (window - 1) tokens.

    Args:
        window: number of visible keys, at least 1.

    Raises:
        TypeError: if `window` is not an int.
        ValueError: if it is below 1 (for no limit write `Causal()`).

    Example:
        >>> import attnjax as aj
        >>> aj.Window(2).mask(4).astype(int).tolist()
        [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    """
    rule = Rule(
        "a window counts the query itself, so it is at least 1; for no limit write Causal()",
        "Causal() & Where(lambda q, k: q - k < w)",
    )
    return Pattern._of(leaves.Band(checked("window", window, 1, rule) - 1, 0))


@typing.no_type_check
def Band(left: int | None, right: int | None) -> Pattern:
    """`left` keys before the query, itself, and `right` keys after it; None is unbounded.

    -right <= q - k <= left. `Window(w) == Band(w - 1, 0)`. Beltagy et al. 2020, "Longformer".

    Args:
        left: keys before the query, an int >= 0 or None.
        right: keys after the query, an int >= 0 or None.

    Raises:
        TypeError: if one is neither an int nor None.
        ValueError: if one is negative.

    Example:
        >>> import attnjax as aj
        >>> aj.Band(1, 1).mask(3).astype(int).tolist()
        [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    """
    rule = Rule(
        "it counts keys beside the query, so it is at least 0; for no limit write None",
        "Where(lambda q, k: (q - k <= left) & (k - q <= right))",
    )
    sides = (None if v is None else checked(n, v, 0, rule) for n, v in (("left", left), ("right", right)))
    return Pattern._of(leaves.Band(*sides))


@typing.no_type_check
def Sink(n: int) -> Pattern:
    """The first `n` tokens stay visible: k < n and k <= q. Xiao et al. 2023, "StreamingLLM".

    Args:
        n: number of sink tokens, at least 1.

    Raises:
        TypeError: if `n` is not an int.
        ValueError: if it is below 1.

    Example:
        >>> import attnjax as aj
        >>> (aj.Window(4) | aj.Sink(1)).count(16)
        70
    """
    rule = Rule("a sink keeps at least 1 token; for none leave Sink out", "Causal() & Where(lambda q, k: k < n)")
    return Pattern._of(leaves.Sink(checked("n", n, 1, rule)))


@typing.no_type_check
def Strided(stride: int) -> Pattern:
    """Itself and every `stride`-th key before it: (q - k) % stride == 0 and k <= q.

    Child et al. 2019, "Generating Long Sequences with Sparse Transformers" (there joined with a window:
    `Window(stride) | Strided(stride)`).

    Args:
        stride: distance between visible keys, at least 1.

    Raises:
        TypeError: if `stride` is not an int.
        ValueError: if it is below 1.

    Example:
        >>> import attnjax as aj
        >>> aj.Strided(2).mask(4).astype(int).tolist()
        [[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]]
    """
    rule = Rule("visible keys are at least 1 apart", "Causal() & Where(lambda q, k: (q - k) % stride == 0)")
    return Pattern._of(leaves.Strided(checked("stride", stride, 1, rule)))


@typing.no_type_check
def Chunked(size: int) -> Pattern:
    """Itself and the keys before it in its own chunk: q // size == k // size and k <= q, grid from position 0.

    The local layers of Llama 4 (2025). Stacked layers never cross the edge of a chunk.

    Args:
        size: tokens per chunk, at least 1.

    Raises:
        TypeError: if `size` is not an int.
        ValueError: if it is below 1.

    Example:
        >>> import attnjax as aj
        >>> aj.Chunked(2).mask(4).astype(int).tolist()
        [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
    """
    rule = Rule("a chunk holds at least 1 token", "Causal() & Where(lambda q, k: q // size == k // size)")
    return Pattern._of(leaves.Chunked(checked("size", size, 1, rule)))


@typing.no_type_check
def Prefix(n: int) -> Pattern:
    """Causal, and the first `n` tokens see each other fully. Raffel et al. 2020, "T5" (prefix LM).

    Args:
        n: length of the prefix, at least 1.

    Raises:
        TypeError: if `n` is not an int.
        ValueError: if it is below 1.

    Example:
        >>> import attnjax as aj
        >>> aj.Prefix(2).mask(3).astype(int).tolist()
        [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
    """
    rule = Rule(
        "a prefix holds at least 1 token; for none write Causal()",
        "Causal() | Where(lambda q, k: (q < n) & (k < n))",
    )
    return Pattern._of(leaves.Prefix(checked("n", n, 1, rule)))


@typing.no_type_check
def Where(fn: Callable[[Any, Any], Any], *, sees_future: bool = True) -> Pattern:
    """Your own rule: `fn(q, k)` elementwise on integer arrays, True where the query may look.

    The idea is that of FlexAttention's `mask_mod` (Dong et al. 2024).

    Works in every backend, but its tiles are always PARTIAL (nothing is skipped because of it) and `count`
    evaluates it. Join it with `Window`, `Causal` and so on, and those still skip tiles. Equal and hashed by
    the identity of `fn`: define it once, at module level.

    Args:
        fn: takes NumPy or JAX integer arrays (q, k) that broadcast, returns bools.
        sees_future: pass False if the rule never shows a key after the query; the pattern then holds it to
            that (`fn(q, k) & (k <= q)`).

    Raises:
        TypeError: if `fn` cannot be called or `sees_future` is not a bool.

    Example:
        >>> import attnjax as aj
        >>> even_keys = aj.Where(lambda q, k: k % 2 == 0)
        >>> (aj.Causal() & even_keys).count(4)
        6
    """
    if not callable(fn):
        raise TypeError(f"fn={fn!r} cannot be called; Where takes a function fn(q, k) of position arrays")
    if not isinstance(sees_future, bool):
        raise TypeError(f"sees_future={sees_future!r} must be True or False")
    return Pattern._of(leaves.Where(fn, sees_future))
