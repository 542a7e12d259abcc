"""Makes tests/golden/huggingface: tiny published models with random weights, and what transformers computes with them.

    pip install torch==2.13.0 transformers==5.17.0
    python tests/golden/make_huggingface.py

Each model lies in a folder as `save_pretrained` wrote it, beside an .npz of tokens [2, 24] and logits in float32; the
window is 5, so the tokens go past it four times. Of gpt-oss, whose MLP is a mixture of experts, the .npz holds what
went into the attention of two layers and what came out. SHA256SUMS names every file. Only this script needs torch.
"""

import hashlib
import pathlib
import shutil

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM

OUT = pathlib.Path(__file__).parent / "huggingface"
T, WINDOW = 24, 5
SIZES = dict(
    vocab_size=64, hidden_size=32, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
SLIDING = dict(sliding_window=WINDOW)
LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
YARN = dict(rope_type="yarn", rope_theta=1000.0, factor=4.0, original_max_position_embeddings=16)
LOCAL_GLOBAL = dict(
    sliding_attention=dict(rope_type="default", rope_theta=100.0),
    full_attention=dict(rope_type="linear", factor=8.0, rope_theta=10000.0),
)
GPT_OSS_YARN = dict(
    rope_type="yarn", rope_theta=1500.0, factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
    original_max_position_embeddings=16,
)  # fmt: skip
MODELS = {
    "llama": ("Llama", dict(attention_bias=True, mlp_bias=True, head_dim=12, rope_parameters=LLAMA3, rms_norm_eps=1e-5)),
    "smollm2": ("Llama", dict(
        hidden_size=24, num_attention_heads=3, num_key_value_heads=1, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=100000.0))),
    "mistral": ("Mistral", SLIDING),
    "qwen2": ("Qwen2", SLIDING | dict(
        num_hidden_layers=5, use_sliding_window=True, max_window_layers=2, tie_word_embeddings=True,
        rope_parameters=YARN)),
    "qwen3": ("Qwen3", dict(head_dim=16, attention_bias=True, rms_norm_eps=1e-3)),
    "gemma2": ("Gemma2", SLIDING | dict(
        num_hidden_layers=5, head_dim=8, query_pre_attn_scalar=20, attn_logit_softcapping=3.0,
        final_logit_softcapping=10.0)),
    "gemma3": ("Gemma3", SLIDING | dict(
        num_hidden_layers=8, head_dim=8, query_pre_attn_scalar=12, rms_norm_eps=1e-3, rope_parameters=LOCAL_GLOBAL)),
    "gpt_oss": ("GptOss", SLIDING | dict(
        num_hidden_layers=2, head_dim=8, num_local_experts=2, num_experts_per_tok=1, intermediate_size=8,
        rope_parameters=GPT_OSS_YARN)),
}  # fmt: skip
STORED = {"smollm2": torch.bfloat16}  # the others are stored in float32
SHARDS = {"mistral": "30KB"}


def model_of(name, kind, fields, seed):
    """The model with numbers of its own in every parameter: norms, biases and sinks do not start at 0 or 1."""
    kind = {"Gemma3": "Gemma3Text"}.get(kind, kind)
    config = getattr(transformers, f"{kind}Config")(**SIZES | fields)
    model = AutoModelForCausalLM.from_config(config)
    torch.manual_seed(seed)
    with torch.no_grad():
        for path, weight in model.named_parameters():
            if weight.ndim > 1:
                spread = 0.7 if "embed" in path else 1.5 * weight.shape[-1] ** -0.5
                weight.copy_(spread * torch.randn(weight.shape))
            else:
                start = 1.0 if "norm" in path and "gemma" not in name else 0.0
                weight.copy_(start + 0.4 * torch.randn(weight.shape))
    return model.to(STORED.get(name, torch.float32))


def answers(name, tokens):
    """What the saved model computes in float32: logits, or of gpt-oss what its attention takes and gives."""
    model = AutoModelForCausalLM.from_pretrained(OUT / name, dtype=torch.float32, attn_implementation="eager").eval()
    found = {}

    def keep(layer):
        def hook(module, args, kwargs, out):
            found[f"in_{layer}"] = (args[0] if args else kwargs["hidden_states"]).numpy()
            found[f"out_{layer}"] = out[0].numpy()

        return hook

    if name == "gpt_oss":
        for layer, block in enumerate(model.model.layers):
            block.self_attn.register_forward_hook(keep(layer), with_kwargs=True)
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens), use_cache=False).logits.numpy()
    return found if name == "gpt_oss" else {"logits": logits}


def main():
    assert transformers.__version__ == "5.17.0", transformers.__version__
    torch.set_num_threads(1)
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    for seed, (name, (kind, fields)) in enumerate(MODELS.items()):
        model = model_of(name, kind, fields, seed)
        model.save_pretrained(OUT / name, max_shard_size=SHARDS.get(name, "1GB"))
        tokens = np.random.default_rng(seed).integers(3, SIZES["vocab_size"], (2, T))
        np.savez_compressed(OUT / f"{name}.npz", tokens=tokens, **answers(name, tokens))
    files = sorted(path for path in OUT.rglob("*") if path.is_file())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(OUT).as_posix()}" for path in files]
    (OUT / "SHA256SUMS").write_text("\n".join(sums) + "\n")


if __name__ == "__main__":
    main()
