"""What a GGUF file leaves out means what the format's own reader (llama.cpp) takes for it, never Hugging Face's default."""

import math

import numpy as np
import pytest

from attnjax import models
from attnjax.models.families import understand
from attnjax.models.gguf_file import open_gguf
from attnjax.nn import LinearScaling, Rope, YarnScaling
from tests.models.gguf_written import LAYERS, LLAMA, D, H, K, N, V, numbers, shapes, write

QWEN = {name: value for name, value in LLAMA.items() if name != "rope.dimension_count"} | {"attention.key_length": H}
FACTOR, TYPE, OLD = "rope.scaling.factor", "rope.scaling.type", "rope.scale_linear"


def config_of(tmp_path, architecture="llama", gone=(), weights=None, **values):
    """The Config of a file with these values; `_` stands for `.` where the names are given as keywords."""
    base = LLAMA if architecture == "llama" else QWEN
    fields = {name: value for name, value in base.items() if name not in gone} | values
    return understand(open_gguf(write(tmp_path / "m.gguf", fields, weights, architecture=architecture)).config).config


def rope_of(tmp_path, values, architecture="llama", **more):
    config = config_of(tmp_path, architecture, **values, **more)
    return config.rope(config.letters[-1])


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gemma2"])
@pytest.mark.parametrize(
    "values, scaling",
    [
        ({FACTOR: 4.0}, LinearScaling(4.0)),
        ({OLD: 4.0}, LinearScaling(4.0)),
        ({FACTOR: 4.0, OLD: 4.0}, LinearScaling(4.0)),
        ({FACTOR: 4, TYPE: "linear"}, LinearScaling(4.0)),
        ({FACTOR: 4.0, TYPE: "none"}, None),
        ({OLD: 4.0, TYPE: "none"}, None),
        ({TYPE: "linear"}, None),
        ({FACTOR: 0.0}, None),
        ({FACTOR: 1.0}, None),
        ({FACTOR: 0.0, TYPE: "yarn"}, None),
        ({TYPE: "yarn", FACTOR: 4.0}, YarnScaling(4.0, 128)),
        ({TYPE: "yarn", OLD: 4.0, "rope.scaling.original_context_length": 32}, YarnScaling(4.0, 32)),
        ({TYPE: "yarn", FACTOR: 4.0, "rope.scaling.original_context_length": 0}, YarnScaling(4.0, 128)),
        ({TYPE: "yarn", FACTOR: 4.0, "rope.scaling.attn_factor": 0.5}, YarnScaling(4.0, 128, attention_factor=0.5 * (0.1 * math.log(4.0) + 1))),
        ({TYPE: "yarn", FACTOR: 4.0, "rope.scaling.yarn_beta_fast": 32.0, "rope.scaling.yarn_ext_factor": 1.0}, YarnScaling(4.0, 128)),
        ({FACTOR: 4.0, "rope.scaling.attn_factor": 1.0, "rope.scaling.finetuned": True}, LinearScaling(4.0)),
    ],
    ids=str,
)  # fmt: skip
def test_how_the_rotation_is_stretched(tmp_path, architecture, values, scaling):
    gemma = {"attention.sliding_window": 8} if architecture == "gemma2" else {}
    assert rope_of(tmp_path, values | gemma, architecture) == Rope(20000.0, scaling=scaling)


def test_gemma_3_stretches_the_full_layers_only(tmp_path):
    config = config_of(tmp_path, "gemma3", **{FACTOR: 8.0, "attention.sliding_window": 8, "attention.sliding_window_pattern": 2})
    assert (config.rope("G"), config.rope("L")) == (Rope(20000.0, scaling=LinearScaling(8.0)), Rope(1e4))


@pytest.mark.slow
def test_a_stretched_rotation_changes_the_logits_as_it_should(tmp_path):
    """Linear by 4: the token at position 4 p turns as far as that at p does without."""
    plain = models.load(write(tmp_path / "plain.gguf"))
    linear = models.load(write(tmp_path / "linear.gguf", LLAMA | {FACTOR: 4.0}))
    tokens = np.array([[1, 5, 9, 2, 7]])
    want = plain(tokens, positions=np.arange(5))
    np.testing.assert_allclose(linear(tokens, positions=4 * np.arange(5)), want, atol=1e-4)
    assert np.abs(linear(tokens) - want).max() > 0.1


@pytest.mark.parametrize(
    "match, values",
    [
        ("llama.rope.scaling.factor=4.0 and llama.rope.scale_linear=2.0: two names of one factor", {FACTOR: 4.0, OLD: 2.0}),
        ("llama.rope.scaling.type='longrope' is not supported, only none, linear and yarn", {TYPE: "longrope", FACTOR: 4.0}),
        ("llama.rope.scaling.type=3 is not supported", {TYPE: 3}),
        ("llama.rope.scaling.factor='4' must be a number of at least 0", {FACTOR: "4"}),
        ("llama.rope.scaling.factor=True must be a number", {FACTOR: True}),
        ("llama.rope.scale_linear=-2.0 must be a number", {OLD: -2.0}),
        ("llama.rope.scaling.factor=nan must be a number", {FACTOR: float("nan")}),
        ("factor=0.5 must be at least 1", {FACTOR: 0.5}),
        ("llama.rope.scaling.attn_factor=2.0 is not known", {FACTOR: 4.0, "rope.scaling.attn_factor": 2.0}),
        ("llama.rope.scaling.attn_factor='a' is not known", {FACTOR: 4.0, TYPE: "yarn", "rope.scaling.attn_factor": "a"}),
        ("llama.rope.scaling.yarn_beta_fast=16.0 is not known", {FACTOR: 4.0, TYPE: "yarn", "rope.scaling.yarn_beta_fast": 16.0}),
        ("llama.rope.scaling.yarn_log_multiplier=0.1.* is not known", {"rope.scaling.yarn_log_multiplier": 0.1}),
        ("llama.rope.scaling.alpha=2.0 is not known", {"rope.scaling.alpha": 2.0}),
        ("rope_freqs.weight beside llama.rope.scaling.type='linear' and a factor of 4.0", {FACTOR: 4.0, "weights": numbers(shapes() | {"rope_freqs.weight": (H // 2,)})}),
    ],
    ids=str,
)  # fmt: skip
def test_a_stretch_that_is_not_honoured_is_an_error(tmp_path, match, values):
    with pytest.raises(ValueError, match=match):
        rope_of(tmp_path, values)


def test_yarn_needs_a_length_to_count_from(tmp_path):
    with pytest.raises(ValueError, match="llama.context_length: missing, and yarn counts from it"):
        config_of(tmp_path, gone=["context_length"], **{TYPE: "yarn", FACTOR: 4.0})
    assert config_of(tmp_path, gone=["context_length"]).rope("G") == Rope(20000.0)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gemma2", "gemma3"])
def test_the_base_of_the_rotation_is_10000_if_none_is_said(tmp_path, architecture):
    config = config_of(tmp_path, architecture, ["rope.freq_base"], **({"attention.sliding_window": 8} if architecture[0] == "g" else {}))
    assert {config.rope(letter) for letter in config.legend} == {Rope(1e4)}


def test_eps_has_no_default(tmp_path):
    with pytest.raises(ValueError, match="llama.attention.layer_norm_rms_epsilon: missing"):
        config_of(tmp_path, gone=["attention.layer_norm_rms_epsilon"])


def test_heads_are_as_wide_as_the_stream_has_room_for(tmp_path):
    config = config_of(tmp_path, gone=["attention.head_count_kv", "rope.dimension_count"])
    assert (config.num_kv_heads, config.head_dim) == (N, D // N)
    for key in ("attention.value_length", "rope.dimension_count", "attention.key_length_swa", "rope.dimension_count_swa"):
        assert config_of(tmp_path, **{key: H}).head_dim == H
        with pytest.raises(ValueError, match=f"llama.{key}=4 is not supported beside a size of {H}"):
            config_of(tmp_path, **{key: 4})


def gemma(tmp_path, architecture, **values):
    config = config_of(tmp_path, architecture, **{f"attention.{name}": value for name, value in values.items()})
    return config.letters, str(config.legend.get("L"))


def test_which_layers_of_gemma_slide(tmp_path):
    assert LAYERS == 2
    assert gemma(tmp_path, "gemma2") == ("LG", "window(4096)")
    assert gemma(tmp_path, "gemma2", sliding_window=8, sliding_window_pattern=2) == ("LG", "window(8)")
    assert gemma(tmp_path, "gemma2", sliding_window=8, sliding_window_pattern=1) == ("GG", "None")
    assert gemma(tmp_path, "gemma2", sliding_window=8, sliding_window_pattern=0) == ("LL", "window(8)")
    assert gemma(tmp_path, "gemma3", sliding_window=8) == ("LL", "window(8)")
    assert gemma(tmp_path, "gemma3", sliding_window=8, sliding_window_pattern=6) == ("LL", "window(8)")
    assert gemma(tmp_path, "gemma3", sliding_window=8, sliding_window_pattern=2) == ("LG", "window(8)")
    assert gemma(tmp_path, "gemma3", sliding_window=8, sliding_window_pattern=[False, True]) == ("GL", "window(8)")
    assert gemma(tmp_path, "gemma3", sliding_window=8, sliding_window_pattern=[1, 0]) == ("LG", "window(8)")
    # Its reader slides only if a window is said.
    assert gemma(tmp_path, "gemma3") == ("GG", "None")
    assert gemma(tmp_path, "gemma3", sliding_window=0) == ("GG", "None")


@pytest.mark.parametrize("pattern", ["6", 6.0, True, [True], [1, 0, 1], ["a", "b"]], ids=str)
def test_a_wrong_pattern_of_sliding_layers_is_named(tmp_path, pattern):
    with pytest.raises(ValueError, match="gemma3.attention.sliding_window_pattern=.* must be an int of at least 0 or a list of block_count=2"):
        gemma(tmp_path, "gemma3", sliding_window=8, sliding_window_pattern=pattern)


def test_caps_of_gemma_2_are_there_unless_they_are_zero(tmp_path):
    plain = config_of(tmp_path, "gemma2")
    assert (plain.soft_cap, plain.logits_soft_cap) == (50.0, 30.0)
    other = config_of(tmp_path, "gemma2", attn_logit_softcapping=5.0, final_logit_softcapping=7.0)
    assert (other.soft_cap, other.logits_soft_cap) == (5.0, 7.0)
    assert config_of(tmp_path, "gemma3", **{"attention.sliding_window": 8}).logits_soft_cap is None


@pytest.mark.parametrize(
    "key, same, other",
    [
        ("attention.causal", True, False), ("expert_count", 0, 8), ("expert_used_count", 0, 2), ("expert_shared_count", 0, 1),
        ("pooling_type", 0, 3), ("tensor_data_layout", "Meta AI original pth", "reference"), ("rope.freq_base_swa", 20000.0, 10000.0),
        ("rope.scaling.yarn_attn_factor", 1.0, 0.5), ("attention.scale", None, 0.5), ("attention.sliding_window_pattern", None, 6),
    ],
)  # fmt: skip
def test_a_known_value_changes_nothing_or_is_an_error(tmp_path, key, same, other):
    if same is not None:
        assert config_of(tmp_path, **{key: same}) == config_of(tmp_path)
    with pytest.raises(ValueError, match=f"llama.{key}={other!r} is not (known|supported)"):
        config_of(tmp_path, **{key: other})


def test_parts_that_were_merged_are_whole(tmp_path):
    assert open_gguf(write(tmp_path / "m.gguf", **{"split.no": 0, "split.count": 0, "split.tensors.count": 20})).config
    with pytest.raises(ValueError, match="split.no=1 is not known|split.count=3 is not known"):
        open_gguf(write(tmp_path / "m.gguf", **{"split.no": 1, "split.count": 3}))


@pytest.mark.parametrize("value", [["model", "model"], [1, 2], 3, True, "adapter"], ids=str)
def test_a_type_that_is_none_is_named(tmp_path, value):
    with pytest.raises(ValueError, match="general.type=.*: only a whole model can be loaded"):
        open_gguf(write(tmp_path / "m.gguf", **{"general.type": value}))


def test_output_is_tied_if_it_is_missing(tmp_path):
    assert config_of(tmp_path).tie_embeddings and (K, V) == (2, 48)
    assert not config_of(tmp_path, weights=numbers(shapes(tied=False))).tie_embeddings
