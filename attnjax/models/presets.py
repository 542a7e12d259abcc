"""The shapes of well-known models, by name."""

import typing

from attnjax.models.config import Config
from attnjax.models.messages import nearest, shown
from attnjax.rope_scaling import YarnScaling

PRESETS: dict[str, Config] = {
    # Touvron et al. 2023, "Llama 2"
    "llama2_7b": Config(
        vocab_size=32000, d_model=4096, num_layers=32, num_heads=32, num_kv_heads=32, d_ff=11008,
        norm_eps=1e-5,
    ),
    # Jiang et al. 2023, "Mistral 7B"
    "mistral_7b": Config(
        vocab_size=32000, d_model=4096, num_layers=32, num_heads=32, num_kv_heads=8, d_ff=14336, norm_eps=1e-5,
        layout="L", legend={"L": "window(4096)"},
    ),
    # Gemma Team 2024, "Gemma 2"
    "gemma2_2b": Config(
        vocab_size=256000, d_model=2304, num_layers=26, num_heads=8, num_kv_heads=4, head_dim=256, d_ff=9216,
        layout="LG", legend={"L": "window(4096)", "G": "causal()"}, tie_embeddings=True, scale=256**-0.5, soft_cap=50.0,
        activation="gelu_tanh", post_norms=True, embedding_scale=2304**0.5, logits_soft_cap=30.0,
    ),
    # Gemma Team 2025, "Gemma 3"
    "gemma3_1b": Config(
        vocab_size=262144, d_model=1152, num_layers=26, num_heads=4, num_kv_heads=1, head_dim=256, d_ff=6912,
        layout="LLLLLG", legend={"L": "window(512)", "G": "causal()"}, theta={"L": 1e4, "G": 1e6}, tie_embeddings=True,
        qk_norm=True, scale=256**-0.5, activation="gelu_tanh", post_norms=True, embedding_scale=1152**0.5,
    ),
    # OpenAI 2025, "gpt-oss-120b & gpt-oss-20b Model Card"
    "gpt_oss_20b": Config(
        vocab_size=201088, d_model=2880, num_layers=24, num_heads=64, num_kv_heads=8, head_dim=64, d_ff=2880,
        layout="LG", legend={"L": "window(128)", "G": "causal()"}, theta=150000.0,
        rope_scaling=YarnScaling(32.0, original_max_position_embeddings=4096, truncate=False), use_bias=True,
        learned_sinks=True, norm_eps=1e-5,
    ),
    # Ben Allal et al. 2025, "SmolLM2"
    "smollm2_135m": Config(
        vocab_size=49152, d_model=576, num_layers=30, num_heads=9, num_kv_heads=3, d_ff=1536, theta=100000.0,
        tie_embeddings=True, norm_eps=1e-5,
    ),
}  # fmt: skip


@typing.no_type_check
def config(name: str) -> Config:
    """The Config of a well-known model, to be built at random, counted or looked at; `load` reads real weights.

    There are llama2_7b, mistral_7b, gemma2_2b, gemma3_1b, gpt_oss_20b and smollm2_135m. That of gpt_oss_20b says what
    its embedding, attention, norms and head are; where gpt-oss has a mixture of experts, a Decoder of this config has
    one SwiGLU of an expert's width, so it is no gpt-oss.

    Args:
        name: one of these. Other sizes, or float32 turned to "bfloat16": `dataclasses.replace(config(name), ...)`.

    Raises:
        ValueError: if there is no such model, with the names.

    Example:
        >>> from attnjax import models
        >>> config = models.config("mistral_7b")
        >>> config.num_layers, config.num_kv_heads, str(config.legend["L"])
        (32, 8, 'window(4096)')
    """
    if not isinstance(name, str) or name not in PRESETS:
        near = nearest(str(name).lower(), PRESETS, 0.6)
        raise ValueError(f"there is no model {shown(name)}, only {', '.join(PRESETS)}{near}")
    return PRESETS[name]
