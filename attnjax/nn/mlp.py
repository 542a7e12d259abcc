"""The feed-forward half of a block."""

import typing
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Float

from attnjax.patterns.checks import integer


class SwiGLU(nnx.Module):
    """down(silu(gate(x)) * up(x)) (Shazeer 2020, "GLU Variants Improve Transformer"), as in Llama.

    Args:
        d_model: size of the input and of the output.
        d_ff: size in between.
        use_bias: biases on all three projections.
        dtype: dtype of the computation and of the output.
        param_dtype: dtype of the parameters.
        rngs: where the first weights come from.

    Raises:
        ValueError: if a size is below 1, or x's last axis is not `d_model`.

    Example:
        >>> import jax.numpy as jnp
        >>> from attnjax import nn
        >>> from flax import nnx
        >>> nn.SwiGLU(8, 24, rngs=nnx.Rngs(0))(jnp.ones((2, 5, 8))).shape
        (2, 5, 8)
    """

    @typing.no_type_check
    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        use_bias: bool = False,
        dtype: Any = jnp.float32,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        self.d_model, self.d_ff = integer("d_model", d_model, 1), integer("d_ff", d_ff, 1)
        options = dict(use_bias=use_bias, dtype=dtype, param_dtype=param_dtype, rngs=rngs)
        self.gate = nnx.Linear(self.d_model, self.d_ff, **options)
        self.up = nnx.Linear(self.d_model, self.d_ff, **options)
        self.down = nnx.Linear(self.d_ff, self.d_model, **options)

    @typing.no_type_check
    def __call__(self, x: Float[jax.Array, "... d_model"]) -> Float[jax.Array, "... d_model"]:
        """Each vector by itself."""
        if x.ndim == 0 or x.shape[-1] != self.d_model:
            raise ValueError(f"x{x.shape} does not end in this layer's d_model={self.d_model}")
        return self.down(jax.nn.silu(self.gate(x)) * self.up(x))
