"""How many pairs of a rectangle lie on given diagonals, in closed form.

Everything is half open. Functions take Python ints (any size, exact) or int64 arrays that broadcast.
"""

from typing import Any


def _positive(x: Any) -> Any:
    """max(x, 0), for ints of any size and for arrays."""
    return (x > 0) * x


def clip(x: Any, low: Any, high: Any) -> Any:
    """x held inside [low, high], for ints of any size and for arrays."""
    return low + _positive(x - low) - _positive(x - high)


def _ramp(u: Any, start: Any, residue: Any, step: int) -> Any:
    """Sum of (t + 1 - start) over start <= t < u with t % step == residue % step."""
    first = start + (residue - start) % step
    terms = _positive(-((first - u) // step))
    return terms * (first + 1 - start) + step * (terms * (terms - 1) // 2)


def pairs(q0: Any, q1: Any, k0: Any, k1: Any, d0: Any, d1: Any, step: int = 1) -> Any:
    """Number of (q, k) in [q0, q1) x [k0, k1) with d0 <= q - k < d1 and (q - k) % step == 0.

    The number of pairs on diagonal t of an n x m rectangle rises by one, stays, and falls by one:
    (t + 1)+ - (t + 1 - n)+ - (t + 1 - m)+ + (t + 1 - n - m)+, so a sum over diagonals is four ramps.
    """
    n, m = _positive(q1 - q0), _positive(k1 - k0)
    first = q0 - k0 - m + 1  # q - k on diagonal t = 0
    low, high = clip(d0 - first, 0, n + m), clip(d1 - first, 0, n + m)
    high = low + _positive(high - low)

    def below(u: Any) -> Any:
        return (
            _ramp(u, 0, -first, step)
            - _ramp(u, n, -first, step)
            - _ramp(u, m, -first, step)
            + _ramp(u, n + m, -first, step)
        )

    return below(high) - below(low)
