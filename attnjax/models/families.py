"""What the config of a published model means, as a Config: one entry for each family that is understood.

A field that a config leaves out means what Hugging Face's own class of that family takes for it; every other field
is used, or changes nothing (`published_fields`), or is an error.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from attnjax.models.config import Config
from attnjax.models.messages import cut, shown
from attnjax.models.published_fields import NEEDED, check_unused, complete
from attnjax.models.published_rope import read_rope, read_rope_by_type

SLIDING, FULL = "sliding_attention", "full_attention"
TEXT, TOWER = "gemma3_text", "gemma3"  # the second is the first with towers beside it
BESIDE_TEXT = frozenset(
    "text_config vision_config mm_tokens_per_image boi_token_index eoi_token_index image_token_index boi_token_id "
    "eoi_token_id image_token_id".split()
)
# Families whose names look like those of others.
OTHERS = frozenset("mixtral ministral mllama llava llada gemma3n gemma3ntext qwen2vl qwen3vl".split())
LETTERS = {SLIDING: "L", FULL: "G"}
ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh"}
EXPERTS = (
    "its MLP is a mixture of experts, which Decoder does not have; models.load_attention(path, layer) reads the "
    "attention of one layer"
)


class Published(NamedTuple):
    """A published config, understood."""

    family: str
    config: Config
    norms_from_1: bool = False  # norms are stored as what is added to 1
    no_decoder: str | None = None  # why only the attention can be read


class Family(NamedTuple):
    """The fields that a model_type understands with their defaults, and what they mean."""

    defaults: dict[str, Any]
    read: Callable[[dict[str, Any]], Published]


def understand(fields: Mapping[str, Any]) -> Published:
    """What the fields of a config.json mean.

    Raises:
        ValueError: if the family is unknown, or a field is missing, wrong, or not supported and may change the
            result; the message names it.
    """
    fields = text_fields(fields)
    name = fields.get("model_type")
    if not isinstance(name, str) or name not in FAMILIES:
        known = ", ".join([*FAMILIES, TOWER])
        raise ValueError(f"model_type={shown(name)} is not supported; known are {known}{_misspelt(name)}")
    family = FAMILIES[name]
    full = complete(name, fields, family.defaults)
    try:
        return family.read(full)
    except (TypeError, ValueError, OverflowError) as fault:
        raise ValueError(cut(fault)) from None


def text_fields(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of the text tower where the model has one beside others (Gemma 3 from 4B on); else these very fields.

    Raises:
        ValueError: if there is none, or a field outside it contradicts it or may change the result.
    """
    if fields.get("model_type") != TOWER:
        return fields
    text = fields.get("text_config")
    if not isinstance(text, Mapping) or text.get("model_type", TEXT) != TEXT:
        raise ValueError(f"text_config={shown(text)} must be an object with the fields of a {TEXT}")
    if text.get("final_logit_softcapping") is not None:
        cap = shown(text["final_logit_softcapping"])
        raise ValueError(f"final_logit_softcapping={cap} in text_config is not supported: not every reader heeds it")
    defaults = FAMILIES[TEXT].defaults
    for name, value in fields.items():
        if name in defaults:
            inside = text.get(name, defaults[name])
            if value is not None and value != inside:
                raise ValueError(f"{name}={shown(value)}, but {name}={shown(inside)} in text_config or by default")
        elif name not in BESIDE_TEXT:
            check_unused(TOWER, name, value, defaults)
    return {**text, "model_type": TEXT}


def _misspelt(name: object) -> str:
    """A hint at the family whose name this looks like, unless it is another's; another number is another model."""
    names = {_plain(family): family for family in (*FAMILIES, TOWER)}
    own = _plain(str(name)[:100])
    same_number = [plain for plain in names if re.sub(r"\D", "", plain) == re.sub(r"\D", "", own)]
    near = [] if own in OTHERS else difflib.get_close_matches(own, same_number, 1, 0.8)
    return f"; did you mean {names[near[0]]!r}?" if near else ""


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())


def shortest_period(letters: str) -> str:
    """The shortest layout that, repeated and cut, gives these letters."""
    border, borders = 0, [0]  # Knuth, Morris and Pratt 1977: the longest border of every beginning
    for i in range(1, len(letters)):
        while border and letters[i] != letters[border]:
            border = borders[border - 1]
        border += letters[i] == letters[border]
        borders.append(border)
    return letters[: len(letters) - border]


def _layers(f: Mapping[str, Any], otherwise: Callable[[int], bool]) -> dict[str, Any]:
    """layout and legend; `otherwise(i)` says whether layer i slides where the config does not."""
    types, layers = f.get("layer_types"), f["num_hidden_layers"]
    if types is None:
        types = [SLIDING if otherwise(i) else FULL for i in range(layers)]
    if not isinstance(types, list) or len(types) != layers:
        raise ValueError(f"layer_types={shown(types)} must be a list of num_hidden_layers={layers} names")
    for name in types:
        if name not in (SLIDING, FULL):
            raise ValueError(f"layer_types has {shown(name)}; known are {SLIDING!r} and {FULL!r}")
    legend = {"G": "causal()"} if FULL in types else {}
    if SLIDING in types:
        if f["sliding_window"] is None:
            raise ValueError("layer_types has sliding layers, but sliding_window is null or switched off")
        legend["L"] = f"window({f['sliding_window']})"
    return dict(layout=shortest_period("".join(LETTERS[name] for name in types)), legend=legend)


def _config(f: Mapping[str, Any], layers: Mapping[str, Any], rope: Mapping[str, Any], **more: Any) -> Config:
    """The fields that all families have, and what is special about one."""
    newer = f.get("hidden_activation")
    activation = f["hidden_act"] if newer is None else newer
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise ValueError(f"the activation {shown(activation)} is not supported, only {', '.join(ACTIVATIONS)}")
    return Config(
        vocab_size=f["vocab_size"],
        d_model=f["hidden_size"],
        num_layers=f["num_hidden_layers"],
        num_heads=f["num_attention_heads"],
        num_kv_heads=f["num_key_value_heads"],
        head_dim=f["head_dim"],
        d_ff=f["intermediate_size"],
        tie_embeddings=f["tie_word_embeddings"],
        norm_eps=f["rms_norm_eps"],
        dropout_rate=f["attention_dropout"] or 0.0,
        activation=ACTIVATIONS[activation],
        **layers,
        **rope,
        **more,
    )


def _llama(f: dict[str, Any]) -> Published:
    layers = _layers(f, lambda i: False)
    biases = dict(use_bias=f["attention_bias"], mlp_bias=f["mlp_bias"])
    return Published("llama", _config(f, layers, read_rope(f, 1e4), **biases))


def _mistral(f: dict[str, Any]) -> Published:
    layers = _layers(f, lambda i: f["sliding_window"] is not None)
    return Published("mistral", _config(f, layers, read_rope(f, 1e4)))


def _qwen(f: dict[str, Any]) -> dict[str, Any]:
    """Layers from `max_window_layers` on slide, if any do."""
    window = f["sliding_window"] if f["use_sliding_window"] else None
    return _layers(f | {"sliding_window": window}, lambda i: window is not None and i >= f["max_window_layers"])


def _qwen2(f: dict[str, Any]) -> Published:
    return Published("qwen2", _config(f, _qwen(f), read_rope(f, 1e4), use_bias=True, out_bias=False))


def _qwen3(f: dict[str, Any]) -> Published:
    special = dict(use_bias=f["attention_bias"], qk_norm=True, qk_norm_eps=f["rms_norm_eps"])
    return Published("qwen3", _config(f, _qwen(f), read_rope(f, 1e4), **special))


def _gemma(f: dict[str, Any]) -> dict[str, Any]:
    """What Gemma 2 and 3 share."""
    if f["hidden_act"] not in (None, f["hidden_activation"]):
        one, other = shown(f["hidden_act"]), shown(f["hidden_activation"])
        raise ValueError(f"hidden_act={one} beside hidden_activation={other}")
    if not f["query_pre_attn_scalar"] > 0:
        raise ValueError(f"query_pre_attn_scalar={shown(f['query_pre_attn_scalar'])} must be above 0")
    return dict(
        scale=f["query_pre_attn_scalar"] ** -0.5,
        use_bias=f["attention_bias"],
        post_norms=True,
        embedding_scale=f["hidden_size"] ** 0.5,
        logits_soft_cap=f["final_logit_softcapping"],
    )


def _gemma2(f: dict[str, Any]) -> Published:
    layers = _layers(f, lambda i: i % 2 == 0)
    special = _gemma(f) | dict(soft_cap=f["attn_logit_softcapping"])
    return Published("gemma2", _config(f, layers, read_rope(f, 1e4), **special), norms_from_1=True)


def _gemma3(f: dict[str, Any]) -> Published:
    every, saved = f["sliding_window_pattern"], f["_sliding_window_pattern"]
    if f["layer_types"] is None and saved not in (None, every):
        raise ValueError(f"_sliding_window_pattern={saved!r}, but sliding_window_pattern={every!r}; give layer_types")
    layers = _layers(f, lambda i: (i + 1) % every != 0)
    types = {letter: kind for kind, letter in LETTERS.items() if letter in layers["legend"]}
    rope = read_rope_by_type(f, {SLIDING: 1e4, FULL: 1e6}, types)
    special = _gemma(f) | dict(qk_norm=True, qk_norm_eps=f["rms_norm_eps"])
    return Published("gemma3_text", _config(f, layers, rope, **special), norms_from_1=True)


def _gpt_oss(f: dict[str, Any]) -> Published:
    layers = _layers(f, lambda i: i % 2 == 0)
    yarn = dict(rope_type="yarn", factor=32.0, truncate=False, original_max_position_embeddings=4096)
    special = dict(use_bias=f["attention_bias"], learned_sinks=True)
    config = _config(f, layers, read_rope(f, 150000.0, yarn), **special)
    return Published("gpt_oss", config, no_decoder=EXPERTS)


def _fields(**more: Any) -> dict[str, Any]:
    """The fields of all families, and more."""
    sizes = "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads".split()
    optional = "num_key_value_heads head_dim rope_parameters rope_scaling rope_theta".split()
    return dict.fromkeys(sizes, NEEDED) | dict.fromkeys(optional) | dict(
        hidden_act="silu", rms_norm_eps=1e-6, attention_dropout=0.0, tie_word_embeddings=False
    ) | more  # fmt: skip


QWEN = dict(
    max_position_embeddings=32768, num_key_value_heads=32, layer_types=None, use_sliding_window=False,
    sliding_window=4096, max_window_layers=28,
)  # fmt: skip
GEMMA = dict(
    hidden_act=None, hidden_activation="gelu_pytorch_tanh", num_key_value_heads=4, head_dim=256, attention_bias=False,
    tie_word_embeddings=True, query_pre_attn_scalar=256, layer_types=None, sliding_window=4096,
)  # fmt: skip
# The larger ones leave out what is so.
GEMMA_3 = dict(vocab_size=262208, hidden_size=2304, intermediate_size=9216, num_hidden_layers=26, num_attention_heads=8)
FAMILIES = {
    "llama": Family(_fields(max_position_embeddings=2048, attention_bias=False, mlp_bias=False), _llama),
    "mistral": Family(
        _fields(max_position_embeddings=131072, num_key_value_heads=8, sliding_window=4096), _mistral
    ),
    "qwen2": Family(_fields(**QWEN), _qwen2),
    "qwen3": Family(_fields(**QWEN | dict(head_dim=128, attention_bias=False)), _qwen3),
    "gemma2": Family(
        _fields(**GEMMA, max_position_embeddings=8192, attn_logit_softcapping=50.0, final_logit_softcapping=30.0),
        _gemma2,
    ),
    "gemma3_text": Family(
        _fields(
            **GEMMA, **GEMMA_3, max_position_embeddings=131072, final_logit_softcapping=None, rope_local_base_freq=None,
            sliding_window_pattern=6, _sliding_window_pattern=None,
        ),
        _gemma3,
    ),
    "gpt_oss": Family(
        _fields(
            max_position_embeddings=131072, head_dim=64, num_key_value_heads=8, rms_norm_eps=1e-5, attention_bias=True,
            layer_types=None, sliding_window=128, num_local_experts=128, num_experts_per_tok=4,
            quantization_config=None, swiglu_limit=None, experts_per_token=None, initial_context_length=None,
        ),
        _gpt_oss,
    ),
}  # fmt: skip
