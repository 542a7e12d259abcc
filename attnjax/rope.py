"""Rotary position embedding: turns pairs of channels by an angle that grows with the position.

A pure function: the frequencies are NumPy constants made inside the call, so nothing is remembered between
calls, no table can be too short and no tracer can leak out of one.
"""

import dataclasses
import difflib
import functools
import math
import operator
import typing
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Float, Num

from attnjax import turns
from attnjax.patterns.checks import integer
from attnjax.rope_scaling import DynamicScaling, Scaling, plain_frequencies, read_scaling
from attnjax.scores import number
from attnjax.shapes import broadcasts, to_rank

LAYOUTS = ("half", "interleaved")


@typing.no_type_check
@dataclasses.dataclass(frozen=True)
class Rope:
    """How a module rotates its queries and keys (Su et al. 2021, "RoFormer"): the settings of `rope`, no arrays.

    Args:
        theta: the base of the frequencies.
        layout: "half" or "interleaved", see `rope`.
        rotary_dim: how many leading channels of a head turn; None means all.
        scaling: None, or how the frequencies are stretched, see `rope`; kept as a record.

    Raises:
        TypeError: if a setting has the wrong type.
        ValueError: if a setting has the wrong value.

    Example:
        >>> from attnjax import nn
        >>> nn.Rope(theta=500000.0).layout
        'half'
    """

    theta: float = 10000.0
    layout: str = "half"
    rotary_dim: int | None = None
    scaling: Scaling | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        _check_settings(self.theta, self.layout, self.rotary_dim)
        object.__setattr__(self, "theta", float(self.theta))
        object.__setattr__(self, "scaling", read_scaling(self.scaling))

    def check_head(self, head_dim: int) -> None:
        """Raises the error that `rope` would raise for heads of this size."""
        _rotary_dim(head_dim, self.rotary_dim)

    @property
    def is_dynamic(self) -> bool:
        """Whether the frequencies follow the length of the text."""
        return isinstance(self.scaling, DynamicScaling)

    def length(self, *positions: Any) -> Any:
        """The length that all positions of a row share which meet in one call, or None if no frequency depends on it:
        one number [] of positions [T], one for each row, [B|1, 1], of positions [B|1, T]."""
        if not self.is_dynamic:
            return None
        return functools.reduce(jnp.maximum, (_length_of(jnp, p, np.dtype(np.float32)) for p in positions))

    def __call__(self, x: Any, positions: Any, length: Any = None) -> Any:
        """`rope(x, positions)` with these settings."""
        settings = dict(theta=self.theta, scaling=self.scaling, layout=self.layout, rotary_dim=self.rotary_dim)
        return rope(x, positions, length=length, **settings)


@typing.no_type_check
def rope(
    x: Float[jax.Array | np.ndarray, "... T N H"],
    positions: Num[jax.Array | np.ndarray, "... T"],
    *,
    theta: float = 10000.0,
    scaling: Scaling | Mapping[str, Any] | None = None,
    layout: str = "half",
    rotary_dim: int | None = None,
    length: int | Num[jax.Array | np.ndarray, "..."] | None = None,
) -> Float[jax.Array | np.ndarray, "... T N H"]:
    """Rotates x by its positions (RoFormer, Su et al. 2021), so that the dot product of a query and a key
    depends on how far apart they are and not on where they sit.

    Pair i of the first `rotary_dim` channels turns by positions * theta**(-2i / rotary_dim). Angles and the
    rotation are float32 (float64 when x is), the output has x's dtype. NumPy arrays in give NumPy out.

    Args:
        x: queries or keys, [T, N, H] or with leading axes.
        positions: [T], or a row per leading axis of x ([B, T]; a leading size of 1 broadcasts). Integers, or
            float32/float64 for places between them; 16-bit floats lose whole positions beyond 256.
        theta: the base of the frequencies; a larger one turns more slowly.
        scaling: None, a record (`nn.LinearScaling`, `nn.DynamicScaling`, `nn.YarnScaling`, `nn.Llama3Scaling`)
            or a mapping as in Hugging Face configs: {"rope_type": "yarn", "factor": 32.0, ...}.
        layout: which channels form pair i. "half": i and i + rotary_dim / 2 (GPT-NeoX, Gemma, Llama as
            Hugging Face stores it). "interleaved": 2i and 2i + 1 (the paper, GPT-J, Llama as Meta stores it).
        rotary_dim: how many leading channels turn, the others pass bit for bit. None means all H.
        length: what the base of dynamic NTK is computed from: an int, or an array that broadcasts with positions
            and may be traced ([]: one for all; [B, 1]: one for each row; [B, T]: one for each token). None means
            the largest position + 1, in each row. No other scaling reads it, so no other takes it.

    Returns:
        x rotated, with its shape and dtype.

    Raises:
        TypeError: if x is not floating, or positions are neither integers nor float32/float64.
        ValueError: if a shape or a setting is wrong, a length is below 1, or `length` is given to a rule that does
            not read it.

    Example:
        >>> import attnjax as aj, numpy as np
        >>> x = np.ones((3, 1, 2))  # three positions, one head, one pair of channels
        >>> aj.rope(x, np.arange(3))[:, 0].round(3).tolist()  # turned by 0, 1 and 2 radians
        [[1.0, 1.0], [-0.301, 1.382], [-1.325, 0.493]]
    """
    in_numpy = isinstance(x, np.ndarray) and isinstance(positions, np.ndarray) and not isinstance(length, jax.Array)
    if not in_numpy:
        x, positions = jnp.asarray(x), jnp.asarray(positions)
    _check_arrays(x, positions)
    _check_settings(theta, layout, rotary_dim)
    R = _rotary_dim(x.shape[-1], rotary_dim)
    dtype = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
    xp: Any = np if in_numpy else jnp
    scaling = read_scaling(scaling)
    length = _length(xp, scaling, length, positions, x.shape[:-2], dtype)
    frequencies = plain_frequencies(theta, R) if scaling is None else scaling.frequencies(theta, R, length)
    angles = _angles(positions, frequencies, plain_frequencies(theta, R), x.ndim, dtype)
    magnitude = 1.0 if scaling is None else scaling.magnitude
    return _rotate(xp, x, xp.cos(angles) * magnitude, xp.sin(angles) * magnitude, layout)


def _length(xp: Any, scaling: Any, length: Any, positions: Any, lead: tuple[int, ...], dtype: np.dtype) -> Any:
    """What `scaling` takes for the length of this call: None, a number or a floating array."""
    if not isinstance(scaling, DynamicScaling):
        if length is not None:
            rule = "without scaling" if scaling is None else f"under rope_type={scaling.rope_type!r}"
            raise ValueError(f"length={length!r}: {rule} nothing depends on it; leave it None")
        return None
    if length is None:
        return _length_of(xp, positions, dtype)
    if not hasattr(length, "shape"):
        return integer("length", length, 1)
    if not any(jnp.issubdtype(length.dtype, kind) for kind in (jnp.integer, jnp.floating)):
        raise TypeError(f"length has dtype {length.dtype}; it is a number of tokens")
    if len(length.shape) > len(lead) or not broadcasts(length, lead):
        raise ValueError(
            f"length is {length.dtype}{tuple(length.shape)}; it must be one number, or broadcast to the tokens {lead}: "
            "one for each row of a batch is [B, 1]"
        )
    if not isinstance(length, Tracer) and length.size and not np.min(np.asarray(length)) >= 1:
        raise ValueError(f"length holds {np.min(np.asarray(length))}; a text has at least 1 token")
    return xp.asarray(length).astype(dtype)


def _length_of(xp: Any, positions: Any, dtype: np.dtype) -> Any:
    """The largest position of each row + 1, floating: [] of positions [T], else [..., 1]."""
    positions = xp.asarray(positions)
    return xp.max(positions, axis=-1, keepdims=positions.ndim > 1, initial=0).astype(dtype) + 1


def _angles(positions: Any, frequencies: Any, plain: np.ndarray, ndim: int, dtype: np.dtype) -> Any:
    """[..., T, 1, R / 2], with as many axes as x: the 1 stands where x has its heads. Frequencies are [R / 2], or
    [..., T|1, R / 2] where rows or tokens have their own."""
    positions = to_rank(positions[..., None, None], ndim)
    frequencies, plain = (to_rank(f[..., None, :], ndim) for f in (frequencies, plain))
    return turns.angles(positions, frequencies, plain, dtype)


def _rotate(xp: Any, x: Any, cos: Any, sin: Any, layout: str) -> Any:
    R = 2 * cos.shape[-1]
    turning, rest = x[..., :R].astype(cos.dtype), x[..., R:]
    if layout == "half":
        a, b = turning[..., : R // 2], turning[..., R // 2 :]
    else:
        a, b = turning[..., 0::2], turning[..., 1::2]
    a, b = a * cos - b * sin, b * cos + a * sin
    turned = xp.concatenate([a, b], -1) if layout == "half" else xp.stack([a, b], -1).reshape(turning.shape)
    return xp.concatenate([turned.astype(x.dtype), rest], -1)


def _check_arrays(x: Any, positions: Any) -> None:
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(f"x has dtype {x.dtype}; rope rotates floating arrays")
    if x.ndim < 3:
        raise ValueError(f"x{x.shape} needs at least the axes [T, N, H]; a single head is x[:, None, :]")
    check_positions(positions, x.shape[:-2], f"x{x.shape}")


def check_positions(positions: Any, lead: tuple[int, ...], beside: str) -> None:
    """Positions of the rows of an array whose axes up to that of the rows are `lead`.

    Raises:
        TypeError: if they are neither integers nor float32/float64.
        ValueError: if they do not fit.
    """
    if not jnp.issubdtype(positions.dtype, jnp.integer) and positions.dtype not in (np.float32, np.float64):
        raise TypeError(
            f"positions have dtype {positions.dtype}; give integers (or float32/float64 between integers)"
        )
    where = positions.shape
    fits = len(where) in (1, len(lead)) and where[-1:] == lead[-1:]
    if not fits or any(n not in (1, m) for n, m in zip(where[:-1], lead[:-1], strict=False)):
        raise ValueError(
            f"positions{where} do not fit {beside}: they must be [T] = ({lead[-1]},)"
            + (f" or one row per leading axis, {lead}" if len(lead) > 1 else "")
        )


def _check_settings(theta: Any, layout: Any, rotary_dim: Any) -> None:
    if isinstance(theta, bool) or not isinstance(theta, (int, float, np.number)):
        raise TypeError(f"theta={theta!r} is a {type(theta).__name__}; it must be a number such as 10000.0")
    if not 0 < number("theta", theta, "the base is a constant of the model", finite=False) < math.inf:
        raise ValueError(f"theta={theta} must be positive and finite")
    if layout not in LAYOUTS:
        near = difflib.get_close_matches(str(layout).lower(), LAYOUTS, 1, 0.0)[0]
        raise ValueError(f"layout={layout!r} is not one of {', '.join(LAYOUTS)}; did you mean {near!r}?")
    if rotary_dim is not None and (isinstance(rotary_dim, bool) or not hasattr(rotary_dim, "__index__")):
        raise TypeError(f"rotary_dim={rotary_dim!r} is a {type(rotary_dim).__name__}; give an int or None")
    if rotary_dim is not None and (rotary_dim < 2 or rotary_dim % 2):
        raise ValueError(f"rotary_dim={rotary_dim} must be even and at least 2: channels turn in pairs")


def _rotary_dim(H: int, rotary_dim: int | None) -> int:
    if rotary_dim is None and H % 2:
        raise ValueError(f"head size H={H} is odd, so one channel has no partner; pass rotary_dim={H - 1}")
    R = H if rotary_dim is None else operator.index(rotary_dim)
    if R > H:
        raise ValueError(f"rotary_dim={R} is larger than the head size H={H}")
    return R
