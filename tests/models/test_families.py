"""What a published config says is used, or changes nothing, or is an error that names the field."""

import json

import pytest

from attnjax.models import Config
from attnjax.models.families import FAMILIES, shortest_period, understand
from attnjax.models.layout import layer_letters
from attnjax.nn import DynamicScaling, LinearScaling, Llama3Scaling, Rope, YarnScaling
from tests.models.published import GOLDEN

NAMES = {"llama": "llama", "mistral": "mistral", "qwen2": "qwen2", "qwen3": "qwen3", "gemma2": "gemma2",
         "gemma3": "gemma3_text", "gpt_oss": "gpt_oss"}  # fmt: skip


def published(name, *gone, **changes):
    """The config.json of a golden folder without some fields and with others."""
    fields = json.loads((GOLDEN / name / "config.json").read_text())
    return {field: value for field, value in fields.items() if field not in gone} | changes


def config(name, *gone, **changes):
    return understand(published(name, *gone, **changes)).config


@pytest.mark.parametrize("name", NAMES)
def test_every_field_is_used_or_harmless(name):
    found = understand(published(name))
    assert found.family == NAMES[name] and isinstance(found.config, Config)
    assert found.norms_from_1 == name.startswith("gemma")
    assert (found.no_decoder is not None) == (name == "gpt_oss")


@pytest.mark.parametrize("letters", ["G", "LLL", "LG" * 13, "LLLLLG" * 4 + "LL", "GGLLL", "LGLGL", "LGGLGGL", "LLGLLGLG"])
def test_the_shortest_period(letters):
    layouts = [letters[:n] for n in range(1, len(letters) + 1)]
    shortest = next(layout for layout in layouts if layer_letters(layout, len(letters)) == letters)
    assert shortest_period(letters) == shortest


def test_a_long_list_of_layers_takes_no_time():
    letters = "L" * 200_000 + "G"
    assert shortest_period(letters) == letters


@pytest.mark.parametrize(
    "fields, theta, scaling",
    [
        (dict(), 10000.0, None),
        (dict(rope_theta=500), 500.0, None),
        (dict(rope_theta=500.0, rope_scaling=None), 500.0, None),
        (dict(rope_theta=500.0, rope_scaling={"type": "linear", "factor": 2.0}), 500.0, LinearScaling(2.0)),
        (dict(rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}), 500.0, LinearScaling(2.0)),
        (dict(rope_parameters={"rope_type": "default", "rope_theta": 500, "partial_rotary_factor": 1.0}), 500.0, None),
        (dict(rope_scaling={"type": "dynamic", "factor": 2.0}), 10000.0, DynamicScaling(2.0, 128)),
        (dict(rope_scaling={"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 16, "beta_fast": None}),
         10000.0, YarnScaling(4.0, 16)),
        (dict(rope_scaling={"rope_type": "yarn", "type": "yarn", "factor": 4}), 10000.0, YarnScaling(4.0, 128)),
        (dict(rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                            "original_max_position_embeddings": 8192}), 10000.0, Llama3Scaling(8.0, 1.0, 4.0, 8192)),
    ],
    ids=str,
)  # fmt: skip
def test_each_spelling_of_the_rotation(fields, theta, scaling):
    assert config("llama", "rope_parameters", **fields).rope("G") == Rope(theta, scaling=scaling)


@pytest.mark.parametrize(
    "fields, local, full",
    [
        (dict(), Rope(1e4), Rope(1e6)),
        (dict(rope_theta=500.0, rope_local_base_freq=20), Rope(20.0), Rope(500.0)),
        (dict(rope_scaling={"rope_type": "linear", "factor": 8.0}), Rope(1e4), Rope(1e6, scaling=LinearScaling(8.0))),
        (dict(rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0}, "sliding_attention": None}),
         Rope(1e4), Rope(1e6, scaling=LinearScaling(8.0))),
        (dict(rope_parameters={"full_attention": {"rope_theta": 7.0}, "sliding_attention": {"rope_theta": 9.0}}),
         Rope(9.0), Rope(7.0)),
    ],
    ids=str,
)  # fmt: skip
def test_each_type_of_layer_may_turn_in_its_own_way(fields, local, full):
    found = config("gemma3", "rope_parameters", **fields)
    assert (found.rope("L"), found.rope("G")) == (local, full)


def test_what_a_config_leaves_out_is_what_hugging_face_takes():
    sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=40, num_hidden_layers=4, num_attention_heads=8)
    least = {name: understand(dict(model_type=name, **sizes)).config for name in FAMILIES if not name.startswith("qwen")}
    assert {name: found.num_kv_heads for name, found in least.items()} == {
        "llama": None, "mistral": 8, "gemma2": 4, "gemma3_text": 4, "gpt_oss": 8,
    }  # fmt: skip
    assert str(least["mistral"].legend["L"]) == "window(4096)" and least["gemma3_text"].letters == "LLLL"
    assert least["gemma2"].tie_embeddings and not least["llama"].tie_embeddings
    assert (least["gemma2"].soft_cap, least["gemma2"].logits_soft_cap, least["gemma3_text"].soft_cap) == (50, 30, None)
    assert least["gpt_oss"].rope("L") == Rope(150000.0, scaling=YarnScaling(32.0, 4096, truncate=False))
    assert least["gpt_oss"].letters == "LGLG" and str(least["gpt_oss"].legend["L"]) == "window(128)"
    many = understand(dict(model_type="qwen3", **sizes | dict(num_attention_heads=64))).config
    assert (many.num_kv_heads, many.head_dim, many.letters) == (32, 128, "GGGG")


def test_qwen_slides_from_a_layer_on_and_only_where_it_is_told_to():
    sliding = dict(use_sliding_window=True, sliding_window=6)
    assert config("qwen3", "layer_types", **sliding, max_window_layers=1).letters == "GLL"
    assert config("qwen3", "layer_types", **sliding, max_window_layers=0).letters == "LLL"
    assert config("qwen3", "layer_types", sliding_window=6, use_sliding_window=False, max_window_layers=0).letters == "GGG"
    assert config("mistral", sliding_window=None).letters == "GGG"
    assert config("gemma3", "layer_types", "_sliding_window_pattern", sliding_window_pattern=3).letters == "LLGLLGLL"


@pytest.mark.parametrize(
    "name, match, fields",
    [
        ("llama", "model_type='lama' is not supported; known are llama, .*; did you mean 'llama'", dict(model_type="lama")),
        ("llama", "model_type=None", dict(model_type=None)),
        ("llama", "model_type='mixtral' is not supported", dict(model_type="mixtral")),
        ("llama", "the field 'rope_thta' .* is not known for llama .*did you mean 'rope_theta'", dict(rope_thta=5.0)),
        ("llama", "the field 'num_experts' .here 8. is not known for llama and may change the result", dict(num_experts=8)),
        ("llama", "the field 'sliding_window' .here 4096. is not known for llama", dict(sliding_window=4096)),
        ("llama", "the field 'layer_types'", dict(layer_types=["full_attention"] * 3)),
        ("llama", "the field 'quantization_config'", dict(quantization_config={"quant_method": "gptq"})),
        ("llama", "partial_rotary_factor=0.5 changes the result and is not supported for llama", dict(partial_rotary_factor=0.5)),
        ("llama", "rope_parameters: partial_rotary_factor=0.25 is not supported", dict(rope_parameters={"partial_rotary_factor": 0.25})),
        ("llama", "rope_interleaved=True changes the result", dict(rope_interleaved=True)),
        ("llama", "pruned_heads={'0': .*changes the result", dict(pruned_heads={"0": [1]})),
        ("llama", "is_encoder_decoder=True changes", dict(is_encoder_decoder=True)),
        ("llama", "the activation 'relu' is not supported, only silu", dict(hidden_act="relu")),
        ("llama", "rope_parameters: scaling has rope_type='longrope'", dict(rope_parameters={"rope_type": "longrope"})),
        ("llama", "rope_parameters: rope_type 'default' stretches nothing, so it has no use for 'factor'", dict(
            rope_parameters={"rope_type": "default", "factor": 2.0})),
        ("llama", "rope_parameters: rope_type='linear' and type='yarn' beside each other", dict(
            rope_parameters={"rope_type": "linear", "type": "yarn", "factor": 2.0})),
        ("llama", "rope_parameters has an object for 'full_attention': in this family all layers rotate alike", dict(
            rope_parameters={"full_attention": {"rope_type": "default"}})),
        ("llama", "partial_rotary_factor=True is not supported", dict(rope_parameters={"partial_rotary_factor": True})),
        ("qwen2", "max_window_layers=1.5 must be an int of at least 0", dict(max_window_layers=1.5)),
        ("gemma3", "rms_norm_eps=1e[+]308 must be a number from 0 to 1e[+]30", dict(rms_norm_eps=1e308)),
        ("gemma3", "rope_parameters=0 must be an object", dict(rope_parameters=0)),
        ("gemma3", r"the activation \[\] is not supported", dict(hidden_activation=[], hidden_act=None)),
        ("llama", "rope_parameters=.* and rope_scaling=.* exclude each other", dict(rope_scaling={"type": "linear", "factor": 2.0})),
        ("llama", "rope_theta=9.0 and rope_theta=500.0 beside", dict(rope_theta=9.0)),
        ("llama", "rope_theta='big' must be a number", dict(rope_theta="big")),
        ("llama", "rope_theta=0 must be a number above 0", dict(rope_parameters={"rope_theta": 0})),
        ("llama", r"rope_parameters=\[\] must be an object", dict(rope_parameters=[])),
        ("llama", "of rope_type 'dynamic' is not supported unless it is max_position_embeddings=128", dict(
            rope_parameters={"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 64})),
        ("llama", "num_attention_heads='4' must be an int of at least 1", dict(num_attention_heads="4")),
        ("llama", "num_attention_heads=0 must be an int of at least 1", dict(num_attention_heads=0)),
        ("llama", "vocab_size=True must be an int", dict(vocab_size=True)),
        ("llama", "rms_norm_eps=None must be a number", dict(rms_norm_eps=None)),
        ("llama", "norm_eps=0 must be finite and above 0", dict(rms_norm_eps=0)),
        ("llama", "tie_word_embeddings=1 must be true or false", dict(tie_word_embeddings=1)),
        ("llama", "num_heads=4 is not a multiple of num_kv_heads=3", dict(num_key_value_heads=3)),
        ("llama", "head size H=7 is odd", dict(head_dim=7)),
        ("mistral", "attention_bias=True changes the result and is not supported for mistral", dict(attention_bias=True)),
        ("mistral", "sliding_window=0 must be an int of at least 1", dict(sliding_window=0)),
        ("mistral", "the field 'layer_types'", dict(layer_types=["sliding_attention"] * 3)),
        ("qwen2", "layer_types has 'chunked_attention'", dict(layer_types=["chunked_attention"] * 5)),
        ("qwen2", "must be a list of num_hidden_layers=4 names", dict(num_hidden_layers=4)),
        ("qwen2", "layer_types has sliding layers, but sliding_window is null or switched off", dict(use_sliding_window=False)),
        ("qwen2", "use_mrope=True changes the result", dict(use_mrope=True)),
        ("gemma2", "use_bidirectional_attention=True changes", dict(use_bidirectional_attention=True)),
        ("gemma2", "hidden_act='silu' beside hidden_activation='gelu_pytorch_tanh'", dict(hidden_act="silu")),
        ("gemma2", "query_pre_attn_scalar=0 must be above 0", dict(query_pre_attn_scalar=0)),
        ("gemma2", "soft_cap=0.0 must be above 0", dict(attn_logit_softcapping=0)),
        ("gemma2", "sliding_window is null", dict(sliding_window=None)),
        ("gemma3", "the field 'attn_logit_softcapping' .here 50.0. is not known for gemma3_text", dict(attn_logit_softcapping=50.0)),
        ("gemma3", "rope_parameters must have an object for each of sliding_attention, full_attention; it has 'rope_type'", dict(
            rope_parameters={"rope_type": "default"})),
        ("gemma3", "_sliding_window_pattern=6, but sliding_window_pattern=3", dict(layer_types=None, sliding_window_pattern=3)),
        ("gpt_oss", "rope_parameters: scaling of rope_type='yarn' needs factor", dict(rope_parameters={"rope_type": "yarn"})),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)  # fmt: skip
def test_a_field_that_changes_the_result_is_used_or_refused(name, match, fields):
    with pytest.raises(ValueError, match=match):
        config(name, **fields)


@pytest.mark.parametrize("window", [0, -1])
@pytest.mark.parametrize("name", ["mistral", "qwen2", "gemma2", "gemma3", "gpt_oss"])
def test_m02_a_window_of_zero_is_named_and_null_is_none(name, window):
    with pytest.raises(ValueError, match=f"sliding_window={window} must be an int of at least 1"):
        config(name, sliding_window=window)
    assert str(config("mistral", sliding_window=None).legend["G"]) == "causal()"


@pytest.mark.parametrize("cap", [0.0, -5.0])
@pytest.mark.parametrize("field", ["attn_logit_softcapping", "final_logit_softcapping"])
def test_n08_a_soft_cap_is_null_or_above_zero(field, cap):
    with pytest.raises(ValueError, match="soft_cap=0.0 must be above 0|softcapping=-5.0 must be a number from 0 to"):
        config("gemma2", **{field: cap})
    assert config("gemma2", **{field: None}) != config("gemma2")


@pytest.mark.parametrize("field", ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"])
def test_a_missing_size_is_named(field):
    with pytest.raises(ValueError, match=f"the field '{field}' is missing"):
        config("llama", field)


# A value that differs from the published one, for every field that some family uses.
OTHER = dict(
    vocab_size=65, hidden_size=40, intermediate_size=41, num_hidden_layers=1, num_attention_heads=8, num_key_value_heads=1,
    head_dim=6, rope_parameters={"rope_theta": 77.0}, hidden_act="gelu", hidden_activation="silu", rms_norm_eps=0.5,
    attention_dropout=0.5, tie_word_embeddings=None, attention_bias=None, mlp_bias=False, sliding_window=4,
    query_pre_attn_scalar=99, attn_logit_softcapping=9.0, final_logit_softcapping=9.0,
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_field_that_a_family_names_changes_the_config(name):
    """So that none is read and dropped. The others say where the same thing is said elsewhere, or are not ours."""
    plain, family = published(name), FAMILIES[NAMES[name]]
    elsewhere = {
        "rope_scaling", "rope_theta", "rope_local_base_freq", "max_position_embeddings", "layer_types", "max_window_layers",
        "use_sliding_window", "sliding_window_pattern", "_sliding_window_pattern", "num_local_experts", "num_experts_per_tok",
        "quantization_config", "swiglu_limit", "experts_per_token", "initial_context_length",
    }  # fmt: skip
    if name.startswith("gemma"):
        elsewhere.add("hidden_act")
    if name == "qwen3":
        elsewhere.add("sliding_window")  # switched off in this one
    for field in set(family.defaults) - elsewhere:
        other = OTHER[field]
        changes = {field: not plain.get(field) if other is None else other}
        if field == "num_hidden_layers" and "layer_types" in plain:
            changes["layer_types"] = plain["layer_types"][:1]
        if field == "rope_parameters" and name == "gemma3":
            changes = {field: {"full_attention": {"rope_theta": 77.0}}}
        assert config(name, **changes) != config(name), field
