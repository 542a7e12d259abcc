"""One layer of a decoder."""

import typing
from typing import Any, Unpack

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Num

from attnjax.cache import Cache
from attnjax.nn.attention import Attention, WithCache, WithCacheAndWeights, WithWeights
from attnjax.nn.mlp import SwiGLU
from attnjax.nn.norm import RMSNorm
from attnjax.options import ArrayOptions
from attnjax.segments import Segments


class Block(nnx.Module):
    """Pre-norm residual block: x + attention(norm(x)), then x + mlp(norm(x)) (Xiong et al. 2020, "On Layer
    Normalization in the Transformer Architecture"). With `post_norms` each half's output is normalised as well:
    x + norm(attention(norm(x))), then the same with the mlp (Gemma 2, 2024).

    Args:
        attention: the layer that mixes tokens.
        mlp: the layer that works on each token.
        norm_eps: eps of the norms.
        post_norms: also normalise what attention and mlp give, before it is added.
        dtype: dtype of the norms' outputs and of the block's.
        param_dtype: dtype of the norms' parameters.

    Raises:
        ValueError: if the two layers differ in `d_model`.

    Example:
        >>> import attnjax as aj, jax.numpy as jnp
        >>> from attnjax import nn
        >>> from flax import nnx
        >>> rngs = nnx.Rngs(0)
        >>> attention = nn.Attention(16, 2, pattern=aj.Causal(), rngs=rngs)
        >>> nn.Block(attention, nn.SwiGLU(16, 40, rngs=rngs))(jnp.ones((1, 5, 16))).shape
        (1, 5, 16)
    """

    @typing.no_type_check
    def __init__(
        self,
        attention: Attention,
        mlp: SwiGLU,
        *,
        norm_eps: float = 1e-6,
        post_norms: bool = False,
        dtype: Any = jnp.float32,
        param_dtype: Any = jnp.float32,
    ):
        if attention.d_model != mlp.d_model:
            raise ValueError(f"attention has d_model={attention.d_model}, but mlp has {mlp.d_model}")
        norm = dict(eps=norm_eps, dtype=dtype, param_dtype=param_dtype)
        self.dtype = dtype
        self.attention_norm = RMSNorm(attention.d_model, **norm)
        self.attention = attention
        self.mlp_norm = RMSNorm(attention.d_model, **norm)
        self.mlp = mlp
        after = [RMSNorm(attention.d_model, **norm) if post_norms else None for _ in range(2)]
        self.attention_post_norm, self.mlp_post_norm = map(nnx.data, after)

    @typing.no_type_check
    def __call__(
        self,
        x: Float[Array, "B T D"],
        *,
        positions: Num[Array, "... T"] | None = None,
        segments: Segments | None = None,
        mask: Bool[Array, "..."] | None = None,
        bias: Float[Array, "..."] | None = None,
        cache: Cache | None = None,
        deterministic: bool = True,
        dropout_key: jax.Array | None = None,
        return_weights: bool = False,
        backend: str = "auto",
        **options: Unpack[ArrayOptions],
    ) -> Float[Array, "B T D"] | WithCache | WithWeights | WithCacheAndWeights:
        """One layer; options and results are those of `Attention`.

        `positions` feed the attention's rope; a block without rope has no use for them.
        """
        rows = positions if self.attention.rope is not None else None
        found = self.attention(
            self.attention_norm(x), positions=rows, segments=segments, mask=mask, bias=bias, cache=cache,
            deterministic=deterministic, dropout_key=dropout_key, return_weights=return_weights, backend=backend,
            **options,
        )  # fmt: skip
        plain = cache is None and not return_weights
        x = x.astype(self.dtype) + _after(self.attention_post_norm, found if plain else found.y)
        x = x + _after(self.mlp_post_norm, self.mlp(self.mlp_norm(x)))
        return x if plain else found._replace(y=x)


def _after(norm: RMSNorm | None, y: jax.Array) -> jax.Array:
    return y if norm is None else norm(y)
