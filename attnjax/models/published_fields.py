"""The fields of a published config.json: which change nothing, which must be neutral, of what kind the others are."""

from collections.abc import Mapping
from typing import Any

from attnjax.models.config import MOST_LAYERS
from attnjax.models.messages import nearest, shown
from attnjax.patterns.checks import LARGEST as LARGEST_SIZE

NEEDED = object()  # stands for the default of a field that has none

# They say nothing about the numbers of a forward pass: where the config came from, ids that only generation and
# training read, first weights, storage, and settings of the generation loop.
HARMLESS = frozenset(
    "_name_or_path architectures model_type transformers_version transformers.js_config _commit_hash "
    "torch_dtype dtype bos_token_id eos_token_id pad_token_id unk_token_id sep_token_id decoder_start_token_id "
    "use_cache cache_implementation initializer_range attn_implementation _attn_implementation return_dict "
    "_attn_implementation_autoset output_attentions output_hidden_states output_router_logits id2label label2id "
    "problem_type task_specific_params finetuning_task tokenizer_class prefix chunk_size_feed_forward "
    "pretraining_tp is_llama_config keys_to_ignore_at_inference unsloth_version unsloth_fixed "
    "router_aux_loss_coef temperature top_k top_p typical_p repetition_penalty length_penalty do_sample "
    "no_repeat_ngram_size encoder_no_repeat_ngram_size num_beams num_beam_groups num_return_sequences "
    "diversity_penalty early_stopping max_length min_length max_new_tokens bad_words_ids forced_bos_token_id "
    "forced_eos_token_id remove_invalid_values suppress_tokens begin_suppress_tokens output_scores "
    "exponential_decay_length_penalty return_dict_in_generate is_decoder".split()
)
# A family that does not use these is as published only with one of these values (null is always one).
NEUTRAL: dict[str, Any] = {
    "partial_rotary_factor": 1.0, "rope_interleaved": False, "use_mrope": False, "use_sliding_window": False,
    "use_bidirectional_attention": False, "attention_bias": False, "mlp_bias": False, "qk_norm": False,
    "use_qk_norm": False, "is_encoder_decoder": False, "add_cross_attention": False, "tie_encoder_decoder": False,
    "torchscript": False, "use_bfloat16": False, "tf_legacy_loss": False, "pruned_heads": {},
}  # fmt: skip

# What some folders say a second time, under a name that Hugging Face does not read (Gemma 2 of 9B and 27B; Llama 1).
SAME = {"sliding_window_size": "sliding_window", "max_sequence_length": "max_position_embeddings"}

LARGEST = 1e30  # float32 holds more, but no model has such a number
COUNTS = frozenset(
    "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim "
    "max_position_embeddings sliding_window sliding_window_pattern _sliding_window_pattern num_local_experts "
    "num_experts_per_tok".split()
)
NUMBERS = frozenset(
    "rms_norm_eps attention_dropout rope_theta rope_local_base_freq query_pre_attn_scalar attn_logit_softcapping "
    "final_logit_softcapping max_window_layers".split()
)
FLAGS = frozenset("tie_word_embeddings attention_bias mlp_bias use_sliding_window".split())
# null says something of its own in these; elsewhere only where it is also the default.
NULLABLE = frozenset(
    "num_key_value_heads sliding_window attn_logit_softcapping final_logit_softcapping attention_dropout".split()
)


def complete(family: str, fields: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that the family uses, each given or by default.

    Raises:
        ValueError: if one is missing or of the wrong kind, or another one may change the result.
    """
    fields = _said_once(fields, defaults)
    for name, value in fields.items():
        if name not in defaults:
            check_unused(family, name, value, defaults)
    full = {name: fields.get(name, default) for name, default in defaults.items()}
    for name, value in full.items():
        if value is NEEDED:
            raise ValueError(f"the field {name!r} is missing")
        if value is not None or not (defaults[name] is None or name in NULLABLE):
            _check_kind(name, value)
    return full


def _said_once(fields: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The fields without second names, which must agree with the first."""
    found = dict(fields)
    for second, name in SAME.items():
        if found.get(second) is not None and name in defaults:
            value = found.pop(second)
            # Without a length of its own nothing counts from this one, but a window of that size is not what is read.
            said = found.setdefault(name, value if name == "max_position_embeddings" else defaults[name])
            if said != value:
                raise ValueError(
                    f"{second}={shown(value)} and {name}={shown(said)} beside each other: two names of one thing, of "
                    "which the second is read"
                )
    return found


def check_unused(family: str, name: str, value: Any, known: Mapping[str, Any]) -> None:
    """Raises a ValueError that names the field if it may change the result."""
    if name in HARMLESS or value is None:
        return
    if name in NEUTRAL:
        if value == NEUTRAL[name] and type(value) is type(NEUTRAL[name]):
            return
        raise ValueError(f"{name}={shown(value)} changes the result and is not supported for {family}")
    raise ValueError(
        f"the field {shown(name)} (here {shown(value)}) is not known for {family} and may change the result"
        f"{nearest(name, known, 0.8)}"
    )


def _check_kind(name: str, value: Any) -> None:
    if name in COUNTS and not (type(value) is int and value >= 1):
        raise ValueError(f"{name}={shown(value)} must be an int of at least 1")
    most = MOST_LAYERS if name == "num_hidden_layers" else LARGEST_SIZE
    if (name in COUNTS or name == "max_window_layers") and type(value) is int and value > most:
        raise ValueError(f"{name}={value} is too large: it is at most {most}")
    if name == "max_window_layers" and not (type(value) is int and value >= 0):
        raise ValueError(f"{name}={shown(value)} must be an int of at least 0")
    if name in NUMBERS and not (type(value) in (int, float) and 0 <= value <= LARGEST):  # NaN is neither
        raise ValueError(f"{name}={shown(value)} must be a number from 0 to {LARGEST:.0e}")
    if name in FLAGS and type(value) is not bool:
        raise ValueError(f"{name}={shown(value)} must be true or false")
