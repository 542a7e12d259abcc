"""Config: everything that fixes a decoder's shape, checked once, hashable."""

import dataclasses
import math
import typing
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from attnjax.dropout import check_rate
from attnjax.models.layout import Letters, check_letters, layer_letters, read_legend, read_scalings
from attnjax.models.messages import shown
from attnjax.nn.mlp import check_activation
from attnjax.nn.settings import head_sizes, pattern_for
from attnjax.patterns.checks import size_of
from attnjax.rope import Rope
from attnjax.rope_scaling import Scaling
from attnjax.scores import check_precision, check_soft_cap, number
from attnjax.shapes import wide_dtype

MOST_LAYERS = 2**16  # a letter for each is kept


@typing.no_type_check
@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of a `Decoder`.

    Args:
        vocab_size: number of tokens.
        d_model: width of the residual stream.
        num_layers: number of blocks.
        num_heads: query heads.
        num_kv_heads: key and value heads; None means `num_heads`.
        head_dim: size of a head; None means d_model / num_heads.
        d_ff: inner width of the SwiGLU; None means 8/3 d_model rounded up to a multiple of 8, which gives it
            the parameters of a plain MLP of width 4 d_model.
        layout: one letter per layer, repeated as often as needed: layer i has layout[i % len(layout)].
        legend: letter -> pattern, as a value or as its text. May hold letters that the layout does not use.
        theta: base of the rotary embedding, one for all layers or a mapping letter -> base, with an entry for each
            letter of the layout; like the legend, it may hold others. None (alone or for a letter) means no rotation.
        rope_scaling: how the rotation is stretched: None, a record such as `nn.LinearScaling` or a mapping as in
            Hugging Face configs, one for all layers or a mapping letter -> scaling. A missing letter has none; one
            that no layer has is an error.
        tie_embeddings: the output head uses the embedding's table.
        qk_norm: RMSNorm over each head of q and k.
        qk_norm_eps: its eps.
        scale: factor on q.k; None means 1 / sqrt(head_dim).
        soft_cap: caps the attention scores; None leaves them.
        precision: of the attention's matrix products: None, "default", "high" or "highest", as in `attend`.
        use_bias, out_bias: biases in the attention, see `nn.Attention`.
        learned_sinks: a learned logit per head joins every softmax, see `nn.Attention`.
        dropout_rate: share of the attention weights dropped in a call with `deterministic=False`.
        activation: of the MLP, see `nn.SwiGLU`.
        mlp_bias: biases in the MLP.
        post_norms: also normalise what attention and MLP give, see `nn.Block`.
        embedding_scale: factor on the vectors of the tokens, see `nn.Embedding`.
        logits_soft_cap: logits become cap * tanh(logits / cap); None leaves them.
        norm_eps: eps of the blocks' norms and of the final one.
        dtype: dtype of the computation.
        param_dtype: dtype of the parameters.
        remat: recompute each block in the backward pass instead of keeping what is inside it.
        scan: stack whole periods of the layout and run them under `jax.lax.scan`, so that compile time does
            not grow with depth; False unrolls every layer.

    Raises:
        TypeError: if a field has the wrong type.
        ValueError: if a value is wrong, fields do not fit together, or a letter is unknown.

    Example:
        >>> from attnjax.models import Config
        >>> config = Config(vocab_size=256, d_model=64, num_layers=6, num_heads=4, layout="LLG",
        ...                 legend={"L": "window(16) | sink(1)", "G": "causal()"})
        >>> config.letters, str(config.legend["L"]), config.ff_dim
        ('LLGLLG', 'window(16) | sink(1)', 176)
    """

    vocab_size: int
    d_model: int
    num_layers: int
    num_heads: int
    num_kv_heads: int | None = None
    head_dim: int | None = None
    d_ff: int | None = None
    layout: str = "G"
    legend: Mapping[str, Any] = dataclasses.field(default_factory=lambda: {"G": "causal()"})
    theta: float | None | Mapping[str, float | None] = 10000.0
    rope_scaling: Scaling | Mapping[str, Any] | None = None
    tie_embeddings: bool = False
    qk_norm: bool = False
    qk_norm_eps: float = 1e-6
    scale: float | None = None
    soft_cap: float | None = None
    precision: str | None = None
    use_bias: bool = False
    out_bias: bool | None = None
    learned_sinks: bool = False
    dropout_rate: float = 0.0
    activation: str = "silu"
    mlp_bias: bool = False
    post_norms: bool = False
    embedding_scale: float | None = None
    logits_soft_cap: float | None = None
    norm_eps: float = 1e-6
    dtype: Any = jnp.float32
    param_dtype: Any = jnp.float32
    remat: bool = False
    scan: bool = True

    def __post_init__(self) -> None:
        sizes = head_sizes(self.d_model, self.num_heads, self.num_kv_heads, self.head_dim)
        for name in ("vocab_size", *(("d_ff",) if self.d_ff is not None else ())):
            size_of(name, getattr(self, name))
        size_of("num_layers", self.num_layers, MOST_LAYERS)
        for name in ("dtype", "param_dtype"):
            object.__setattr__(self, name, _float_dtype(name, getattr(self, name)))
        self._check_numbers()
        precision: Any = check_precision(self.precision)  # other spellings are one value
        object.__setattr__(self, "precision", None if precision is None else precision.name.lower())
        check_activation(self.activation)
        if not isinstance(self.layout, str) or not self.layout:
            raise ValueError(f"layout={shown(self.layout)} must be a string of letters such as 'LLLLLG'")
        object.__setattr__(self, "legend", read_legend(self.legend))
        check_letters(self.layout, self.legend, "layout")
        for letter in set(self.layout[: self.num_layers]):
            pattern_for(self.legend[letter], sizes[1])
        if isinstance(self.theta, Mapping):
            object.__setattr__(self, "theta", Letters(self.theta))
            check_letters(self.theta, self.legend, "theta")
            missing = sorted(set(self.layout) - set(self.theta))
            if missing:
                raise ValueError(f"theta has no entry for {shown(missing)} of the layout; None means no rotation")
        object.__setattr__(self, "rope_scaling", read_scalings(self.rope_scaling, self.legend))
        for letter in set(self.layout):
            rope = self.rope(letter)
            if rope is not None:
                rope.check_head(sizes[3])
        self._check_scaling_is_used()

    def _check_numbers(self) -> None:
        wide = wide_dtype(self.dtype)
        for name in ("soft_cap", "logits_soft_cap"):
            object.__setattr__(self, name, check_soft_cap(getattr(self, name), name, wide))
        for name, dtype in (("scale", wide), ("embedding_scale", self.dtype)):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, number(name, getattr(self, name), "a constant of the model", dtype))
        object.__setattr__(self, "dropout_rate", check_rate(self.dropout_rate, key="given with each call"))
        for name in ("norm_eps", "qk_norm_eps"):
            if number(name, getattr(self, name), "a constant of the model") <= 0:
                raise ValueError(f"{name}={getattr(self, name)} must be finite and above 0")

    @property
    def letters(self) -> str:
        """The letter of every layer."""
        return layer_letters(self.layout, self.num_layers)

    @property
    def ff_dim(self) -> int:
        """Inner width of the SwiGLU: `d_ff`, or what None stands for."""
        return self.d_ff if self.d_ff is not None else 8 * math.ceil(self.d_model / 3)

    @property
    def num_periods(self) -> int:
        """How many whole periods of the layout are stacked and scanned; 0 if none are."""
        whole = self.num_layers // len(self.layout)
        return whole if self.scan and whole >= 2 else 0

    def rope(self, letter: str) -> Rope | None:
        """The rotation in layers of this letter."""
        theta = self.theta[letter] if isinstance(self.theta, Mapping) else self.theta
        return None if theta is None else Rope(theta, scaling=self._scaling(letter))

    def _scaling(self, letter: str) -> Scaling | None:
        scaling = self.rope_scaling
        return scaling.get(letter) if isinstance(scaling, Mapping) else scaling

    def _check_scaling_is_used(self) -> None:
        used = dict.fromkeys(self.layout[: self.num_layers])
        for letter in self.rope_scaling if isinstance(self.rope_scaling, Mapping) else ():
            if letter not in used and self._scaling(letter) is not None:
                raise ValueError(
                    f"rope_scaling stretches layers {shown(letter)}, but no layer is one: num_layers={self.num_layers} "
                    f"of layout={shown(self.layout)} are {', '.join(map(repr, used))}; leave it out"
                )
        scaled = [letter for letter in used if self._scaling(letter) is not None]
        still = [letter for letter in scaled if self.rope(letter) is None]
        if still and (isinstance(self.rope_scaling, Mapping) or len(still) == len(scaled)):
            raise ValueError(f"rope_scaling stretches layers {still[0]!r}, but their theta is None: no rotation")


def _float_dtype(name: str, dtype: Any) -> Any:
    try:
        found = jnp.dtype(dtype)
    except TypeError:
        raise TypeError(f"{name}={dtype!r} is not a dtype; give one such as 'float32'") from None
    if not jnp.issubdtype(found, jnp.floating):
        raise TypeError(f"{name}={found} is not a floating dtype")
    return found
