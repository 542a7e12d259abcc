"""Source: a published model's files behind one face, whatever their format."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np


class Source(NamedTuple):
    """A published model's files, whatever their format: its config and its weights under Hugging Face's names."""

    where: str  # the path, for messages
    config: dict[str, Any]  # fields as in a Hugging Face config.json
    shapes: Mapping[str, tuple[int, ...]]  # weight name -> shape, as Hugging Face stores it (out, in)
    read: Callable[[str], np.ndarray]  # one weight, as stored (float32, float16, bfloat16) or dequantised to float32
