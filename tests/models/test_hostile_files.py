"""Thousands of wrong files: each loads, or a ValueError names the file in few words. The quick part runs a few of them."""

import contextlib
import functools
import json
import random

import pytest

from attnjax import models
from attnjax.models import published
from tests.models.gguf_written import LLAMA, write
from tests.models.published import GOLDEN, copied
from tests.models.saved import SHAPES, pack, unpack
from tests.models.test_gguf import VOCABULARY

VALUES = [
    None, True, False, 0, -0.0, 1, -1, 3, 7, 1.5, 1e308, 5e-324, 2**31, 2**63, 10**19, -(2**63), "", "a", "\0", "x" * 300, [], [[]], [None], [1] * 50,
    ["full_attention"], {}, {"a": 1}, {"rope_type": "yarn"}, {"rope_type": "linear", "factor": 2.0}, {"full_attention": {}}, {"G": "causal()"}, "silu", "float32",
]  # fmt: skip
KEYS = "rope_scaling rope_theta rope_parameters head_dim layer_types sliding_window sliding_window_size text_config type x".split()


def mutated(rng, value, depth=0):
    """A JSON value with one thing changed somewhere inside."""
    if isinstance(value, dict) and value and (depth == 0 or rng.random() < 0.8):
        key = rng.choice(sorted(value))
        change = rng.choice(["drop", "add", "value", "swap", "inside", "inside", "inside"])
        others = {name: inner for name, inner in value.items() if name != key}
        if change == "drop":
            return others
        new = {"add": value[key], "value": rng.choice(VALUES), "swap": rng.choice(list(value.values()))}
        added = {rng.choice(KEYS): rng.choice(VALUES)} if change == "add" else {}
        return value | {key: new[change] if change in new else mutated(rng, value[key], depth + 1)} | added
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        middle = rng.choice([[], [rng.choice(VALUES), value[at]], [mutated(rng, value[at], depth + 1)]])
        return (value[:at] + middle + value[at + 1 :]) * rng.choice([1, 1, 1, 0, 3])
    if type(value) in (int, float) and rng.random() < 0.6:
        return rng.choice([value + 1, -value, value * 2, value * 1000000, float(value), str(value)])
    return rng.choice(VALUES)


def attempt(read, folder, seed):
    """Whether it loads; the seed stands in the message if it does neither."""
    try:
        read()
    except (ValueError, FileNotFoundError) as fault:
        assert str(folder) in str(fault), f"seed {seed}: {fault}"
        assert len(str(fault).replace(str(folder), "")) < 900, f"seed {seed}: {fault}"
        return False
    except BaseException as fault:
        raise AssertionError(f"seed {seed}: {fault!r}") from fault
    return True


@pytest.fixture(autouse=True)
def traced_once(monkeypatch):
    monkeypatch.setattr(published, "skeleton", SHAPES)


def seeds(quick, many):
    return pytest.mark.parametrize("seeds", [range(quick), pytest.param(range(quick, many), marks=pytest.mark.slow)], ids=len)


@seeds(40, 1500)
def test_configs(tmp_path, seeds):
    names = "llama mistral qwen2 qwen3 gemma2 gemma3 gpt_oss smollm2".split()
    folders = {name: copied(name, tmp_path) for name in names}
    loaded = 0
    for seed in seeds:
        rng = random.Random(seed)
        name = rng.choice(names)
        fields = json.loads((GOLDEN / name / "config.json").read_text())
        if name == "gemma3" and rng.random() < 0.5:
            fields = {"model_type": "gemma3", "text_config": fields, "vision_config": {}}
        for _ in range(rng.choice([1, 1, 2])):
            fields = mutated(rng, fields)
        (folders[name] / "config.json").write_text(json.dumps(fields))
        loaded += attempt(functools.partial(models.load_attention, folders[name], 0), tmp_path, seed)
    assert 0 < loaded < len(seeds)


@seeds(30, 700)
def test_headers_and_indexes(tmp_path, seeds):
    for seed in seeds:
        rng = random.Random(seed)
        folder = copied("mistral", tmp_path / str(seed))
        path = rng.choice(sorted([*folder.glob("model*.safetensors"), folder / "model.safetensors.index.json"]))
        if path.suffix == ".json":
            path.write_text(json.dumps(mutated(rng, json.loads(path.read_text()))))
        else:
            header, payload = unpack(path.read_bytes())
            path.write_bytes(pack(mutated(rng, header), payload))
        attempt(functools.partial(models.load_attention, folder, 0), tmp_path, seed)


GGUF_KEYS = [
    *LLAMA, "rope.scaling.type", "rope.scaling.factor", "rope.scale_linear", "rope.scaling.attn_factor", "rope.scaling.original_context_length",
    "attention.sliding_window", "attention.sliding_window_pattern", "attention.key_length", "attention.value_length", "rope.freq_base_swa", "expert_count",
    "attn_logit_softcapping", "final_logit_softcapping", "attention.causal", "rope.scaling.yarn_beta_fast",
]  # fmt: skip
TEXT_KEYS = [*VOCABULARY, *(f"tokenizer.ggml.{name}" for name in "add_bos_token bos_token_id add_eos_token eos_token_id add_space_prefix".split()), "general.type", "general.alignment", "split.count", "x"]
GGUF_VALUES = [
    True, False, 0, 1, 2, 3, 8, 11, 2**31, 2**32 - 1, 0.0, 1.0, 4.0, -1.0, 1e38, 1e-40, float("nan"), float("inf"), "linear", "yarn", "none", "x" * 500, [1, 2],
    [True, False], ["a"], [0.5], [1] * 100, ["a b"],
]  # fmt: skip


@seeds(40, 1500)
def test_values_of_gguf_files(tmp_path, seeds):
    path, loaded = tmp_path / "m.gguf", 0
    for seed in seeds:
        rng = random.Random(seed)
        own, more = dict(LLAMA), dict(VOCABULARY)
        for _ in range(rng.choice([1, 2, 3])):
            own[rng.choice(GGUF_KEYS)] = rng.choice(GGUF_VALUES)
        for _ in range(rng.choice([0, 1, 2])):
            more[rng.choice(TEXT_KEYS)] = rng.choice(GGUF_VALUES)
        write(path, own, architecture=rng.choice(["llama", "qwen2", "gemma2", "gemma3"]), **more)
        attempt(lambda: models.load_attention(path, 0), tmp_path, seed)
        loaded += attempt(lambda: models.tokenizer(path), tmp_path, seed)
    assert 0 < loaded < len(seeds)


PARTS = {
    "normalizer": [None, {"type": "NFC"}, {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "_"}, {"type": "Replace", "pattern": {"String": " "}, "content": "_"}]}],
    "pre_tokenizer": [None, {"type": "Whitespace"}, {"type": "Split", "pattern": {"Regex": "\\s+|\\w+"}, "behavior": "Isolated", "invert": False}, {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always", "split": True}],
    "post_processor": [None, {"type": "BertProcessing", "sep": ["b", 1], "cls": ["a", 0]}, {
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "a", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {"a": {"id": "a", "ids": [0], "tokens": ["a"]}}}],
    "decoder": [None, {"type": "WordPiece", "prefix": "##", "cleanup": True}, {"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}],
    "model": [
        {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"}, {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]},
        {"type": "Unigram", "unk_id": 0, "vocab": [["a", 0.0], ["b", -1.0]], "byte_fallback": False},
    ],
    "truncation": [None, {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}],
    "padding": [None, {"strategy": {"Fixed": 4}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "a"}],
}  # fmt: skip


@seeds(100, 4000)
def test_tokenizers(tmp_path, seeds):
    loaded = 0
    for seed in seeds:
        rng = random.Random(seed)
        parts = {"version": "1.0"} | {name: rng.choice(choices) for name, choices in PARTS.items()}
        for _ in range(rng.choice([1, 1, 2])):
            parts = mutated(rng, parts)
        (tmp_path / "tokenizer.json").write_text(json.dumps(parts))

        def read():
            found = models.tokenizer(tmp_path)
            for text in ("a b ab", "x é\n" * 5, ""):
                with contextlib.suppress(Exception):  # it may have no word for this one, but it does not panic
                    found.encode(text, "a")

        loaded += attempt(read, tmp_path, seed)
    assert 0 < loaded < len(seeds)
