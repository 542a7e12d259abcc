"""Rules that stretch rotary frequencies, so that a model reads on beyond the length it was trained for.

Names, keys and formulas are those of Hugging Face's `rope_type`, so that a published config can be used as it
is: `dataclasses.asdict(record)` is the mapping, `read_scaling(mapping)` the record.
"""

import dataclasses
import difflib
import math
import typing
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from attnjax.patterns.checks import integer
from attnjax.scores import number


@typing.no_type_check
@dataclasses.dataclass(frozen=True)
class LinearScaling:
    """Every position counts for 1 / factor of one (Chen et al. 2023, "Extending Context Window of Large
    Language Models via Positional Interpolation").

    Args:
        factor: at least 1; the context becomes that many times longer.

    Raises:
        TypeError: if a setting has the wrong type.
        ValueError: if a setting has the wrong value.

    Example:
        >>> from attnjax import nn
        >>> nn.LinearScaling(4.0).frequencies(10000.0, 4).tolist()
        [0.25, 0.0025]
    """

    factor: float
    rope_type: str = dataclasses.field(default="linear", init=False)
    magnitude: typing.ClassVar[float] = 1.0  # factor on cos and sin

    def __post_init__(self) -> None:
        _at_least(self, "factor", 1.0)

    def frequencies(self, theta: float, R: int, length: Any = None) -> np.ndarray:
        """Radians per position of each of the R / 2 pairs, float64."""
        return plain_frequencies(theta, R) / self.factor


@typing.no_type_check
@dataclasses.dataclass(frozen=True)
class DynamicScaling:
    """Dynamic NTK: up to the original length nothing changes, beyond it the base grows with the length to
    theta * (factor * length / original - (factor - 1)) ** (R / (R - 2)) (bloc97 and emozilla 2023, in Peng et
    al. 2023, "YaRN").

    R is the number of channels that turn. The length is that of the text: each row of a batch has its own, in which
    padding does not count, and so has each document of a packed row whose positions restart.

    Args:
        factor: at least 1.
        original_max_position_embeddings: the length that the model was trained for.

    Raises:
        TypeError: if a setting has the wrong type.
        ValueError: if a setting has the wrong value.

    Example:
        >>> from attnjax import nn
        >>> rule = nn.DynamicScaling(2.0, original_max_position_embeddings=8)
        >>> rule.frequencies(10000.0, 4, 8).tolist(), (1 / rule.frequencies(10000.0, 4, 16)[1]).round(6).item()
        ([1.0, 0.01], 300.0)
    """

    factor: float
    original_max_position_embeddings: int
    rope_type: str = dataclasses.field(default="dynamic", init=False)
    magnitude: typing.ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        _at_least(self, "factor", 1.0)
        _length(self)

    def frequencies(self, theta: float, R: int, length: Any = None) -> Any:
        """Radians per position at this length, [R / 2]; at lengths [...], floating and maybe traced, [..., R / 2]."""
        plain = plain_frequencies(theta, R)
        if R == 2:
            return plain  # the one pair turns by the position, whatever the base
        # base ** (-2i / R) = theta ** (-2i / R) * growth ** (-2i / (R - 2)): small exponents keep float32 exact
        # enough, and growth = 1 leaves the plain frequencies bit for bit.
        exponents = -2 * np.arange(R // 2) / (R - 2)
        per_position = self.factor / self.original_max_position_embeddings
        if isinstance(length, (int, float, np.generic)):
            return plain * max(1.0, per_position * float(length) - (self.factor - 1)) ** exponents
        xp: Any = np if isinstance(length, np.ndarray) else jnp
        growth = xp.maximum(length * per_position - (self.factor - 1), 1.0)[..., None]
        plain, exponents = (xp.asarray(x, growth.dtype).reshape((1,) * length.ndim + (-1,)) for x in (plain, exponents))
        return plain * growth**exponents


@typing.no_type_check
@dataclasses.dataclass(frozen=True)
class YarnScaling:
    """YaRN: pairs that turn often within the original length keep their frequency, those that turn seldom are
    interpolated as in `LinearScaling`, with a ramp between; cos and sin grow a little (Peng et al. 2023,
    "YaRN: Efficient Context Window Extension of Large Language Models").

    Args:
        factor: at least 1.
        original_max_position_embeddings: the length that the model was trained for.
        beta_fast: pairs with more turns than this keep their frequency.
        beta_slow: pairs with fewer turns than this are interpolated in full.
        attention_factor: factor on cos and sin; None means 0.1 ln(factor) + 1, or what the next two give.
        mscale: with `mscale_all_dim` (DeepSeek-V2): (0.1 mscale ln(factor) + 1) over the same of the other.
        mscale_all_dim: see `mscale`; both or neither.
        truncate: round the ends of the ramp outwards to whole pairs (gpt-oss does not).

    Raises:
        TypeError: if a setting has the wrong type.
        ValueError: if a setting has the wrong value, or theta is 1 or less.

    Example:
        >>> from attnjax import nn
        >>> rule = nn.YarnScaling(32.0, original_max_position_embeddings=4096, truncate=False)
        >>> rule.frequencies(150000.0, 64).shape, round(rule.magnitude, 4)
        ((32,), 1.3466)
    """

    factor: float
    original_max_position_embeddings: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    rope_type: str = dataclasses.field(default="yarn", init=False)

    def __post_init__(self) -> None:
        _at_least(self, "factor", 1.0)
        _length(self)
        for name in ("beta_fast", "beta_slow"):
            _at_least(self, name, 0.0, above=True)
        for name in ("attention_factor", "mscale", "mscale_all_dim"):
            if getattr(self, name) is not None:
                _at_least(self, name, 0.0, above=name == "attention_factor")
        if self.beta_fast < self.beta_slow:
            raise ValueError(f"beta_fast={self.beta_fast} must not be below beta_slow={self.beta_slow}")
        if (self.mscale is None) != (self.mscale_all_dim is None):
            raise ValueError(
                f"mscale={self.mscale} and mscale_all_dim={self.mscale_all_dim}: their ratio counts, so give "
                "both or neither"
            )
        if not isinstance(self.truncate, bool):
            raise TypeError(f"truncate={self.truncate!r} is a {type(self.truncate).__name__}; give True or False")

    @property
    def magnitude(self) -> float:
        """Factor on cos and sin."""
        if self.attention_factor is not None:
            return self.attention_factor
        grown = 0.1 * math.log(self.factor)
        if self.mscale and self.mscale_all_dim:
            return (self.mscale * grown + 1) / (self.mscale_all_dim * grown + 1)
        return grown + 1

    def frequencies(self, theta: float, R: int, length: Any = None) -> np.ndarray:
        """Radians per position of each of the R / 2 pairs, float64.

        Raises:
            ValueError: if `theta` is not above 1.
        """
        if theta <= 1:
            raise ValueError(f"theta={theta} must be above 1 for yarn, which counts turns by its logarithm")
        plain = plain_frequencies(theta, R)
        low, high = self._pair(theta, R, self.beta_fast), self._pair(theta, R, self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, R - 1)
        ramp = np.clip((np.arange(R // 2) - low) / (high - low if high != low else 0.001), 0, 1)
        return plain / self.factor * ramp + plain * (1 - ramp)

    def _pair(self, theta: float, R: int, turns: float) -> float:
        """The (fractional) pair that turns this often within the original length."""
        return R * math.log(self.original_max_position_embeddings / (2 * math.pi * turns)) / (2 * math.log(theta))


@typing.no_type_check
@dataclasses.dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3.1: wavelengths below original / high_freq_factor stay, those above original / low_freq_factor
    become `factor` times longer, with a smooth step between (Grattafiori et al. 2024, "The Llama 3 Herd of
    Models").

    Args:
        factor: at least 1.
        low_freq_factor: above 0.
        high_freq_factor: above `low_freq_factor`.
        original_max_position_embeddings: the length that the model was trained for.

    Raises:
        TypeError: if a setting has the wrong type.
        ValueError: if a setting has the wrong value.

    Example:
        >>> import numpy as np
        >>> from attnjax import nn
        >>> rule = nn.Llama3Scaling(8.0, 1.0, 4.0, original_max_position_embeddings=8192)
        >>> (rule.frequencies(500000.0, 128)[[0, -1]] * 500000 ** (np.array([0, 126]) / 128)).round(6).tolist()
        [1.0, 0.125]
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int
    rope_type: str = dataclasses.field(default="llama3", init=False)
    magnitude: typing.ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        _at_least(self, "factor", 1.0)
        _length(self)
        _at_least(self, "low_freq_factor", 0.0, above=True)
        _at_least(self, "high_freq_factor", self.low_freq_factor, above=True)

    def frequencies(self, theta: float, R: int, length: Any = None) -> np.ndarray:
        """Radians per position of each of the R / 2 pairs, float64."""
        plain = plain_frequencies(theta, R)
        turns = self.original_max_position_embeddings * plain / (2 * math.pi)
        smooth = np.clip((turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor), 0, 1)
        return (1 - smooth) * plain / self.factor + smooth * plain


Scaling = LinearScaling | DynamicScaling | YarnScaling | Llama3Scaling
KINDS: dict[str, Any] = {
    "linear": LinearScaling, "dynamic": DynamicScaling, "yarn": YarnScaling, "llama3": Llama3Scaling,
}  # fmt: skip


def plain_frequencies(theta: float, R: int) -> np.ndarray:
    """Radians per position of each of the R / 2 pairs without scaling, float64."""
    return theta ** (-np.arange(0, R, 2) / R)


def read_scaling(scaling: Any) -> Scaling | None:
    """The record that a mapping in Hugging Face's spelling stands for; a record or None stays as it is.

    Raises:
        TypeError: if it is neither.
        ValueError: if the rope_type or a key is unknown (with the nearest name), or a key is missing.
    """
    if scaling is None or isinstance(scaling, Scaling):
        return scaling
    if not isinstance(scaling, Mapping):
        raise TypeError(
            f"scaling={scaling!r} is a {type(scaling).__name__}; give None, a record such as nn.LinearScaling(4.0) or "
            "a mapping such as {'rope_type': 'linear', 'factor': 4.0}"
        )
    given = dict(scaling)
    older = given.pop("type", None)  # how configs before 2024 spell rope_type
    kind = given.pop("rope_type", older)
    if kind == "default" and not given:
        return None
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"scaling has rope_type={kind!r}; it is one of {', '.join(KINDS)}" + _near(kind, KINDS))
    fields = {f.name: f for f in dataclasses.fields(KINDS[kind]) if f.init}
    for key in given:
        if key == "rope_theta":
            raise ValueError(f"scaling has rope_theta={given[key]!r}; the base is given beside it, as theta=")
        if key not in fields:
            raise ValueError(f"scaling has the key {key!r}, which {kind} does not know" + _near(key, fields))
    missing = [name for name, f in fields.items() if f.default is dataclasses.MISSING and name not in given]
    if missing:
        raise ValueError(f"scaling of rope_type={kind!r} needs {', '.join(missing)}")
    return KINDS[kind](**given)


def _near(name: Any, known: Any) -> str:
    near = difflib.get_close_matches(str(name), list(known), 1, 0.4)
    return f"; did you mean {near[0]!r}?" if near else ""


def _at_least(record: Any, name: str, least: float, above: bool = False) -> None:
    """Stores the field as a float, or raises an error that names it."""
    value = number(name, getattr(record, name), "scaling is a constant of the model")
    if value < least or (above and value == least):
        raise ValueError(f"{name}={value} must be {'above' if above else 'at least'} {least:g}")
    object.__setattr__(record, name, value)


def _length(record: Any) -> None:
    name = "original_max_position_embeddings"
    object.__setattr__(record, name, integer(name, getattr(record, name), 1))
