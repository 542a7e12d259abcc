"""What the values in a GGUF header say about a model, in the fields of a Hugging Face config.json.

Every value of the model's architecture is used, changes nothing, or is an error. What llama.cpp knows about an
architecture without writing it down (`llama-model.cpp`) is added here.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from attnjax.rope_scaling import Llama3Scaling, plain_frequencies

# What follows the architecture's name and a dot -> the field.
FIELDS = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "context_length": "max_position_embeddings",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
GEMMA = {
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
# They say nothing about the numbers of a forward pass, or are checked against what follows from other values.
HARMLESS = frozenset(
    "vocab_size attention.value_length rope.dimension_count rope.scaling.type rope.scaling.factor "
    "rope.scaling.original_context_length rope.scaling.finetuned".split()
)
ELSEWHERE = ("general.", "tokenizer.", "quantize.", "imatrix.")
NEEDED = ("block_count", "embedding_length", "feed_forward_length", "attention.head_count")
COUNTS = frozenset((*NEEDED, "attention.head_count_kv", "attention.key_length"))
ROPE_FACTORS = "rope_freqs.weight"  # by how much each pair of channels turns slower; in files of Llama 3
LLAMA_3 = tuple(Llama3Scaling(factor, 1.0, 4.0, 8192) for factor in (8.0, 32.0))  # 3.1 and 3.3; 3.2


class Family(NamedTuple):
    """How an architecture of llama.cpp is called by Hugging Face, and the fields that it has beside FIELDS."""

    model_type: str
    more: dict[str, str] = {}
    fixed: Callable[[dict[str, Any]], dict[str, Any]] = lambda config: {}  # what is not written down


def _gemma2(config: dict[str, Any]) -> dict[str, Any]:
    return {"query_pre_attn_scalar": _score_width(config, 46)}


def _gemma3(config: dict[str, Any]) -> dict[str, Any]:
    return {"query_pre_attn_scalar": _score_width(config, 62), "rope_theta": 1e6, "rope_local_base_freq": 1e4}


def _score_width(config: dict[str, Any], layers_of_27b: int) -> float:
    """Scores are divided by its square root: the head's width, but for the models of 27B."""
    if config["num_hidden_layers"] == layers_of_27b:
        return config["hidden_size"] / config["num_attention_heads"]
    return float(config["head_dim"])


FAMILIES = {
    "llama": Family("llama"),
    "qwen2": Family("qwen2"),
    "qwen3": Family("qwen3"),
    "gemma2": Family("gemma2", GEMMA, _gemma2),
    "gemma3": Family("gemma3_text", GEMMA | {"rope.freq_base_swa": "rope_local_base_freq"}, _gemma3),
}


def read_config(
    values: dict[str, Any], shapes: dict[str, tuple[int, ...]], read: Callable[[str], np.ndarray]
) -> dict[str, Any]:
    """The config.json that the file's model would have.

    Args:
        values: the values of the header.
        shapes: the weights' shapes, under GGUF's names.
        read: gives a weight.

    Raises:
        ValueError: if the architecture is unknown, or a value is missing, of the wrong type, contradicts the weights,
            or is not supported and may change the result; the message names it.
    """
    name = values.get("general.architecture")
    if not isinstance(name, str) or name not in FAMILIES:
        raise ValueError(f"general.architecture={name!r} is not supported; known are {', '.join(FAMILIES)}")
    if values.get("general.type", "model") != "model":
        raise ValueError(f"general.type={values['general.type']!r}: only a whole model can be loaded")
    family, own = FAMILIES[name], _own_values(name, values)
    fields = FIELDS | family.more
    for key, value in own.items():
        if key not in fields and key not in HARMLESS and not (key.endswith("expert_count") and value == 0):
            raise ValueError(f"{name}.{key}={value!r} is not known for this architecture and may change the result")
    missing = [f"{name}.{key}" for key in NEEDED if key not in own]
    if missing:
        raise ValueError(f"{', '.join(missing)}: missing")
    for key in COUNTS & own.keys():
        if type(own[key]) is not int or own[key] < 1:
            raise ValueError(f"{name}.{key}={own[key]!r} must be an int of at least 1")
    found = {fields[key]: value for key, value in own.items() if key in fields}
    if found["num_hidden_layers"] > len(shapes):
        raise ValueError(f"{name}.block_count={found['num_hidden_layers']}, but there are {len(shapes)} weights")
    found.setdefault("num_key_value_heads", found["num_attention_heads"])
    found.setdefault("head_dim", found["hidden_size"] // found["num_attention_heads"])
    table = _table(shapes)
    _check_claims(name, own, {"vocab_size": table, "attention.value_length": found["head_dim"],
                              "rope.dimension_count": found["head_dim"]})  # fmt: skip
    config = family.fixed(found) | found | {"rope_scaling": _scaling(name, own, shapes, read)}
    more = {"vocab_size": table, "tie_word_embeddings": "output.weight" not in shapes}
    return config | more | {"model_type": family.model_type}


def _own_values(name: str, values: dict[str, Any]) -> dict[str, Any]:
    """The values of the architecture itself; 32-bit floats as the shortest decimals that mean them."""
    own = {}
    for key, value in values.items():
        if key.startswith(f"{name}."):
            if not isinstance(value, int | float | str):
                raise ValueError(f"{key} is a list; one value for all layers is supported")
            own[key.removeprefix(f"{name}.")] = float(str(np.float32(value))) if type(value) is float else value
        elif not key.startswith(ELSEWHERE):
            raise ValueError(f"{key}={value!r} is not known and may change the result")
    return own


def _table(shapes: dict[str, tuple[int, ...]]) -> int:
    """Rows of the embedding."""
    shape = shapes.get("token_embd.weight", ())
    if len(shape) != 2:
        raise ValueError("token_embd.weight, the table of the embedding, is missing or not two-dimensional")
    return shape[0]


def _check_claims(name: str, own: dict[str, Any], claims: dict[str, Any]) -> None:
    for key, wanted in claims.items():
        if own.get(key, wanted) != wanted:
            raise ValueError(f"{name}.{key}={own[key]!r} is not supported beside a size of {wanted!r}")


def _scaling(
    name: str, own: dict[str, Any], shapes: dict[str, tuple[int, ...]], read: Callable[[str], np.ndarray]
) -> dict[str, Any] | None:
    kind, factor = own.get("rope.scaling.type", "none"), own.get("rope.scaling.factor")
    if ROPE_FACTORS in shapes:
        if kind != "none" or name != "llama":
            raise ValueError(f"{ROPE_FACTORS} beside {name}.rope.scaling.type={kind!r} is not supported")
        return _llama_3(own.get("rope.freq_base", 10000.0), read(ROPE_FACTORS))
    if kind == "none":
        return None
    if kind == "linear" and factor is not None:
        return {"rope_type": "linear", "factor": factor}
    length = own.get("rope.scaling.original_context_length")
    if kind == "yarn" and factor is not None and length is not None:
        return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": length}
    raise ValueError(f"{name}.rope.scaling.type={kind!r} is not supported, or one of its settings is missing")


def _llama_3(theta: Any, factors: np.ndarray) -> dict[str, Any]:
    """The scaling whose factors these are: the file keeps them, but not what they were made from."""
    plain = plain_frequencies(theta, 2 * factors.size) if type(theta) is float and theta > 0 else np.ones(0)
    for rule in LLAMA_3:
        if factors.ndim == 1 and np.allclose(plain / factors, rule.frequencies(theta, 2 * factors.size), rtol=1e-4):
            return {
                "rope_type": rule.rope_type, "factor": rule.factor, "low_freq_factor": rule.low_freq_factor,
                "high_freq_factor": rule.high_freq_factor,
                "original_max_position_embeddings": rule.original_max_position_embeddings,
            }  # fmt: skip
    if plain.size and np.all(factors == 1):
        return {"rope_type": "default"}
    raise ValueError(f"{ROPE_FACTORS} stretches the rotation in a way that Llama 3.1, 3.2 and 3.3 do not")
