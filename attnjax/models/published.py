"""Modules from a published model: its names for the weights, how they are stored, and whether all are there.

Hugging Face stores a projection as [out, in], a decoder here as [in, out]. Norms that are stored as what is added
to 1 (Gemma) get their 1 here, in float32, as in the original: a model then has one kind of norm, whatever reads it.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from flax import nnx

from attnjax.models.config import Config
from attnjax.models.decoder import Decoder, make_attention
from attnjax.models.families import Published, text_fields, understand
from attnjax.models.source import Source
from attnjax.models.weights import Named, check_fit, check_sizes, expected, fill, filled, shapes_only, skeleton
from attnjax.nn.attention import Attention

HEAD, EMBEDDING, LAYERS = "lm_head.weight", "model.embed_tokens.weight", "model.layers."
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


# The sizes of a Config, and what Hugging Face calls them.
SIZES = {
    "num_layers": "num_hidden_layers", "d_model": "hidden_size", "num_heads": "num_attention_heads",
    "head_dim": "head_dim", "vocab_size": "vocab_size", "d_ff": "intermediate_size",
}  # fmt: skip


class Stored(NamedTuple):
    """What is compared of a weight: as it is stored here every dtype fits."""

    shape: tuple[int, ...]
    dtype: Any = None


def read_config(source: Source) -> Published:
    """What the source's config means.

    Raises:
        ValueError: if it cannot be understood, or describes a model larger than the source's weights.
    """
    try:
        fields = text_fields(source.config)
        sizes = {ours: fields.get(theirs) for ours, theirs in SIZES.items()}
        sizes = {name: size if type(size) is int else 1 for name, size in sizes.items()}
        check_sizes(sizes, len(source.shapes), sum(map(math.prod, source.shapes.values())), "numbers", "the model")
        return understand(source.config)
    except ValueError as fault:
        raise ValueError(f"{source.where}: {fault}") from None


def decoder(source: Source, published: Published, config: Config) -> Decoder:
    """The whole model; `config` is the published one, perhaps with another pattern and other dtypes.

    Raises:
        ValueError: if it is not a model that `Decoder` can be, or a weight is missing, unknown, misshapen, not
            floating or too large for `config.param_dtype`.
    """
    if published.no_decoder is not None:
        raise ValueError(f"{source.where} is a {published.family}: {published.no_decoder}")
    names = expected(config)
    weights = Weights(source, published, names)
    wanted = Named(weights.stored(names.outside), weights.stored(names.layer), config.num_layers, LAYERS)
    weights.check(source.shapes, wanted)
    if config.tie_embeddings and HEAD in source.shapes:
        _check_tied(source)
    return filled(skeleton(config), weights)


def attention(source: Source, published: Published, config: Config, layer: int) -> Attention:
    """The attention of one layer.

    Raises:
        IndexError: if there is no such layer.
        ValueError: if a weight is missing, unknown, misshapen, not floating or too large for `config.param_dtype`.
    """
    if not 0 <= layer < config.num_layers:
        raise IndexError(f"layer {layer} of {config.num_layers}")
    module = shapes_only(lambda: make_attention(config, config.letters[layer], nnx.Rngs(0)))
    prefix = f"layers.{layer}.attention."

    def name(path: tuple[Any, ...]) -> str:
        return prefix + ".".join(map(str, path))

    flat = nnx.to_flat_state(nnx.state(module))
    names = {name(path): variable.get_value() for path, variable in flat}
    weights = Weights(source, published, names)
    theirs = f"{LAYERS}{layer}.self_attn."
    found = {name: shape for name, shape in source.shapes.items() if name.startswith(theirs)}
    weights.check(found, weights.stored(names))
    return fill(module, weights, lambda path: [name(path)])


class Weights(Mapping[str, np.ndarray]):
    """A published model's weights under the names and in the shapes that they have here, each read when asked for.

    Args:
        source: where they lie.
        published: what family they are of.
        names: the names here.
    """

    def __init__(self, source: Source, published: Published, names: Mapping[str, Any]):
        self.source, self.published, self.names = source, published, names

    def __getitem__(self, name: str) -> np.ndarray:
        array = self.source.read(self._theirs(name))
        if name.endswith(".kernel"):
            return array.T
        if name.endswith("norm.scale") and self.published.norms_from_1:
            return 1 + array.astype(np.result_type(array.dtype, np.float32))
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def stored(self, weights: Mapping[str, Any]) -> dict[str, Stored]:
        """Their name -> how it is stored, for weights named as here; inside a layer both names are without a number."""
        turned = {name: weight.shape[:: -1 if name.endswith(".kernel") else 1] for name, weight in weights.items()}
        return {self._theirs(name): Stored(shape) for name, shape in turned.items()}

    def check(self, found: Mapping[str, tuple[int, ...]], wanted: Mapping[str, Stored]) -> None:
        """Raises a ValueError that names a weight that is missing, unknown or misshapen."""
        spare = {HEAD} if self.published.config.tie_embeddings else set()
        present = {
            name: Stored(shape) for name, shape in found.items() if name not in spare and not name.endswith(CONSTANTS)
        }
        check_fit(present, wanted, self.source.where, self.published.family)

    def _theirs(self, name: str) -> str:
        """The name that Hugging Face gives to the weight of this name."""
        part, leaf = name.rsplit(".", 1)
        layer = ""
        if part.startswith("layers."):
            _, number, part = part.split(".", 2)
            layer = f"{LAYERS}{number}."
        parts = PARTS | POST_NORMS if self.published.config.post_norms else PARTS
        return f"{layer}{parts[part]}.{LEAVES[leaf]}"


def _check_tied(source: Source) -> None:
    head, table = source.read(HEAD), source.read(EMBEDDING)
    if head.dtype != table.dtype or head.shape != table.shape or head.tobytes() != table.tobytes():
        raise ValueError(
            f"{source.where}: tie_word_embeddings is true, but {HEAD!r} is not {EMBEDDING!r}; false would use both"
        )
