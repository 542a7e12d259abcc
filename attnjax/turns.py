"""Angles of the rotary embedding: how far a frequency has turned at a position, exact however far a token stands.

position * frequency in float32 is off by 0.06 radians a million tokens on, and by more than a whole turn after 2**24.
But a whole turn changes nothing, so turns are counted in fixed point: a frequency is a 64-bit fraction of a turn, and
position * fraction modulo one turn is integer arithmetic. What is left is less than half a turn either way, which
float32 holds as well as any angle.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

PER_RADIAN = 0x28BE60DB9391054A7F09D5F47D4D377036D8A566  # turns in a radian, times 2**160
WORD = 2.0**32
# 1 / (2 pi) in pieces of 12 bits.
PIECES = tuple(np.float32((PER_RADIAN >> 158 - 12 * n & 0xFFF) / 2.0 ** (2 + 12 * n)) for n in (1, 2, 3, 4))


def angles(positions: Any, frequencies: Any, plain: np.ndarray, dtype: Any) -> Any:
    """positions * frequencies in radians, less whole turns where positions are integers.

    Args:
        positions: integers (up to 2**31 - 1 either way), or floats, whose products are left as they are.
        frequencies: radians per position, broadcastable with positions: NumPy's, or an array that may be traced and is
            good to a few units in its last place.
        plain: what a traced frequency means exactly where it is this one rounded; float64, broadcastable.
        dtype: float32 or float64.

    Returns:
        NumPy for NumPy in, else a JAX array.
    """
    if jnp.issubdtype(positions.dtype, jnp.floating):
        return positions.astype(dtype) * frequencies.astype(dtype)
    words: Any
    if isinstance(frequencies, np.ndarray):
        words, rest = _fractions(frequencies)
    else:
        as_given, known = frequencies == jnp.asarray(plain, frequencies.dtype), _fractions(plain)[0]
        traced, rest = _fractions_of_traced(frequencies), None
        words = tuple(jnp.where(as_given, *pair) for pair in zip(known, traced, strict=True))
    if dtype == np.float64 or isinstance(positions, np.ndarray):
        return _in_64_bits(positions, words[0], words[1], rest).astype(dtype)
    return _in_32_bits(positions, words[0], words[1])


def _fractions(frequencies: np.ndarray) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    """(high and low 32 bits of the fraction of a turn at each position, what 64 bits leave out, in turns)."""
    ratios = [float(f).as_integer_ratio() for f in frequencies.reshape(-1)]
    turns = [(n * PER_RADIAN // d) % (1 << 160) for n, d in ratios]
    high, low = (np.array([t >> shift & 0xFFFFFFFF for t in turns], np.uint32) for shift in (128, 96))
    rest = np.array([(t & (1 << 96) - 1) / 2.0**160 for t in turns])
    shape = frequencies.shape
    return (high.reshape(shape), low.reshape(shape)), rest.reshape(shape)


def _fractions_of_traced(frequencies: Any) -> tuple[Any, Any]:
    """(high and low 32 bits of the fraction of a turn at each position), of float32 or float64."""
    if frequencies.dtype == np.float64:
        return _words(frequencies / (2 * np.pi))
    # a product of two floats of 12 bits each is a float; sums are taken as integers, so nothing rounds
    bits = lax.bitcast_convert_type(frequencies, jnp.uint32) & jnp.uint32(0xFFFFF000)
    front = lax.bitcast_convert_type(bits, jnp.float32)
    high, low = jnp.zeros_like(bits), jnp.zeros_like(bits)
    for part in (front, frequencies - front):
        for factor in PIECES:
            more = _words(part * factor)
            low = low + more[1]
            high = high + more[0] + (low < more[1]).astype(jnp.uint32)
    return high, low


def _words(turns: Any) -> tuple[Any, Any]:
    """(high and low 32 bits) of the fraction of numbers of turns."""
    scaled = (turns - jnp.floor(turns)) * WORD
    high = jnp.floor(scaled)
    return high.astype(jnp.uint32), ((scaled - high) * WORD).astype(jnp.uint32)


def _in_64_bits(positions: Any, high: Any, low: Any, rest: Any) -> Any:
    """The angles in float64: 64 bits of the turn, and what they leave out."""
    xp: Any = np if isinstance(positions, np.ndarray) else jnp
    high, low = (xp.asarray(word).astype(np.uint64) for word in (high, low))
    places = positions.astype(np.int64)
    turned = (places.astype(np.uint64) * (high << np.uint64(32) | low)).astype(np.int64)  # modulo one turn, signed
    turns = turned.astype(np.float64) / WORD**2
    return (turns if rest is None else turns + places.astype(np.float64) * xp.asarray(rest)) * (2 * np.pi)


def _in_32_bits(positions: Any, high: Any, low: Any) -> Any:
    """The angles in float32, without 64-bit types: of each product the 32 bits below whole turns."""
    high, low = jnp.asarray(high), jnp.asarray(low)
    places = positions.astype(jnp.int32)
    p = places.astype(jnp.uint32)
    turned = high * p + _high_product(low, p) - jnp.where(places < 0, low, jnp.zeros_like(low))
    return lax.bitcast_convert_type(turned, jnp.int32).astype(jnp.float32) * jnp.float32(2 * np.pi / WORD)


def _high_product(a: Any, b: Any) -> Any:
    """The upper 32 bits of a product of 32-bit numbers, from products of their halves."""
    half, mask = jnp.uint32(16), jnp.uint32(0xFFFF)
    a1, a0, b1, b0 = a >> half, a & mask, b >> half, b & mask
    inner = a1 * b0 + (a0 * b0 >> half)
    other = a0 * b1 + (inner & mask)
    return a1 * b1 + (inner >> half) + (other >> half)
