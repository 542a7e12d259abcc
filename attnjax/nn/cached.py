"""What a layer cannot do with a cache, said before anything runs."""

from typing import Any

from attnjax.cache import Cache
from attnjax.nn.inputs import check_sequences
from attnjax.segments import Segments


def check_cached(
    layer: Any, cache: Any, x: Any, kv: Any, positions: Any, segments: Any, mask: Any, bias: Any, deterministic: bool
) -> None:
    """The arguments of a call with `cache=`.

    Raises:
        TypeError: if it is no Cache, or x or kv no floating array.
        ValueError: if it is not one of this layer, or stands beside an option that has no place there.
    """
    if not isinstance(cache, Cache):
        raise TypeError(f"cache is a {type(cache).__name__}; take the one that init_cache made or a call returned")
    check_sequences(x, kv, layer.d_model)
    check_options(positions, segments)
    for name, value, why in (
        ("kv", kv, "keys come from the tokens themselves"),
        ("mask", mask, "the slots of a cache have no columns of their own; write the rule as a pattern"),
        ("bias", bias, "the slots of a cache have no columns of their own; write it as a score_fn of positions"),
    ):
        if value is not None:
            raise ValueError(f"{name}= and cache= exclude each other: {why}")
    if not deterministic and layer.dropout_rate:
        raise ValueError("cache= with deterministic=False: decoding drops nothing; leave deterministic True")
    if x.ndim != 3:
        raise ValueError(f"x{tuple(x.shape)} must be [B, T, D] with cache=; a single row is x[None]")
    if x.shape[0] != cache.batch:
        raise ValueError(f"x{tuple(x.shape)} has {x.shape[0]} rows, but the cache is of batch {cache.batch}")
    if cache.pattern != layer.pattern:
        raise ValueError(f"the cache was made for {cache.pattern}, but this layer has {layer.pattern}")
    if cache.rope is not None and cache.rope != layer.rope:
        raise ValueError(f"the cache turns keys by {cache.rope}, but this layer by {layer.rope}")
    if layer.rope is not None and cache.rope is None and (cache.mode == "cache" or layer.rope.is_dynamic):
        raise ValueError("this cache must turn its keys anew in every step: make it with rope=, or by init_cache")


def check_options(positions: Any, segments: Any) -> None:
    """positions and segments beside a cache.

    Raises:
        ValueError: if positions are given, or segments are more than the lengths of the rows.
    """
    if positions is not None:
        raise ValueError("positions= and cache= exclude each other: the cache knows how many tokens went by")
    if segments is None:
        return
    if not isinstance(segments, Segments) or segments.q_lengths is None or segments.k_lengths is not None:
        raise ValueError(
            "segments= beside cache= may only say how many of the new tokens of each row are real: "
            "Segments.from_lengths(q=lengths)"
        )
