"""The feed-forward half of a block."""

import difflib
import functools
import typing
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Float

from attnjax.nn.inputs import check_vectors
from attnjax.nn.placing import joined
from attnjax.patterns.checks import size_of

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "silu": jax.nn.silu,
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
}


class SwiGLU(nnx.Module):
    """down(silu(gate(x)) * up(x)) (Shazeer 2020, "GLU Variants Improve Transformer"), as in Llama; with another
    activation as in Gemma, where it is called GeGLU.

    Args:
        d_model: size of the input and of the output.
        d_ff: size in between.
        use_bias: biases on all three projections.
        activation: "silu", "gelu" or "gelu_tanh" (the tanh approximation of Hendrycks and Gimpel 2016, "Gaussian
            Error Linear Units").
        dtype: dtype of the computation and of the output.
        param_dtype: dtype of the parameters.
        rngs: where the first weights come from.

    Raises:
        TypeError: if a size is no int, or x no floating array.
        ValueError: if a size is below 1, there is no such activation, or x's last axis is not `d_model`.

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
        activation: str = "silu",
        dtype: Any = jnp.float32,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        self.d_model, self.d_ff = size_of("d_model", d_model), size_of("d_ff", d_ff)
        self.activation = check_activation(activation)
        options = dict(use_bias=use_bias, dtype=dtype, param_dtype=param_dtype, rngs=rngs)
        self.gate = nnx.Linear(self.d_model, self.d_ff, **options)
        self.up = nnx.Linear(self.d_model, self.d_ff, **options)
        self.down = nnx.Linear(self.d_ff, self.d_model, **options)

    @typing.no_type_check
    def __call__(self, x: Float[jax.Array, "... d_model"]) -> Float[jax.Array, "... d_model"]:
        """Each vector by itself."""
        check_vectors(x, "this layer's d_model", self.d_model)
        return joined(self.down, ACTIVATIONS[self.activation](self.gate(x)) * self.up(x))


def check_activation(name: Any) -> str:
    """The name, if there is such an activation.

    Raises:
        ValueError: if not, with the names and the nearest one.
    """
    if not isinstance(name, str) or name not in ACTIVATIONS:
        near = difflib.get_close_matches(str(name), ACTIVATIONS, 1, 0)[0]
        raise ValueError(f"activation={name!r} is not one of {', '.join(ACTIVATIONS)}; did you mean {near!r}?")
    return name
