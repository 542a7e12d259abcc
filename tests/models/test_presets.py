"""The presets have the published sizes, and the published config.json of each model says the same."""

import dataclasses
import math

import jax
import pytest
from flax import nnx

from attnjax import models, nn
from attnjax.models.families import understand
from attnjax.models.presets import PRESETS
from attnjax.models.weights import skeleton

# Parameters of the published weights.
TOTALS = {
    "llama2_7b": 6_738_415_616,
    "mistral_7b": 7_241_732_096,
    "smollm2_135m": 134_515_008,
    "gemma2_2b": 2_614_341_888,
    "gemma3_1b": 999_885_952,
}

# The config.json of each model as it was published (fields that say nothing about the numbers cut down).
GEMMA2_ACT = "gelu_pytorch_tanh"
PUBLISHED = {
    "llama2_7b": dict(
        architectures=["LlamaForCausalLM"], bos_token_id=1, eos_token_id=2, hidden_act="silu", hidden_size=4096,
        initializer_range=0.02, intermediate_size=11008, max_position_embeddings=4096, model_type="llama",
        num_attention_heads=32, num_hidden_layers=32, num_key_value_heads=32, pretraining_tp=1, rms_norm_eps=1e-05,
        rope_scaling=None, tie_word_embeddings=False, torch_dtype="float16", transformers_version="4.31.0.dev0",
        use_cache=True, vocab_size=32000,
    ),
    "mistral_7b": dict(
        architectures=["MistralForCausalLM"], bos_token_id=1, eos_token_id=2, hidden_act="silu", hidden_size=4096,
        initializer_range=0.02, intermediate_size=14336, max_position_embeddings=32768, model_type="mistral",
        num_attention_heads=32, num_hidden_layers=32, num_key_value_heads=8, rms_norm_eps=1e-05, rope_theta=10000.0,
        sliding_window=4096, tie_word_embeddings=False, torch_dtype="bfloat16", use_cache=True, vocab_size=32000,
    ),
    "gemma2_2b": dict(
        architectures=["Gemma2ForCausalLM"], attention_bias=False, attention_dropout=0.0,
        attn_logit_softcapping=50.0, bos_token_id=2, cache_implementation="hybrid", eos_token_id=1,
        final_logit_softcapping=30.0, head_dim=256, hidden_act=GEMMA2_ACT, hidden_activation=GEMMA2_ACT,
        hidden_size=2304, initializer_range=0.02, intermediate_size=9216, max_position_embeddings=8192,
        model_type="gemma2", num_attention_heads=8, num_hidden_layers=26, num_key_value_heads=4, pad_token_id=0,
        query_pre_attn_scalar=256, rms_norm_eps=1e-06, rope_theta=10000.0, sliding_window=4096, vocab_size=256000,
    ),
    "gemma3_1b": dict(
        architectures=["Gemma3ForCausalLM"], attention_bias=False, attention_dropout=0.0,
        attn_logit_softcapping=None, bos_token_id=2, cache_implementation="hybrid", eos_token_id=[1, 106],
        final_logit_softcapping=None, head_dim=256, hidden_activation="gelu_pytorch_tanh", hidden_size=1152,
        initializer_range=0.02, intermediate_size=6912, max_position_embeddings=32768, model_type="gemma3_text",
        num_attention_heads=4, num_hidden_layers=26, num_key_value_heads=1, pad_token_id=0,
        query_pre_attn_scalar=256, rms_norm_eps=1e-06, rope_local_base_freq=10000, rope_scaling=None,
        rope_theta=1000000, sliding_window=512, sliding_window_pattern=6, torch_dtype="bfloat16", use_cache=True,
        vocab_size=262144,
    ),
    "gpt_oss_20b": dict(
        architectures=["GptOssForCausalLM"], attention_bias=True, attention_dropout=0.0, eos_token_id=200002,
        experts_per_token=4, head_dim=64, hidden_act="silu", hidden_size=2880, initial_context_length=4096,
        initializer_range=0.02, intermediate_size=2880, layer_types=["sliding_attention", "full_attention"] * 12,
        max_position_embeddings=131072, model_type="gpt_oss", num_attention_heads=64, num_experts_per_tok=4,
        num_hidden_layers=24, num_key_value_heads=8, num_local_experts=32, output_router_logits=False,
        pad_token_id=199999, quantization_config={"quant_method": "mxfp4"}, rms_norm_eps=1e-05, rope_scaling={
            "beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
            "rope_type": "yarn", "truncate": False,
        }, rope_theta=150000, router_aux_loss_coef=0.9, sliding_window=128, swiglu_limit=7.0,
        tie_word_embeddings=False, use_cache=True, vocab_size=201088,
    ),
    "smollm2_135m": dict(
        architectures=["LlamaForCausalLM"], attention_bias=False, attention_dropout=0.0, bos_token_id=0,
        eos_token_id=0, hidden_act="silu", hidden_size=576, initializer_range=0.041666666666666664,
        intermediate_size=1536, is_llama_config=True, max_position_embeddings=8192, model_type="llama",
        num_attention_heads=9, num_hidden_layers=30, num_key_value_heads=3, pretraining_tp=1, rms_norm_eps=1e-05,
        rope_interleaved=False, rope_scaling=None, rope_theta=100000, tie_word_embeddings=True,
        torch_dtype="bfloat16", use_cache=True, vocab_size=49152,
    ),
}  # fmt: skip


def parameters(module):
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(nnx.state(module)))


@pytest.mark.parametrize("name", TOTALS)
def test_the_number_of_parameters_is_the_published_one(name):
    assert parameters(skeleton(models.config(name))) == TOTALS[name]


def test_the_attention_of_gpt_oss_has_the_published_shapes():
    block = skeleton(dataclasses.replace(models.config("gpt_oss_20b"), num_layers=1)).block(0)
    shapes = {".".join(map(str, path)): leaf.shape for path, leaf in nnx.to_flat_state(nnx.state(block.attention))}
    assert shapes == {
        "query.kernel": (2880, 4096), "query.bias": (4096,), "key.kernel": (2880, 512), "key.bias": (512,),
        "value.kernel": (2880, 512), "value.bias": (512,), "out.kernel": (4096, 2880), "out.bias": (2880,),
        "sinks": (64,),
    }  # fmt: skip
    assert block.attention.rope == nn.Rope(150000.0, scaling=nn.YarnScaling(32.0, 4096, truncate=False))


@pytest.mark.parametrize("name", PRESETS)
def test_the_published_config_says_the_same(name):
    assert understand(PUBLISHED[name]).config == models.config(name)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=f"no model 'llama_7b', only {', '.join(PRESETS)}; did you mean 'llama2_7b'"):
        models.config("llama_7b")
    with pytest.raises(ValueError, match="there is no model 7"):
        models.config(7)
