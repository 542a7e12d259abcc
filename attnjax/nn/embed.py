"""Tokens to vectors, and vectors back to logits."""

import typing
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.core import Tracer
from jaxtyping import Float, Int

from attnjax.nn.inputs import check_tokens, check_vectors
from attnjax.nn.placing import rows_of
from attnjax.patterns.checks import size_of
from attnjax.scores import number
from attnjax.shapes import wide_dtype


class Embedding(nnx.Module):
    """A table of one vector per token.

    Args:
        vocab_size: number of tokens.
        d_model: size of a vector.
        scale: factor on the vectors that come out, rounded to `dtype` first (Gemma: sqrt(d_model)); None is 1. The
            logits do not have it.
        dtype: dtype of the vectors that come out.
        param_dtype: dtype of the table.
        rngs: where the first weights come from (normal, standard deviation 1 / sqrt(d_model), so that the
            same table works as the output head).

    Raises:
        TypeError: if a size is no int, `scale` no number, or tokens are no array of integers.
        ValueError: if a size is below 1, `scale` not finite, or a token of an eager call is not in [0, vocab_size).
            While tracing the tokens are not known: there such a token gives a vector of NaN.

    Example:
        >>> import jax.numpy as jnp
        >>> from attnjax import nn
        >>> from flax import nnx
        >>> table = nn.Embedding(16, 4, rngs=nnx.Rngs(0))
        >>> table(jnp.array([[3, 0, 15]])).shape, table.logits(jnp.ones((1, 3, 4))).shape
        ((1, 3, 4), (1, 3, 16))
    """

    @typing.no_type_check
    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        *,
        scale: float | None = None,
        dtype: Any = jnp.float32,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        self.vocab_size, self.d_model = size_of("vocab_size", vocab_size), size_of("d_model", d_model)
        self.scale = None if scale is None else number("scale", scale, "a constant of the model", dtype)
        self.dtype = dtype
        init = nnx.initializers.normal(self.d_model**-0.5)
        self.table = nnx.Param(init(rngs.params(), (self.vocab_size, self.d_model), param_dtype))

    @typing.no_type_check
    def __call__(self, tokens: Int[jax.Array, "..."]) -> Float[jax.Array, "... d_model"]:
        """The vectors of the tokens."""
        self._check(tokens)
        index = jnp.asarray(tokens).astype(jnp.int32)
        # A negative index would count from the end, so it is sent past the end, where "fill" answers NaN.
        index = jnp.where(index < 0, self.vocab_size, index)
        rows = rows_of(self.table[...], index, mode="fill", fill_value=jnp.nan)
        rows = rows.astype(self.dtype)
        return rows if self.scale is None else rows * jnp.asarray(self.scale, self.dtype)

    @typing.no_type_check
    def logits(self, x: Float[jax.Array, "... d_model"]) -> Float[jax.Array, "... vocab_size"]:
        """x against every token's vector, float32 (float64 when `dtype` is): the head of tied embeddings (Press and
        Wolf 2017, "Using the Output Embedding to Improve Language Models")."""
        return logits(x, self.table[...].T, self.dtype)

    def _check(self, tokens: Any) -> None:
        check_tokens(tokens)
        if isinstance(tokens, Tracer) or not tokens.size:
            return
        known = np.asarray(tokens)  # NumPy, because inside a trace JAX would stage the comparison
        low, high = int(known.min()), int(known.max())
        if low < 0 or high >= self.vocab_size:
            raise ValueError(
                f"token {low if low < 0 else high} is not in the vocabulary: ids are 0 to vocab_size - 1 = "
                f"{self.vocab_size - 1}"
            )


class Head(nnx.Module):
    """Vectors to logits with a table of its own (untied).

    Args:
        d_model: size of a vector.
        vocab_size: number of tokens.
        dtype: dtype of the operands; the sum and the logits are float32 (float64 when `dtype` is).
        param_dtype: dtype of the weights.
        rngs: where the first weights come from.

    Raises:
        TypeError: if a size is no int, or x no floating array.
        ValueError: if a size is below 1, or x's last axis is not `d_model`.

    Example:
        >>> import jax.numpy as jnp
        >>> from attnjax import nn
        >>> from flax import nnx
        >>> nn.Head(4, 16, rngs=nnx.Rngs(0)).logits(jnp.ones((1, 3, 4))).shape
        (1, 3, 16)
    """

    @typing.no_type_check
    def __init__(
        self,
        d_model: int,
        vocab_size: int,
        *,
        dtype: Any = jnp.float32,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        shape = (size_of("d_model", d_model), size_of("vocab_size", vocab_size))
        self.dtype = dtype
        self.kernel = nnx.Param(nnx.initializers.lecun_normal()(rngs.params(), shape, param_dtype))

    @typing.no_type_check
    def logits(self, x: Float[jax.Array, "... d_model"]) -> Float[jax.Array, "... vocab_size"]:
        """x times the weights, float32 (float64 when `dtype` is)."""
        return logits(x, self.kernel[...], self.dtype)


def logits(x: Any, kernel: Any, dtype: Any) -> Any:
    """x @ kernel with operands in `dtype`, summed in float32 (float64 when `dtype` is)."""
    check_vectors(x, "d_model", kernel.shape[0])
    product = "...d,dv->...v"
    return jnp.einsum(product, x.astype(dtype), kernel.astype(dtype), preferred_element_type=wide_dtype(dtype))
