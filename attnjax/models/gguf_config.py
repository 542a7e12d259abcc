"""What the values in a GGUF header say about a model, in the fields of a Hugging Face config.json.

Every value of the model's architecture is used, changes nothing, or is an error. What the format's reader takes where a
value is missing, and what it knows about an architecture without a value (llama.cpp, `llama-model.cpp` and
`llama-hparams.h`), is added here: a default of the format is the format's, not that of Hugging Face.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from attnjax.models.messages import LONGEST, cut, shown
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
WINDOW, PERIOD = "attention.sliding_window", "attention.sliding_window_pattern"
GEMMA = {
    WINDOW: "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
# Read by name below, compared with what follows from other values, or without a bearing on a forward pass (finetuned).
READ = frozenset(
    "rope.scaling.type rope.scaling.factor rope.scale_linear rope.scaling.attn_factor rope.scaling.finetuned "
    "rope.scaling.original_context_length vocab_size attention.value_length attention.key_length_swa "
    "attention.value_length_swa rope.dimension_count rope.dimension_count_swa rope.freq_base_swa".split()
)
# These change nothing with this value, which is also what stands for it where it is missing.
NEUTRAL: dict[str, Any] = {
    "attention.causal": True, "expert_count": 0, "expert_used_count": 0, "expert_shared_count": 0,
    "expert_group_count": 0, "expert_group_used_count": 0, "pooling_type": 0, "rope.scaling.alpha": 0.0,
    "rope.scaling.yarn_log_multiplier": 0.0, "rope.scaling.yarn_ext_factor": 1.0, "rope.scaling.yarn_attn_factor": 1.0,
    "rope.scaling.yarn_beta_fast": 32.0, "rope.scaling.yarn_beta_slow": 1.0,
    "tensor_data_layout": "Meta AI original pth",
}  # fmt: skip
SPLIT = ("split.no", "split.count", "split.tensors.count")  # merged parts leave these behind, with a count of 0
ELSEWHERE = ("general.", "tokenizer.", "quantize.", "imatrix.")
SIZES = ("block_count", "embedding_length", "feed_forward_length", "attention.head_count")
NEEDED = (*SIZES, "attention.layer_norm_rms_epsilon")
COUNTS = frozenset((*SIZES, "attention.head_count_kv", "attention.key_length", "context_length"))
ROPE_FACTORS = "rope_freqs.weight"  # by how much each pair of channels turns slower; in files of Llama 3
LLAMA_3 = tuple(Llama3Scaling(factor, 1.0, 4.0, 8192) for factor in (8.0, 32.0))  # 3.1 and 3.3; 3.2


class Family(NamedTuple):
    """How an architecture of llama.cpp is called by Hugging Face, and the fields that it has beside FIELDS."""

    model_type: str
    more: dict[str, str] = {}
    period: int = 0  # every so many layers one is not sliding, unless a value says otherwise; 0: none slides
    fixed: Callable[[dict[str, Any]], dict[str, Any]] = lambda config: {}  # what is not written down


def _gemma2(config: dict[str, Any]) -> dict[str, Any]:
    defaults = {"sliding_window": 4096, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    return defaults | {"query_pre_attn_scalar": _score_width(config, 46)}


def _gemma3(config: dict[str, Any]) -> dict[str, Any]:
    return {"query_pre_attn_scalar": _score_width(config, 62), "rope_local_base_freq": 1e4}


def _score_width(config: dict[str, Any], layers_of_27b: int) -> float:
    """Scores are divided by its square root: the head's width, but for the models of 27B."""
    if config["num_hidden_layers"] == layers_of_27b:
        return config["hidden_size"] / config["num_attention_heads"]
    return float(config["head_dim"])


FAMILIES = {
    "llama": Family("llama"),
    "qwen2": Family("qwen2"),
    "qwen3": Family("qwen3"),
    "gemma2": Family("gemma2", GEMMA, 2, _gemma2),
    "gemma3": Family("gemma3_text", GEMMA | {"rope.freq_base_swa": "rope_local_base_freq"}, 6, _gemma3),
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
    name, kind = values.get("general.architecture"), values.get("general.type", "model")
    if not isinstance(name, str) or name not in FAMILIES:
        raise ValueError(f"general.architecture={shown(name)} is not supported; known are {', '.join(FAMILIES)}")
    if not isinstance(kind, str) or kind != "model":
        raise ValueError(f"general.type={shown(kind)}: only a whole model can be loaded")
    family, own = FAMILIES[name], _own_values(name, values)
    _check_values(name, family, own, len(shapes))
    fields = FIELDS | family.more
    found = {"rope_theta": 1e4} | {fields[key]: value for key, value in own.items() if key in fields}
    found.setdefault("num_key_value_heads", found["num_attention_heads"])
    found.setdefault("head_dim", found["hidden_size"] // found["num_attention_heads"])
    found["vocab_size"] = _table(shapes)
    _check_claims(name, family, own, found)
    config = family.fixed(found) | found
    more = {"tie_word_embeddings": "output.weight" not in shapes, "rope_scaling": _scaling(name, own, shapes, read)}
    return config | _sliding(name, family, own, config) | more | {"model_type": family.model_type}


def _own_values(name: str, values: dict[str, Any]) -> dict[str, Any]:
    """The values of the architecture itself; 32-bit floats as the shortest decimals that mean them."""
    own = {}
    for key, value in values.items():
        if key.startswith(f"{name}."):
            short = key.removeprefix(f"{name}.")
            if not isinstance(value, int | float | str) and short != PERIOD:
                raise ValueError(f"{cut(key, LONGEST)} is a list; one value for all layers is supported")
            own[short] = _shortest(value) if type(value) is float else value
        elif not key.startswith(ELSEWHERE) and not (key in SPLIT and values.get("split.count") in (0, 1)):
            raise ValueError(f"{cut(key, LONGEST)}={shown(value)} is not known and may change the result")
    return own


def _shortest(value: float) -> float:
    with np.errstate(over="ignore"):
        narrow = np.float32(value)
    return float(str(narrow)) if narrow == value else value


def _check_values(name: str, family: Family, own: dict[str, Any], num_weights: int) -> None:
    """That each value is known, of its type, and that none is missing that the format has no default for."""
    for key, value in own.items():
        neutral = key in NEUTRAL and isinstance(value, int | float | str) and value == NEUTRAL[key]
        if not (neutral or key in FIELDS or key in family.more or key in READ or (key == PERIOD and family.period)):
            _refuse(name, key, value)
    missing = [f"{name}.{key}" for key in NEEDED if key not in own]
    if missing:
        raise ValueError(f"{', '.join(missing)}: missing")
    for key in sorted((COUNTS | {WINDOW}) & own.keys()):
        least = 0 if key == WINDOW else 1
        if type(own[key]) is not int or own[key] < least:
            raise ValueError(f"{name}.{key}={shown(own[key])} must be an int of at least {least}")
    if own["block_count"] > num_weights:
        raise ValueError(f"{name}.block_count={own['block_count']}, but there are {num_weights} weights")


def _refuse(name: str, key: str, value: Any) -> None:
    what = f"{name}.{cut(key, LONGEST)}={shown(value)}"
    raise ValueError(f"{what} is not known for this architecture and may change the result")


def _table(shapes: dict[str, tuple[int, ...]]) -> int:
    """Rows of the embedding."""
    shape = shapes.get("token_embd.weight", ())
    if len(shape) != 2:
        raise ValueError("token_embd.weight, the table of the embedding, is missing or not two-dimensional")
    return shape[0]


def _check_claims(name: str, family: Family, own: dict[str, Any], found: dict[str, Any]) -> None:
    """That values which say something a second time say the same."""
    heads = "attention.value_length attention.key_length_swa attention.value_length_swa rope.dimension_count"
    claims = dict.fromkeys([*heads.split(), "rope.dimension_count_swa"], found["head_dim"])
    claims |= {"vocab_size": found["vocab_size"], "rope.freq_base_swa": found["rope_theta"]}
    for key, wanted in claims.items():
        if key in own and key not in family.more and own[key] != wanted:
            raise ValueError(f"{name}.{key}={shown(own[key])} is not supported beside a size of {shown(wanted)}")


def _sliding(name: str, family: Family, own: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Which layers slide, where some do."""
    if not family.period:
        return {}
    layers, period = config["num_hidden_layers"], own.get(PERIOD, family.period)
    if isinstance(period, np.ndarray) and len(period) == layers:
        slides = (period != 0).tolist()
    elif type(period) is int and period >= 0:
        slides = [period == 0 or i % period < period - 1 for i in range(layers)]
    else:
        raise ValueError(
            f"{name}.{PERIOD}={shown(period)} must be an int of at least 0 or a list of block_count={layers} numbers"
        )
    none = {"sliding_window": None} if name == "gemma3" and not config.get("sliding_window") else {}
    return {"layer_types": ["sliding_attention" if one and not none else "full_attention" for one in slides]} | none


def _scaling(
    name: str, own: dict[str, Any], shapes: dict[str, tuple[int, ...]], read: Callable[[str], np.ndarray]
) -> dict[str, Any] | None:
    kind, attention = own.get("rope.scaling.type", "linear"), own.get("rope.scaling.attn_factor", 1.0)
    if kind not in ("none", "linear", "yarn"):
        raise ValueError(f"{name}.rope.scaling.type={shown(kind)} is not supported, only none, linear and yarn")
    factor = 1.0 if kind == "none" else _factor(name, own)
    if attention != 1 and not (kind == "yarn" and factor != 1 and _is_number(attention)):
        _refuse(name, "rope.scaling.attn_factor", attention)
    if ROPE_FACTORS in shapes:
        if name != "llama" or factor != 1:
            raise ValueError(
                f"{ROPE_FACTORS} beside {name}.rope.scaling.type={kind!r} and a factor of {factor} is not supported"
            )
        return _llama_3(own.get("rope.freq_base", 10000.0), read(ROPE_FACTORS))
    if factor == 1:
        return None
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    length = own.get("rope.scaling.original_context_length") or own.get("context_length")
    if length is None:
        raise ValueError(f"{name}.context_length: missing, and yarn counts from it")
    grown = {} if attention == 1 else {"attention_factor": attention * (0.1 * math.log(factor) + 1)}
    return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": length} | grown


def _factor(name: str, own: dict[str, Any]) -> float:
    """By how much positions are stretched, under its name or the older one; 0 stands for 1, which is the default."""
    said = {key: own[key] for key in ("rope.scaling.factor", "rope.scale_linear") if key in own}
    for key, value in said.items():
        if not _is_number(value) or value < 0:
            raise ValueError(f"{name}.{key}={shown(value)} must be a number of at least 0")
    if len(set(said.values())) > 1:
        both = " and ".join(f"{name}.{key}={value}" for key, value in said.items())
        raise ValueError(f"{both}: two names of one factor")
    return float(next(iter(said.values()), 0) or 1)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _llama_3(theta: Any, factors: np.ndarray) -> dict[str, Any]:
    """The scaling whose factors these are: the file keeps them, but not what they were made from."""
    plain = plain_frequencies(theta, 2 * factors.size) if _is_number(theta) and theta > 0 else np.ones(0)
    with np.errstate(all="ignore"):
        slower = plain / factors if plain.size else plain
    for rule in LLAMA_3:
        if plain.size and np.allclose(slower, rule.frequencies(theta, 2 * factors.size), rtol=1e-4):
            return {
                "rope_type": rule.rope_type, "factor": rule.factor, "low_freq_factor": rule.low_freq_factor,
                "high_freq_factor": rule.high_freq_factor,
                "original_max_position_embeddings": rule.original_max_position_embeddings,
            }  # fmt: skip
    if plain.size and np.all(factors == 1):
        return {"rope_type": "default"}
    raise ValueError(f"{ROPE_FACTORS} stretches the rotation in a way that Llama 3.1, 3.2 and 3.3 do not")
