"""The config.json of models as they were published, and the neighbours that say something twice or misspell a family."""

import pytest

from attnjax.models.families import understand
from attnjax.nn import LinearScaling, Llama3Scaling, Rope, YarnScaling
from tests.models.test_families import config

COMMON = dict(bos_token_id=1, eos_token_id=2, initializer_range=0.02, use_cache=True, transformers_version="4.40.0")
LLAMA = COMMON | dict(model_type="llama", architectures=["LlamaForCausalLM"], hidden_act="silu", tie_word_embeddings=False, torch_dtype="float16")
LLAMA_1 = LLAMA | dict(
    hidden_size=4096, intermediate_size=11008, max_position_embeddings=2048, max_sequence_length=2048, pad_token_id=0,
    num_attention_heads=32, num_hidden_layers=32, rms_norm_eps=1e-6, vocab_size=32000,
)  # fmt: skip
LLAMA_2_70B = LLAMA | dict(
    _name_or_path="meta-llama/Llama-2-70b-hf", hidden_size=8192, intermediate_size=28672, max_position_embeddings=4096,
    num_attention_heads=64, num_hidden_layers=80, num_key_value_heads=8, pretraining_tp=1, rms_norm_eps=1e-5,
    rope_scaling=None, vocab_size=32000,
)  # fmt: skip
LLAMA_3 = LLAMA | dict(
    attention_bias=False, attention_dropout=0.0, mlp_bias=False, bos_token_id=128000, eos_token_id=[128001, 128008, 128009],
    hidden_size=4096, intermediate_size=14336, max_position_embeddings=131072, num_attention_heads=32, num_hidden_layers=32,
    num_key_value_heads=8, pretraining_tp=1, rms_norm_eps=1e-5, rope_theta=500000.0, vocab_size=128256,
    rope_scaling={"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
)  # fmt: skip
SMOLLM2 = LLAMA | dict(
    attention_bias=False, attention_dropout=0.0, mlp_bias=False, hidden_size=576, intermediate_size=1536, is_llama_config=True,
    max_position_embeddings=8192, num_attention_heads=9, num_hidden_layers=30, num_key_value_heads=3, pretraining_tp=1,
    rms_norm_eps=1e-5, rope_interleaved=False, rope_scaling=None, rope_theta=100000, tie_word_embeddings=True, vocab_size=49152,
    **{"transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}}},
)  # fmt: skip
MISTRAL = COMMON | dict(
    model_type="mistral", architectures=["MistralForCausalLM"], hidden_act="silu", hidden_size=4096, intermediate_size=14336,
    max_position_embeddings=32768, num_attention_heads=32, num_hidden_layers=32, num_key_value_heads=8, rms_norm_eps=1e-5,
    rope_theta=10000.0, sliding_window=4096, tie_word_embeddings=False, torch_dtype="bfloat16", vocab_size=32000,
)  # fmt: skip
QWEN_2 = COMMON | dict(
    model_type="qwen2", architectures=["Qwen2ForCausalLM"], attention_dropout=0.0, hidden_act="silu", hidden_size=3584,
    intermediate_size=18944, max_position_embeddings=32768, max_window_layers=28, num_attention_heads=28, num_hidden_layers=28,
    num_key_value_heads=4, rms_norm_eps=1e-6, rope_theta=1000000.0, sliding_window=131072, tie_word_embeddings=False,
    use_sliding_window=False, use_mrope=False, vocab_size=152064,
)  # fmt: skip
QWEN_3 = COMMON | dict(
    model_type="qwen3", architectures=["Qwen3ForCausalLM"], attention_bias=False, attention_dropout=0.0, head_dim=128,
    hidden_act="silu", hidden_size=1024, intermediate_size=3072, max_position_embeddings=40960, max_window_layers=28,
    num_attention_heads=16, num_hidden_layers=28, num_key_value_heads=8, rms_norm_eps=1e-6, rope_scaling=None,
    rope_theta=1000000, sliding_window=None, tie_word_embeddings=True, use_sliding_window=False, vocab_size=151936,
)  # fmt: skip
GEMMA_2_27B = COMMON | dict(
    model_type="gemma2", architectures=["Gemma2ForCausalLM"], attention_bias=False, attention_dropout=0.0, head_dim=128,
    attn_logit_softcapping=50.0, cache_implementation="hybrid", final_logit_softcapping=30.0, hidden_act="gelu_pytorch_tanh",
    hidden_activation="gelu_pytorch_tanh", hidden_size=4608, intermediate_size=36864, max_position_embeddings=8192,
    num_attention_heads=32, num_hidden_layers=46, num_key_value_heads=16, query_pre_attn_scalar=144, rms_norm_eps=1e-6,
    rope_theta=10000.0, sliding_window=4096, sliding_window_size=4096, vocab_size=256000, _attn_implementation="eager",
)  # fmt: skip
GEMMA_3_270M = COMMON | dict(
    model_type="gemma3_text", architectures=["Gemma3ForCausalLM"], _sliding_window_pattern=6, attention_bias=False, head_dim=256,
    attention_dropout=0.0, attn_logit_softcapping=None, final_logit_softcapping=None, hidden_activation="gelu_pytorch_tanh",
    hidden_size=640, intermediate_size=2048, max_position_embeddings=32768, num_attention_heads=4, num_hidden_layers=18,
    layer_types=(["sliding_attention"] * 5 + ["full_attention"]) * 3, num_key_value_heads=1, query_pre_attn_scalar=256,
    rms_norm_eps=1e-6, rope_local_base_freq=10000.0, rope_scaling=None, rope_theta=1000000.0, sliding_window=512,
    use_bidirectional_attention=False, vocab_size=262144,
)  # fmt: skip
GEMMA_3_4B = dict(
    model_type="gemma3", architectures=["Gemma3ForConditionalGeneration"], boi_token_index=255999, eoi_token_index=256000,
    eos_token_id=[1, 106], image_token_index=262144, initializer_range=0.02, mm_tokens_per_image=256, torch_dtype="bfloat16",
    transformers_version="4.50.0.dev0", text_config=dict(
        hidden_size=2560, intermediate_size=10240, model_type="gemma3_text", num_hidden_layers=34, sliding_window=1024,
        rope_scaling={"factor": 8.0, "rope_type": "linear"}),
    vision_config=dict(hidden_size=1152, image_size=896, model_type="siglip_vision_model", num_hidden_layers=27),
)  # fmt: skip
TEXT_27B = dict(
    head_dim=128, hidden_size=5376, intermediate_size=21504, model_type="gemma3_text", num_attention_heads=32,
    num_hidden_layers=62, num_key_value_heads=16, query_pre_attn_scalar=168, sliding_window=1024,
    rope_scaling={"factor": 8.0, "rope_type": "linear"},
)  # fmt: skip
GPT_OSS = COMMON | dict(
    model_type="gpt_oss", architectures=["GptOssForCausalLM"], attention_bias=True, attention_dropout=0.0, experts_per_token=4,
    head_dim=64, hidden_act="silu", hidden_size=2880, initial_context_length=4096, intermediate_size=2880,
    layer_types=["sliding_attention", "full_attention"] * 18, max_position_embeddings=131072, num_attention_heads=64,
    num_experts_per_tok=4, num_hidden_layers=36, num_key_value_heads=8, num_local_experts=128, output_router_logits=False,
    quantization_config={"modules_to_not_convert": ["lm_head"], "quant_method": "mxfp4"}, rms_norm_eps=1e-5,
    rope_scaling={"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": False},
    rope_theta=150000, router_aux_loss_coef=0.9, sliding_window=128, swiglu_limit=7.0, tie_word_embeddings=False, vocab_size=201088,
)  # fmt: skip
FULL, SLIDING = "causal()", "window({})".format


@pytest.mark.parametrize(
    "fields, layout, legend, rope, sizes",
    [
        (LLAMA_1, "G", {"G": FULL}, Rope(1e4), (32, 4096, 32, None, None)),
        ({name: value for name, value in LLAMA_1.items() if name != "max_position_embeddings"}, "G", {"G": FULL}, Rope(1e4), (32, 4096, 32, None, None)),
        (LLAMA_2_70B, "G", {"G": FULL}, Rope(1e4), (80, 8192, 64, 8, None)),
        (LLAMA_3, "G", {"G": FULL}, Rope(5e5, scaling=Llama3Scaling(8.0, 1.0, 4.0, 8192)), (32, 4096, 32, 8, None)),
        (SMOLLM2, "G", {"G": FULL}, Rope(1e5), (30, 576, 9, 3, None)),
        (MISTRAL, "L", {"L": SLIDING(4096)}, Rope(1e4), (32, 4096, 32, 8, None)),
        (MISTRAL | dict(sliding_window=None, rope_theta=1e6, vocab_size=32768, attention_dropout=0.0), "G", {"G": FULL}, Rope(1e6), (32, 4096, 32, 8, None)),
        (QWEN_2, "G", {"G": FULL}, Rope(1e6), (28, 3584, 28, 4, None)),
        (QWEN_3, "G", {"G": FULL}, Rope(1e6), (28, 1024, 16, 8, 128)),
        (GEMMA_2_27B, "LG", {"L": SLIDING(4096), "G": FULL}, Rope(1e4), (46, 4608, 32, 16, 128)),
        (GEMMA_3_270M, "LLLLLG", {"L": SLIDING(512), "G": FULL}, Rope(1e6), (18, 640, 4, 1, 256)),
        (GEMMA_3_4B, "LLLLLG", {"L": SLIDING(1024), "G": FULL}, Rope(1e6, scaling=LinearScaling(8.0)), (34, 2560, 8, 4, 256)),
        (GEMMA_3_4B | dict(text_config=TEXT_27B), "LLLLLG", {"L": SLIDING(1024), "G": FULL}, Rope(1e6, scaling=LinearScaling(8.0)), (62, 5376, 32, 16, 128)),
        (GPT_OSS, "LG", {"L": SLIDING(128), "G": FULL}, Rope(150000.0, scaling=YarnScaling(32.0, 4096, truncate=False)), (36, 2880, 64, 8, 64)),
    ],
    ids="llama1 llama1-one-length llama2 llama3 smollm2 mistral1 mistral3 qwen2 qwen3 gemma2 gemma3-270m gemma3-4b gemma3-27b gpt_oss".split(),
)  # fmt: skip
def test_a_config_as_published_is_understood(fields, layout, legend, rope, sizes):
    found = understand(fields).config
    assert found.layout == layout and {letter: str(pattern) for letter, pattern in found.legend.items()} == legend
    assert found.rope(layout[-1]) == rope
    assert (found.num_layers, found.d_model, found.num_heads, found.num_kv_heads, found.head_dim) == sizes


def test_what_the_text_tower_leaves_out_is_what_hugging_face_takes():
    found = understand(GEMMA_3_4B)
    assert found.family == "gemma3_text" and found.norms_from_1 and found.no_decoder is None
    assert (found.config.vocab_size, found.config.rope("L"), found.config.tie_embeddings) == (262208, Rope(1e4), True)
    assert understand(GEMMA_3_4B | dict(text_config=TEXT_27B)).config.scale == 168**-0.5
    alone = GEMMA_3_4B["text_config"]
    assert understand(alone).config == found.config


@pytest.mark.parametrize(
    "match, change",
    [
        ("sliding_window_size=2048 and sliding_window=4096 beside each other: two names of one thing", dict(sliding_window_size=2048)),
        ("sliding_window_size=4096 and sliding_window=None beside each other", dict(sliding_window=None)),
        ("sliding_window_size=4096 and sliding_window=32768 beside each other", dict(sliding_window=32768)),
        ("max_sequence_length=4096 and max_position_embeddings=8192 beside each other", dict(max_sequence_length=4096)),
        ("sliding_window_size='4096' and sliding_window=4096", dict(sliding_window_size="4096")),
    ],
    ids=str,
)  # fmt: skip
def test_two_names_of_one_thing_agree(match, change):
    with pytest.raises(ValueError, match=match):
        understand(GEMMA_2_27B | change)


def test_a_second_name_alone():
    without = {name: value for name, value in GEMMA_2_27B.items() if name != "sliding_window"}
    assert understand(without).config == understand(GEMMA_2_27B).config  # 4096 is also what is missing
    with pytest.raises(ValueError, match="sliding_window_size=2048 and sliding_window=4096"):
        understand(without | dict(sliding_window_size=2048))
    with pytest.raises(ValueError, match="the field 'sliding_window_size' .here 4096. is not known for llama"):
        understand(LLAMA_1 | dict(sliding_window_size=4096))
    assert understand(GEMMA_2_27B | dict(sliding_window_size=None, max_sequence_length=None)).config.layout == "LG"


def test_two_spellings_of_one_rotation_may_stand_beside_each_other():
    rule = {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}
    both = config("llama", "rope_parameters", rope_parameters=rule, rope_scaling=dict(rule))
    assert both.rope("G") == Rope(500.0, scaling=LinearScaling(2.0))


@pytest.mark.parametrize(
    "match, change",
    [
        ("text_config=None must be an object with the fields of a gemma3_text", dict(text_config=None)),
        (r"text_config=\[1\] must be an object", dict(text_config=[1])),
        ("text_config={.*} must be an object with the fields of a gemma3_text", dict(text_config=dict(model_type="llama"))),
        ("tie_word_embeddings=False, but tie_word_embeddings=True in text_config or by default", dict(tie_word_embeddings=False)),
        ("hidden_size=7, but hidden_size=2560 in text_config", dict(hidden_size=7)),
        ("the field 'audio_config' .* is not known for gemma3 and may change", dict(audio_config={})),
        ("the field 'quantization_config'", dict(quantization_config={"bits": 4})),
        ("final_logit_softcapping=30.0 in text_config is not supported", dict(text_config=TEXT_27B | dict(final_logit_softcapping=30.0))),
        ("the field 'attn_logit_softcapping' .here 50.0. is not known for gemma3_text", dict(text_config=TEXT_27B | dict(attn_logit_softcapping=50.0))),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)  # fmt: skip
def test_what_stands_beside_the_text_tower_does_not_contradict_it(match, change):
    with pytest.raises(ValueError, match=match):
        understand(GEMMA_3_4B | change)


def test_the_same_beside_and_inside_is_fine():
    beside = dict(tie_word_embeddings=True, sliding_window=1024, vocab_size=262208, image_token_id=262144)
    assert understand(GEMMA_3_4B | beside).config == understand(GEMMA_3_4B).config


OTHERS = "mixtral ministral mistral3 pixtral gpt_neox gpt_neo gpt2 gptj gemma gemma3n gemma3n_text gemma4 qwen qwen2_moe qwen2_vl qwen3_moe qwen3_vl llava mllama llada llama4 bert phi3 olmo2 smollm3 cohere granite".split()
MISSPELT = {
    "Llama": "llama", "LLAMA": "llama", "lama": "llama", "lamma": "llama", "mistrel": "mistral", "mitsral": "mistral", "gpt-oss": "gpt_oss",
    "gptoss": "gpt_oss", "GPT_OSS": "gpt_oss", "qwen-2": "qwen2", "Qwen3": "qwen3", "gema2": "gemma2", "gemma-3": "gemma3", "gemma3-text": "gemma3_text",
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_another_family_is_not_called_a_misspelling(name):
    with pytest.raises(ValueError, match=f"model_type='{name}' is not supported; known are llama, .*gemma3$"):
        understand(dict(model_type=name))


@pytest.mark.parametrize("name, meant", MISSPELT.items())
def test_a_misspelt_family_is_recognised(name, meant):
    with pytest.raises(ValueError, match=f"model_type='{name}' is not supported; .*; did you mean '{meant}'\\?"):
        understand(dict(model_type=name))
