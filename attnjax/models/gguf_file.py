"""Reading a GGUF file: its config and weights under Hugging Face's names, dequantised by the `gguf` package."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from attnjax.models.files import memory_for, open_file
from attnjax.models.gguf_config import ROPE_FACTORS, read_config
from attnjax.models.gguf_header import Header, Weight, read_header
from attnjax.models.messages import shown
from attnjax.models.source import Source

WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
GEMMA = LAYER | {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
# The architectures whose converter sorts rows of q and k for interleaved rotation, and adds 1 to every norm.
SORTED, PLUS_1 = ("llama",), ("gemma2", "gemma3")


def open_gguf(path: Path) -> Source:
    """A GGUF file as a Source. Its weights are read, and dequantised to float32, when they are asked for.

    Raises:
        FileNotFoundError: if there is no such file.
        ImportError: if the `gguf` package is missing.
        ValueError: if the file is damaged or manipulated, its architecture unknown, or a value or a weight in it is
            not supported and may change the result; the message names it.
    """
    quants = _package()
    header = read_header(path, {int(kind): sizes for kind, sizes in quants.GGML_QUANT_SIZES.items()})

    def read(name: str) -> np.ndarray:
        return _dequantised(quants, path, name, header.weights[name])

    try:
        shapes = {name: weight.shape for name, weight in header.weights.items()}
        config = read_config(header.values, shapes, read)
        names = _names(header)
    except ValueError as fault:
        raise ValueError(f"{path}: {fault}") from None
    architecture = header.values["general.architecture"]

    def published(name: str) -> np.ndarray:
        try:
            return _as_published(read(names[name]), names[name], architecture, config)
        except ValueError as fault:
            raise ValueError(f"{path}: {fault}") from None

    return Source(str(path), config, {name: shapes[ours] for name, ours in names.items()}, published)


def read_values(path: Path) -> dict[str, Any]:
    """The named values in the header of a GGUF file; raises as `open_gguf` does."""
    sizes = _package().GGML_QUANT_SIZES
    return read_header(path, {int(kind): size for kind, size in sizes.items()}).values


def _package() -> Any:
    try:
        from gguf import quants
    except ImportError:
        raise ImportError("GGUF files are read with the gguf package: pip install 'attnjax[models]'") from None
    return quants


def _dequantised(quants: Any, path: Path, name: str, weight: Weight) -> np.ndarray:
    kind = quants.GGMLQuantizationType(weight.kind)
    with memory_for(f"the {weight.size} bytes of weight {shown(name)} {weight.shape} and its numbers"):
        with open_file(path) as file:
            file.seek(weight.start)
            data = file.read(weight.size)
        if len(data) != weight.size:
            raise ValueError("the file became shorter after its header was read")
        rows = np.frombuffer(data, np.uint8).reshape(*weight.shape[:-1], -1)
        try:
            with np.errstate(all="ignore"):  # infinite scales make infinite numbers, as in any other file
                return quants.dequantize(rows, kind).reshape(weight.shape)
        except NotImplementedError:
            raise ValueError(f"weight {shown(name)} is of the kind {kind.name}, which cannot be dequantised") from None


def _names(header: Header) -> dict[str, str]:
    """Hugging Face's name of each weight -> GGUF's."""
    layer = GEMMA if header.values["general.architecture"] in PLUS_1 else LAYER
    found = {}
    for name in header.weights:
        if name == ROPE_FACTORS:  # part of the config
            continue
        inside = re.fullmatch(r"blk\.(0|[1-9]\d{0,5})\.(\w+)\.(weight|bias)", name)
        whole = re.fullmatch(r"(\w+)\.(weight)", name)
        if inside and inside[2] in layer:
            found[f"model.layers.{inside[1]}.{layer[inside[2]]}.{inside[3]}"] = name
        elif whole and whole[1] in WHOLE:
            found[f"{WHOLE[whole[1]]}.{whole[2]}"] = name
        else:
            raise ValueError(f"weight {shown(name)} is not known for this architecture")
    return found


def _as_published(weight: np.ndarray, name: str, architecture: str, config: dict[str, Any]) -> np.ndarray:
    """The weight as Hugging Face stores it."""
    if architecture in PLUS_1 and "norm" in name:
        return weight - np.float32(1)
    side = re.search(r"\.attn_([qk])\.", name)
    if architecture not in SORTED or side is None:
        return weight
    heads = config["num_attention_heads" if side[1] == "q" else "num_key_value_heads"]
    if weight.shape[0] % (2 * heads):
        raise ValueError(f"weight {shown(name)} {weight.shape} cannot hold {heads} heads of even size")
    # Pairs of neighbouring rows turn together; Hugging Face turns row i of a head with row i + half.
    return weight.reshape(heads, -1, 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)
