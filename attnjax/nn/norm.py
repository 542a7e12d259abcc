"""Normalisation."""

import typing
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Float

from attnjax.nn.inputs import check_vectors
from attnjax.patterns.checks import size_of
from attnjax.scores import number
from attnjax.shapes import wide_dtype


class RMSNorm(nnx.Module):
    """x / rms(x) * scale over the last axis (Zhang and Sennrich 2019, "Root Mean Square Layer
    Normalization").

    Computed in float32 (float64 for a float64 x), returned in `dtype`. It draws no random numbers, so it
    takes no `rngs`.

    Args:
        dim: size of the last axis.
        eps: added to the mean square, at least 0.
        dtype: dtype of the output.
        param_dtype: dtype of `scale`.

    Raises:
        TypeError: if `dim` is no int, `eps` no number, or x no floating array.
        ValueError: if `dim` is below 1, `eps` below 0 or none that float32 holds, or x's last axis is not `dim`.

    Example:
        >>> import jax.numpy as jnp
        >>> from attnjax import nn
        >>> nn.RMSNorm(2)(jnp.array([[3.0, -3.0]])).round(3).tolist()
        [[1.0, -1.0]]
    """

    @typing.no_type_check
    def __init__(
        self, dim: int, *, eps: float = 1e-6, dtype: Any = jnp.float32, param_dtype: Any = jnp.float32
    ):
        self.dim = size_of("dim", dim)
        self.eps, self.dtype = number("eps", eps, "a constant of the model"), dtype
        if self.eps < 0:
            raise ValueError(f"eps={self.eps} must be at least 0: it is added to a mean of squares")
        self.scale = nnx.Param(jnp.ones((self.dim,), param_dtype))

    @typing.no_type_check
    def __call__(self, x: Float[jax.Array, "... dim"]) -> Float[jax.Array, "... dim"]:
        """Each vector by itself; computed in float32 (float64 for float64 inputs)."""
        check_vectors(x, "this norm's dim", self.dim)
        x = jnp.asarray(x)
        wide = wide_dtype(x.dtype)
        x = x.astype(wide)
        scale = self.scale[...].astype(wide).reshape((1,) * (x.ndim - 1) + (self.dim,))
        mean_square = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
        return (x * jax.lax.rsqrt(mean_square + self.eps) * scale).astype(self.dtype)
