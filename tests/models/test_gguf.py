"""GGUF files: what a well-formed one gives, and what each kind of lie is told."""

import resource
import struct
import sys

import gguf
import numpy as np
import pytest

from attnjax import models
from attnjax.models.gguf_file import open_gguf
from attnjax.models.gguf_header import HEADER_LIMIT, read_header
from attnjax.rope_scaling import Llama3Scaling
from tests.models.gguf_written import KINDS, LLAMA, D, H, K, N, V, numbers, shapes, write

BLOCKS = {int(kind): sizes for kind, sizes in gguf.GGML_QUANT_SIZES.items()}


def config_of(tmp_path, values=LLAMA, **more):
    return open_gguf(write(tmp_path / "m.gguf", values, **more)).config


def test_a_llama_has_the_fields_and_names_of_hugging_face(tmp_path):
    source = open_gguf(write(tmp_path / "m.gguf", weights=numbers(shapes(tied=False))))
    assert source.config == {
        "model_type": "llama", "hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": N,
        "num_key_value_heads": K, "head_dim": H, "intermediate_size": 64, "vocab_size": V, "rms_norm_eps": 1e-5,
        "rope_theta": 20000.0, "rope_scaling": None, "max_position_embeddings": 128, "tie_word_embeddings": False,
    }  # fmt: skip
    layer = {
        "input_layernorm", "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
        *(f"self_attn.{side}_proj" for side in "qkvo"),
    }  # fmt: skip
    wanted = {f"model.layers.{i}.{name}.weight" for i in range(2) for name in layer}
    assert set(source.shapes) == wanted | {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"}
    assert source.shapes["model.layers.1.self_attn.k_proj.weight"] == (K * H, D)


def by_hand(kind, data, shape):
    """The numbers of quantised rows, from the layout of llama.cpp's blocks of 32."""
    if kind in (KINDS.F32, KINDS.F16):
        return np.frombuffer(data, "<f4" if kind == KINDS.F32 else "<f2").astype(np.float64).reshape(shape)
    if kind == KINDS.BF16:
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").astype(np.float64).reshape(shape)
    found = []
    for block in np.frombuffer(data, np.uint8).reshape(-1, 34 if kind == KINDS.Q8_0 else 20):
        if kind == KINDS.Q8_0:
            found.append(block[:2].view("<f2")[0].astype(np.float64) * block[2:].view(np.int8))
        else:  # Q4_1
            scale, low = block[:4].view("<f2").astype(np.float64)
            found.append(scale * np.concatenate([block[4:] & 15, block[4:] >> 4]) + low)
    return np.concatenate(found).reshape(shape)


@pytest.mark.parametrize("kind", [KINDS.F32, KINDS.F16, KINDS.BF16, KINDS.Q8_0, KINDS.Q4_1], ids=lambda kind: kind.name)
def test_weights_are_dequantised_and_rows_of_q_and_k_put_in_order(tmp_path, kind):
    weights = numbers(shapes())
    matrices = [name for name, weight in weights.items() if weight.ndim == 2]
    source = open_gguf(write(tmp_path / "m.gguf", weights=weights, kinds=dict.fromkeys(matrices, kind)))
    for theirs, ours, heads in (("attn_v", "v", 0), ("attn_q", "q", N), ("attn_k", "k", K)):
        stored = weights[f"blk.1.{theirs}.weight"]
        want = by_hand(kind, gguf.quantize(stored, kind).tobytes(), stored.shape)
        got = source.read(f"model.layers.1.self_attn.{ours}_proj.weight")
        assert got.dtype == np.float32
        for head in range(heads):  # rows 2i and 2i + 1 of a head turn together; they become i and i + H / 2
            rows = got[head * H : head * H + H].copy()
            got[head * H : head * H + H : 2], got[head * H + 1 : head * H + H : 2] = rows[: H // 2], rows[H // 2 :]
        np.testing.assert_array_equal(got, want.astype(np.float32))
    np.testing.assert_array_equal(source.read("model.norm.weight"), weights["output_norm.weight"])


def test_the_header_is_what_the_package_reads_too(tmp_path):
    path = write(tmp_path / "m.gguf", **{"general.name": "tiny", "tokenizer.ggml.tokens": ["a", "ß", ""], "tokenizer.ggml.token_type": [1, 3, 1]})  # fmt: skip
    header, reader = read_header(path, BLOCKS), gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    assert {name: list(value) if isinstance(value, np.ndarray) else value for name, value in header.values.items()} == fields
    assert {name: (*weight.shape[::-1], weight.start, weight.size) for name, weight in header.weights.items()} == {
        tensor.name: (*tensor.shape.tolist(), tensor.data_offset, tensor.n_bytes) for tensor in reader.tensors
    }


QWEN = {name: value for name, value in LLAMA.items() if name != "rope.dimension_count"} | {"attention.key_length": H}


def test_qwen_keeps_its_rows_biases_and_norms_of_heads(tmp_path):
    weights = numbers(shapes() | {"blk.0.attn_q.bias": (N * H,), "blk.1.attn_k_norm.weight": (H,)})
    source = open_gguf(write(tmp_path / "m.gguf", QWEN, weights, architecture="qwen3"))
    assert source.config["model_type"] == "qwen3"
    for ours, theirs in (("q_proj.weight", "attn_q.weight"), ("q_proj.bias", "attn_q.bias")):
        np.testing.assert_array_equal(source.read(f"model.layers.0.self_attn.{ours}"), weights[f"blk.0.{theirs}"])
    assert source.shapes["model.layers.1.self_attn.k_norm.weight"] == (H,)


def test_gemma_adds_what_llama_cpp_knows_and_takes_1_off_its_norms(tmp_path):
    names = {"ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm", "post_attention_norm": "post_attention_layernorm"}  # fmt: skip
    weights = numbers(shapes() | {f"blk.0.{name}.weight": (D,) for name in names})
    values = QWEN | {"attention.sliding_window": 16, "final_logit_softcapping": 30.0}
    source = open_gguf(write(tmp_path / "m.gguf", values | {"attn_logit_softcapping": 50.0}, weights, architecture="gemma2"))
    found = {"query_pre_attn_scalar": H, "sliding_window": 16, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    assert {name: source.config[name] for name in found} == found
    for theirs, ours in names.items():
        got = source.read(f"model.layers.0.{ours}.weight")
        np.testing.assert_allclose(got, weights[f"blk.0.{theirs}.weight"].astype(np.float64) - 1, atol=1e-6)
    gemma3 = config_of(tmp_path, {name: value for name, value in values.items() if name != "rope.freq_base"}, architecture="gemma3")
    assert (gemma3["model_type"], gemma3["rope_theta"], gemma3["rope_local_base_freq"]) == ("gemma3_text", 1e4, 1e4)


def test_scalings_are_said_as_hugging_face_says_them(tmp_path):
    linear = config_of(tmp_path, LLAMA | {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0})
    assert linear["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}
    yarn = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 32}
    want = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    assert config_of(tmp_path, LLAMA | yarn)["rope_scaling"] == want


def llama_3(tmp_path, change=lambda factors: factors):
    """A file whose factors are written as llama.cpp's converter writes them for Llama 3.2."""
    values = LLAMA | {"rope.freq_base": 500000.0, "rope.dimension_count": 64, "attention.head_count": 1, "attention.head_count_kv": 1, "attention.key_length": 64}  # fmt: skip
    factors = []
    for i in range(32):
        wavelength = 2 * np.pi * 500000.0 ** (2 * i / 64)
        smooth = np.clip((8192 / wavelength - 1) / (4 - 1), 0, 1)
        factors.append(1 / ((1 - smooth) / 32 + smooth))
    weights = numbers(shapes()) | {"rope_freqs.weight": change(np.array(factors, np.float32))}
    return config_of(tmp_path, values, weights=weights)["rope_scaling"]


def test_factors_of_llama_3_are_recognised(tmp_path):
    want = Llama3Scaling(32.0, 1.0, 4.0, 8192)
    assert llama_3(tmp_path) == {name: getattr(want, name) for name in ("rope_type", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")}  # fmt: skip
    with pytest.raises(ValueError, match="rope_freqs.weight stretches the rotation in a way"):
        llama_3(tmp_path, lambda factors: factors * np.float32(1.01))


@pytest.mark.parametrize(
    "match, changes",
    [
        ("general.architecture='mamba' is not supported; known are llama, qwen2", dict(architecture="mamba")),
        ("general.type='adapter'", {"general.type": "adapter"}),
        (r"split.count=2 is not known", {"split.count": 2}),
        (r"llama.rope.scaling.attn_factor=2.0 is not known", dict(values=LLAMA | {"rope.scaling.attn_factor": 2.0})),
        (r"llama.attention.sliding_window=16 is not known", dict(values=LLAMA | {"attention.sliding_window": 16})),
        (r"llama.expert_count=8 is not known", dict(values=LLAMA | {"expert_count": 8})),
        (r"head_count_kv is a list", dict(values=LLAMA | {"attention.head_count_kv": [2, 2]})),
        (r"block_count='2' must be an int", dict(values=LLAMA | {"block_count": "2"})),
        (r"block_count=4000000000, but there are 20 weights", dict(values=LLAMA | {"block_count": 4000000000})),
        (r"llama.embedding_length: missing", dict(values={k: v for k, v in LLAMA.items() if k != "embedding_length"})),
        (r"rope.dimension_count=4 is not supported beside a size of 8", dict(values=LLAMA | {"rope.dimension_count": 4})),
        (r"vocab_size=47 is not supported beside a size of 48", dict(values=LLAMA | {"vocab_size": 47})),
        (r"rope.scaling.type='longrope' is not supported", dict(values=LLAMA | {"rope.scaling.type": "longrope"})),
        (r"token_embd.weight, the table .* is missing", dict(weights={"output_norm.weight": np.ones(D, np.float32)} | {f"blk.{i}.attn_norm.weight": np.ones(D, np.float32) for i in range(2)})),
        (r"weight 'blk.0.ssm_in.weight' is not known", dict(weights=numbers(shapes() | {"blk.0.ssm_in.weight": (D, D)}))),
        (r"weight 'blk.00.attn_q.weight' is not known", dict(weights=numbers(shapes() | {"blk.00.attn_q.weight": (D, D)}))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_may_change_the_result_is_an_error_that_names_it(tmp_path, match, changes):
    with pytest.raises(ValueError, match=match) as caught:
        open_gguf(write(tmp_path / "m.gguf", **changes))
    assert "m.gguf" in str(caught.value)


def packed(*parts):
    """Little endian: ints as u64, (int, size) in so many bytes, text with its length."""
    data = b""
    for part in parts:
        if isinstance(part, str):
            data += struct.pack("<Q", len(part.encode())) + part.encode()
        else:
            number, size = part if isinstance(part, tuple) else (part, 8)
            data += number.to_bytes(size, "little")
    return data


def header(num_weights, num_values, *parts, version=3):
    return b"GGUF" + packed((version, 4), num_weights, num_values, *parts)


def one_weight(*, shape=(4,), kind=0, start=0, name="w", data=16):
    described = packed(name, (len(shape), 4), *shape, (kind, 4), start)
    head = header(1, 0) + described
    return head + bytes(-len(head) % 32) + bytes(data)


@pytest.mark.parametrize(
    "match, data",
    [
        ("no GGUF file", b"PK\3\4" + bytes(60)),
        ("the magic number takes 4 bytes at byte 0, but 0 are left", b""),
        ("it has version 1", header(0, 0, version=1)),
        ("it is big-endian", header(0, 0, version=3 << 24)),
        ("18446744073709551615 weights cannot fit", header(2**64 - 1, 0)),
        ("1000 values cannot fit in the 0 bytes", header(0, 1000)),
        ("the name of a value takes 1152921504606846976 bytes", header(0, 1, 2**60, 0, 0)),
        ("'a' has the unknown type 13", header(0, 1, "a", (13, 4), 0)),
        ("'a' must be 0 or 1", header(0, 1, "a", (7, 4), (2, 1)) + bytes(40)),
        ("'a' takes 1152921504606846976 bytes", header(0, 1, "a", (9, 4), (0, 4), 2**60) + bytes(40)),
        ("the 1152921504606846976 texts of 'a' cannot fit", header(0, 1, "a", (9, 4), (8, 4), 2**60) + bytes(40)),
        ("'a' is an array of the unknown type 9", header(0, 1, "a", (9, 4), (9, 4), 1) + bytes(40)),
        ("the value 'a' stands twice", header(0, 2, "a", (0, 4), (1, 1), "a", (0, 4), (1, 1)) + bytes(40)),
        ("is not UTF-8", header(0, 1, 1) + b"\xff" + bytes(40)),
        ("general.alignment is 3", header(0, 1, "general.alignment", (4, 4), (3, 4)) + bytes(40)),
        ("'w' has 0 axes", one_weight(shape=())),
        ("'w' has 9 axes", one_weight(shape=(1,) * 9)),
        ("sizes are above 0", one_weight(shape=(4, 0))),
        ("the last one a multiple of 32", one_weight(shape=(33, 2), kind=3)),
        ("'w' is of the unknown kind 999", one_weight(kind=999)),
        ("'w' starts at byte 32 of the weights", one_weight(start=32, data=64)),
        (r"truncated: weight 'w' \(4294967296, 4294967296\)", one_weight(shape=(2**32, 2**32))),
        ("32 bytes that belong to no weight", one_weight(data=64)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_damaged_or_manipulated_header_is_an_error_that_says_what_is_wrong(tmp_path, match, data):
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=match):
        read_header(path, BLOCKS)


def test_a_header_has_a_limit(tmp_path):
    path = tmp_path / "m.gguf"
    with path.open("wb") as file:
        file.write(header(0, 1, "a", (9, 4), (0, 4), HEADER_LIMIT))
        file.truncate(2 * HEADER_LIMIT)
    with pytest.raises(ValueError, match="are left for the header"):
        read_header(path, BLOCKS)


@pytest.mark.slow
def test_every_mutation_gives_a_source_or_an_error_and_takes_no_memory(tmp_path):
    path = write(tmp_path / "m.gguf", **{"tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.scores": [0.5, 1.5]})
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    end = read_header(path, BLOCKS).weights["token_embd.weight"].start
    special = np.frombuffer(struct.pack("<QQQ", 2**64 - 1, 2**31, 2**40), np.uint8)
    before, told = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0
    for number in range(600):
        data = bytearray(whole)
        if number % 3 == 0:
            data = data[: rng.integers(len(data))]
        elif number % 3 == 1:
            data[rng.integers(end)] = rng.integers(256)
        else:
            at = int(rng.integers(end - 8))
            data[at : at + 8] = special[8 * (number % 9 // 3) :][:8].tobytes()
        path.write_bytes(data)
        try:
            source = open_gguf(path)
            for name in list(source.shapes)[:4]:
                source.read(name)
        except ValueError as fault:
            assert str(path) in str(fault)
            told += 1
    assert told > 300
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / (1 if sys.platform == "darwin" else 1024)
    assert grown < 100  # MB


def test_a_file_that_shrinks_after_its_header_was_read(tmp_path):
    path = write(tmp_path / "m.gguf")
    source = open_gguf(path)
    path.write_bytes(path.read_bytes()[:-4000])
    with pytest.raises(ValueError, match="became shorter"):
        source.read(list(source.shapes)[-1])


def test_without_the_package_the_way_out_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ImportError, match=r"pip install 'attnjax\[models\]'"):
        open_gguf(tmp_path / "m.gguf")


# --- text -------------------------------------------------------------------------------------------------------

LETTERS = "<end> a b c Ġ 1 2 ab Ġab Ã Ł <tool>".split()
VOCABULARY = {
    "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": LETTERS,
    "tokenizer.ggml.token_type": [3] + [1] * 10 + [4], "tokenizer.ggml.merges": ["a b", "Ġ ab"],
}  # fmt: skip


@pytest.mark.parametrize("pre", ["smollm", "gpt-2"])
def test_text_becomes_tokens_and_tokens_text(tmp_path, pre):
    merges = ["a b", "Ġ ab", "1 2"]
    tokens = [*LETTERS, "12"]
    values = VOCABULARY | {"tokenizer.ggml.pre": pre, "tokenizer.ggml.merges": merges, "tokenizer.ggml.tokens": tokens}
    tokenizer = models.tokenizer(write(tmp_path / "m.gguf", **values | {"tokenizer.ggml.token_type": [3] + [1] * 10 + [4, 1]}))
    number = ["1", "2"] if pre == "smollm" else ["12"]
    found = tokenizer.encode("ab abc12<end>ß<tool>")
    assert found.tokens == ["ab", "Ġab", "c", *number, "<end>", "Ã", "Ł", "<tool>"]
    assert found.ids == [tokens.index(token) for token in found.tokens]
    assert tokenizer.decode(found.ids, skip_special_tokens=False) == "ab abc12<end>ß<tool>"


@pytest.mark.parametrize(
    "match, changes",
    [
        ("'llama' with tokenizer.ggml.pre='smollm' is not supported", {"tokenizer.ggml.model": "llama"}),
        ("tokenizer.ggml.pre='qwen2' is not supported", {"tokenizer.ggml.pre": "qwen2"}),
        ("add_space_prefix", {"tokenizer.ggml.add_space_prefix": True}),
        ("has a token twice", {"tokenizer.ggml.tokens": ["a"] * 12}),
        ("one token_type for each token", {"tokenizer.ggml.token_type": [1]}),
        ("pairs with one space", {"tokenizer.ggml.merges": ["a b c"]}),
        ("m.gguf: .*z", {"tokenizer.ggml.merges": ["a z"]}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_tokenizer_that_would_cut_otherwise_is_an_error(tmp_path, match, changes):
    with pytest.raises(ValueError, match=match):
        models.tokenizer(write(tmp_path / "m.gguf", **VOCABULARY | changes))


def test_a_damaged_tokenizer_json_is_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"model": ')
    with pytest.raises(ValueError, match="tokenizer.json: "):
        models.tokenizer(tmp_path)
    with pytest.raises(FileNotFoundError):
        models.tokenizer(tmp_path / "nowhere")
