"""Everything that can be wrong with a cache or a step, said before anything is written."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from attnjax.patterns import Pattern, PerHead
from attnjax.patterns.checks import LARGEST, size
from attnjax.rope import Rope
from attnjax.shapes import check_float, shown, to_int32
from attnjax.visible import check_pattern

POSITIONS = ("text", "cache")
MOST_BYTES = 2**44  # of one cache: nothing holds more, and XLA ends the process where it cannot count them


def check_decodable(pattern: Any) -> Pattern | PerHead:
    """The pattern, if its queries can be answered before later keys exist.

    Raises:
        TypeError: if it is no pattern.
        ValueError: if it sees the future and is not exactly `Prefix(n)`.
    """
    if check_pattern(pattern).sees_future and not pattern.is_prefix:
        raise ValueError(
            f"{pattern} looks at tokens after the query, which do not exist yet while decoding; write it & causal(), "
            "or use prefix(n), whose n tokens arrive in the first chunk"
        )
    return pattern


def check_dtype(dtype: Any) -> Any:
    """The dtype in which keys and values are kept.

    Raises:
        TypeError: if it is no floating dtype of 16 bits or more.
        ValueError: if JAX would narrow it.
    """
    try:
        found = jnp.dtype(dtype)
    except TypeError:
        raise TypeError(f"dtype={dtype!r} is not a dtype; give one such as jnp.bfloat16") from None
    if not jnp.issubdtype(found, jnp.floating) or found.itemsize < 2:
        raise TypeError(f"dtype={found} cannot hold keys and values; give float32, bfloat16 or float16")
    if jax.dtypes.canonicalize_dtype(found) != found:
        raise ValueError(f"dtype={found} needs 64-bit types: set jax_enable_x64, or keep float32")
    return found


def zeros(shapes: tuple[tuple[int, ...], ...], dtype: Any) -> tuple[Any, ...]:
    """Empty keys and values.

    Raises:
        ValueError: if there is no memory for them, with their bytes.
    """
    num_bytes = sum(map(math.prod, shapes)) * dtype.itemsize
    try:
        if num_bytes <= MOST_BYTES:
            return tuple(jnp.zeros(shape, dtype) for shape in shapes)
    except jax.errors.JaxRuntimeError as fault:
        if "RESOURCE_EXHAUSTED" not in str(fault):
            raise
    raise ValueError(
        f"keys {shapes[0]} and values {shapes[1]}, [B, slots, K, H], take {num_bytes / 2**30:.6g} GiB in {dtype}, more "
        "than there is; take a smaller max_length or batch"
    )


def check_positions(positions: Any, rope: Any, head_dim: int) -> None:
    """The mode and its rotation.

    Raises:
        TypeError: if `rope` is no `nn.Rope`.
        ValueError: if `positions` is no mode, or the rotation does not fit the heads.
    """
    if positions not in POSITIONS:
        raise ValueError(f"positions={positions!r} must be 'text' (where tokens stand) or 'cache' (their places)")
    if rope is not None:
        if not isinstance(rope, Rope):
            raise TypeError(f"rope is a {type(rope).__name__}; give None or nn.Rope(theta=10000.0)")
        rope.check_head(head_dim)


def check_chunk(cache: Any, q: Any, k: Any, v: Any) -> None:
    """q (None for `append`), k and v of a chunk against the cache that they join.

    Raises:
        TypeError: if one is no floating array.
        ValueError: if batch, heads or head sizes differ from the cache's.
    """
    arrays = dict(k=k, v=v) if q is None else dict(q=q, k=k, v=v)
    check_float(**arrays)
    B, _, K, H = cache.k.shape
    want = {"q": (B, "T", "N", H), "k": (B, "T", K, H), "v": (B, "T", K, cache.v.shape[3])}
    for name, x in arrays.items():
        fits = len(x.shape) == 4 and all(b in ("T", "N", a) for a, b in zip(x.shape, want[name], strict=True))
        if not fits or x.shape[1] != k.shape[1]:
            needs = "[" + ", ".join(map(str, want[name])) + "]"
            raise ValueError(f"{name} must be {needs} for this cache of batch {B}; got {shown(**arrays)}")


def check_lengths(lengths: Any, B: int, T: int) -> Any:
    """How many tokens of each row are real, int32 [B]; None for all.

    Raises:
        TypeError: if they are not integers.
        ValueError: if there is not one for each row, or one is not in [0, T].
    """
    if lengths is None:
        return None
    lengths = _array("lengths", lengths)
    if not jnp.issubdtype(lengths.dtype, jnp.integer):
        raise TypeError(f"lengths have dtype {lengths.dtype}; they count tokens, so they are integers")
    if lengths.shape != (B,):
        raise ValueError(f"{shown(lengths=lengths)} must hold one length per row: [{B}]")
    if not isinstance(lengths, Tracer):
        for row, n in enumerate(np.asarray(lengths)):
            if not 0 <= n <= T:
                raise ValueError(f"lengths[{row}]={n} of a chunk of {T} tokens: it must be 0 to {T}")
    return to_int32("lengths", lengths)


def check_room(cache: Any, length: Any, full: Any, short: Any, tokens: Any) -> None:
    """Outside jit: no row is `full`, and none gets less than its prefix (`short`).

    Raises:
        ValueError: naming the row, what it holds and what it was to get.
    """
    if any(isinstance(x, Tracer) for x in (full, short)):
        return
    end = f"max_length={cache.max_length} and {cache.pattern} needs every key; create it with a larger max_length, or"
    for row in np.flatnonzero(np.asarray(full)):
        raise ValueError(
            f"row {row} of the cache holds {int(length[row])} tokens and was to get {int(tokens[row])} more, but "
            f"{f'positions are int32, at most {LARGEST};' if cache.slots.endless else end} reset the row"
        )
    for row in np.flatnonzero(np.asarray(short)):
        raise ValueError(
            f"row {row} gets {int(tokens[row])} tokens in its first chunk, but {cache.pattern} shows its first "
            f"{cache.pattern.prefix_length} tokens to each other: give them in one chunk"
        )


def check_rows(name: str, rows: Any, B: int) -> Any:
    """Row numbers as int32 [n].

    Raises:
        TypeError: if they are not integers.
        ValueError: if one is not in [0, B).
    """
    rows = _array(name, rows)
    if not jnp.issubdtype(rows.dtype, jnp.integer) or rows.ndim > 1:
        raise TypeError(f"{name} is {rows.dtype}{rows.shape}; give the numbers of rows, an int or [n]")
    if not isinstance(rows, Tracer):
        for row in np.atleast_1d(np.asarray(rows)):
            if not 0 <= row < B:
                raise ValueError(f"{name}: there is no row {row} in a cache of batch {B}")
    return jnp.atleast_1d(to_int32(name, rows))


def check_chosen(rows: Any, B: int) -> Any:
    """Rows by their numbers, or as a bool for each: bool [B]. None: all.

    Raises:
        TypeError: if they are neither.
        ValueError: if there is no such row, or not one bool for each.
    """
    if rows is None:
        return jnp.ones((B,), bool)
    rows = _array("rows", rows)
    if rows.dtype != bool:
        rows = check_rows("rows", rows, B)
        return jnp.any(jnp.arange(B, dtype=jnp.int32)[:, None] == rows[None], axis=1)
    if rows.shape != (B,):
        raise ValueError(f"rows{rows.shape} must hold one bool per row: [{B}]")
    return jnp.asarray(rows)


def check_tokens(tokens: Any, B: int) -> Any:
    """How many tokens to take back in each row, int32 [B].

    Raises:
        TypeError: if they are not integers.
        ValueError: if there is neither one number nor one for each row, or one is negative.
    """
    if not hasattr(tokens, "dtype") and not isinstance(tokens, (list, tuple)):
        tokens = size("tokens", tokens, 0, "a row gives back from 0 to all of its tokens")
    tokens = _array("tokens", tokens)
    if not jnp.issubdtype(tokens.dtype, jnp.integer):
        raise TypeError(f"tokens have dtype {tokens.dtype}; they count tokens, so they are integers")
    if tokens.shape not in ((), (B,)):
        raise ValueError(f"{shown(tokens=tokens)} must be one number or one per row: [{B}]")
    if not isinstance(tokens, Tracer) and tokens.size and np.min(np.asarray(tokens)) < 0:
        raise ValueError(f"tokens hold {np.min(np.asarray(tokens))}; a row gives back from 0 to all of its tokens")
    return jnp.broadcast_to(to_int32("tokens", tokens), (B,))


def check_trim(cache: Any, allowed: Any, tokens: Any) -> None:
    """Outside jit: every row can give these tokens back.

    Raises:
        ValueError: naming the row, what it holds and what it was to give.
    """
    if isinstance(allowed, Tracer):
        return
    for row in np.flatnonzero(~np.asarray(allowed)):
        n, length, prefix = int(tokens[row]), int(cache.length[row]), cache.pattern.prefix_length
        if n > length:
            why = f"there are only {length}"
        elif 0 < length - n < prefix:
            why = (
                f"{cache.pattern} shows its first {prefix} tokens to each other, so none of them goes alone; give back "
                f"at most {length - prefix}, or all {length}"
            )
        else:
            why = (
                f"{cache.pattern} keeps {cache.slots.size}, and keys that the next query needs were overwritten; "
                "reset the row and feed the text again"
            )
        raise ValueError(f"row {row} of the cache cannot give back {n} of its {length} tokens: {why}")


def _array(name: str, x: Any) -> Any:
    """An array as it is; anything else as NumPy's, where nothing listed is a list of integers."""
    if hasattr(x, "dtype"):
        return x
    try:
        found = np.asarray(x)
    except ValueError:
        raise ValueError(f"{name}={x!r} is nested; it is one number or a flat list of them") from None
    return found if found.size else found.astype(np.int32)
