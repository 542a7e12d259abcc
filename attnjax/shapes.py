"""Dimension letters, array types, and the one check of q, k and v at the door.

B batch, T queries, S keys, N query heads, K key/value heads, G = N // K queries per key head,
H head size of q and k, h head size of v.
"""

from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.export import is_symbolic_dim
from jaxtyping import Float

Queries: TypeAlias = Float[Array, "*B T N H"]
Keys: TypeAlias = Float[Array, "*B S K H"]
Values: TypeAlias = Float[Array, "*B S K h"]
Output: TypeAlias = Float[Array, "*B T N h"]
Lse: TypeAlias = Float[Array, "*B T N"]
Scores: TypeAlias = Float[Array, "*B N T S"]


class Dims(NamedTuple):
    """Sizes of one call; B is 1 when q came without a batch axis."""

    B: int
    T: int
    S: int
    N: int
    K: int
    H: int
    h: int
    batched: bool


def is_symbolic(*sizes: Any) -> bool:
    """Whether one of these sizes stands for any number, as `jax.export.symbolic_shape` makes them."""
    return any(map(is_symbolic_dim, sizes))


def shown(**arrays: Any) -> str:
    """`q(2, 4, 8, 64) k(2, 4, 2, 64)`: the shapes, for error messages."""
    return " ".join(f"{name}{tuple(a.shape)}" for name, a in arrays.items() if a is not None)


def check_float(way_out: str = "", **arrays: Any) -> None:
    """Each array must have a shape and a floating dtype.

    Raises:
        TypeError: if one is no array or not floating.
    """
    for name, a in arrays.items():
        if not hasattr(a, "shape") or not hasattr(a, "dtype"):
            raise TypeError(f"{name} is a {type(a).__name__}, not an array; convert it with jnp.asarray first")
        if not jnp.issubdtype(a.dtype, jnp.floating):
            raise TypeError(f"{name} has dtype {a.dtype}; attention needs a floating dtype such as float32{way_out}")


def check_bool(way_out: str = "", **arrays: Any) -> None:
    """Each array must be bool: True means may look.

    Raises:
        TypeError: if one is not.
    """
    for name, a in arrays.items():
        if getattr(a, "dtype", None) != jnp.bool_:
            what = f"has dtype {a.dtype}" if hasattr(a, "dtype") else f"is a {type(a).__name__}"
            raise TypeError(f"{name} {what}; a mask is a bool array, True means may look.{way_out}")


def check_qkv(q: Any, k: Any, v: Any) -> Dims:
    """Sizes of q [*B, T, N, H], k [*B, S, K, H] and v [*B, S, K, h], or an error that says what does not fit.

    Raises:
        TypeError: if one is not a floating array.
        ValueError: if ranks, batch, lengths or heads do not fit together.
    """
    check_float(q=q, k=k, v=v)
    got = f"got {shown(q=q, k=k, v=v)}" + swapped(q, k, v)
    if not (len(q.shape) == len(k.shape) == len(v.shape) and len(q.shape) in (3, 4)):
        raise ValueError(f"q, k and v must all be [T, N, H] or all [B, T, N, H] (length before heads); {got}")
    batched = len(q.shape) == 4
    if batched and not q.shape[0] == k.shape[0] == v.shape[0]:
        raise ValueError(f"q, k and v have different batch sizes; {got}. Broadcast them to one batch size first")
    T, N, H = q.shape[-3:]
    S, K, Hk = k.shape[-3:]
    if v.shape[-3] != S:
        raise ValueError(f"k has {S} keys but v has {v.shape[-3]} values; they must be equal; {got}")
    if v.shape[-2] != K:
        raise ValueError(f"k has {K} heads but v has {v.shape[-2]}; they must be equal; {got}")
    if H != Hk:
        raise ValueError(f"q has head size {H} but k has {Hk}; they must be equal (v's may differ); {got}")
    if H == 0:
        raise ValueError(f"the head size of q and k is 0; it must be at least 1; {got}")
    check_heads(N, K, got)
    return Dims(q.shape[0] if batched else 1, T, S, N, K, H, v.shape[-1], batched)


def swapped(q: Any, k: Any, v: Any) -> str:
    """A hint where arrays that do not fit would fit with heads before length, as other libraries have them; else ''."""
    if not len(q.shape) == len(k.shape) == len(v.shape) == 4:
        return ""
    (B, N, _, H), (K, S) = q.shape, k.shape[1:3]
    if is_symbolic(*q.shape, *k.shape):
        return ""
    fits = k.shape == (B, K, S, H) and v.shape[:3] == (B, K, S) and 0 < K < S and N % K == 0
    hint = "; they look like [B, heads, length, size], and here length comes before heads: x.swapaxes(1, 2)"
    return hint if fits else ""


def check_heads(num_heads: int, num_kv_heads: int, got: str = "") -> None:
    """Query heads must be a positive multiple of key/value heads.

    Raises:
        ValueError: naming both numbers.
    """
    if num_kv_heads < 1 or num_heads < 1 or num_heads % num_kv_heads:
        raise ValueError(
            f"{num_heads} query heads cannot share {num_kv_heads} key/value heads: the number of query heads must "
            f"be a multiple of the number of key/value heads (query head n uses key head n // (N / K))"
            + (f"; {got}" if got else "")
        )


def compute_dtype(*arrays: Any) -> Any:
    """dtype of scores, softmax and log-sum-exp: float64 if an input is, else float32."""
    return wide_dtype(*(a.dtype for a in arrays if a is not None))


def wide_dtype(*dtypes: Any) -> Any:
    """float64 if one of them is, else float32."""
    return jnp.float64 if any(jnp.dtype(dtype) == jnp.float64 for dtype in dtypes) else jnp.float32


def to_int32(name: str, x: Any) -> Any:
    """An integer array as int32; shapes alone stay shapes.

    Raises:
        ValueError: if a known number does not fit (it would wrap around in silence).
    """
    if isinstance(x, jax.ShapeDtypeStruct):
        return x
    if not isinstance(x, Tracer) and x.size and x.dtype in ("int64", "uint32", "uint64"):
        known = np.asarray(x)  # NumPy's: inside jit even known JAX arrays give traced results
        low, high = int(known.min()), int(known.max())
        if low < -(2**31) or high >= 2**31:
            raise ValueError(f"{name} holds {low if low < -(2**31) else high}, which does not fit into int32")
    return jnp.asarray(x).astype(jnp.int32)


def to_rank(x: Any, rank: int) -> Any:
    """x with leading axes of size 1 added, or dropped, until it has `rank` axes."""
    return x.reshape(((1,) * rank + tuple(x.shape))[-rank:]) if rank else x.reshape(())


def broadcasts(x: Any, shape: tuple[Any, ...]) -> bool:
    """Whether x can broadcast to `shape`: each axis of that size or 1, extra leading axes only of size 1."""
    size = tuple(x.shape)
    extra, own = size[: max(0, len(size) - len(shape))], size[max(0, len(size) - len(shape)) :]
    return set(extra) <= {1} and all(a in (1, b) for a, b in zip(own[::-1], shape[::-1], strict=False))
