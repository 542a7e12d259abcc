"""Modules from a published model: its names for the weights, how they are stored, and whether all are there.

Hugging Face stores a projection as [out, in], a decoder here as [in, out]. Norms that are stored as what is added
to 1 (Gemma) get their 1 here, in float32, as in the original: a model then has one kind of norm, whatever reads it.
"""

import dataclasses
import difflib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from flax import nnx

from attnjax.models.config import Config
from attnjax.models.decoder import Decoder, make_attention
from attnjax.models.families import Published, understand
from attnjax.models.source import Source
from attnjax.models.weights import by_layer, fill, filled, flat_weights, shapes_only, skeleton
from attnjax.nn.attention import Attention

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
# Constants that Llama folders of 2023 store beside the weights.
CONSTANTS = ".self_attn.rotary_emb.inv_freq"
PARTS = {
    "embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head", "attention_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm", "attention.query": "self_attn.q_proj", "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj", "attention.out": "self_attn.o_proj",
    "attention.query_norm": "self_attn.q_norm", "attention.key_norm": "self_attn.k_norm",
    "attention": "self_attn", "mlp.gate": "mlp.gate_proj", "mlp.up": "mlp.up_proj", "mlp.down": "mlp.down_proj",
}  # fmt: skip
# With norms on both sides of each half, the name of the MLP's first norm went to the attention's second.
POST_NORMS = {
    "attention_post_norm": "post_attention_layernorm", "mlp_norm": "pre_feedforward_layernorm",
    "mlp_post_norm": "post_feedforward_layernorm",
}  # fmt: skip
LEAVES = {"table": "weight", "kernel": "weight", "scale": "weight", "bias": "bias", "sinks": "sinks"}


class Weights(Mapping[str, np.ndarray]):
    """A published model's weights under the names that they have here, each read when it is asked for."""

    def __init__(self, source: Source, published: Published, names: Mapping[str, str]):
        self.source, self.published, self.names = source, published, names

    def __getitem__(self, name: str) -> np.ndarray:
        array = self.source.read(self.names[name])
        if name.endswith(".kernel"):
            return array.T
        if name.endswith("norm.scale") and self.published.norms_from_1:
            return np.float32(1) + array.astype(np.float32)
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)
