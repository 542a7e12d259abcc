"""What a file says stands in a message at a bounded length, wherever it is read, and however long or deep it is."""

import dataclasses
import functools
import json

import gguf
import numpy as np
import pytest

from attnjax import models
from attnjax.models import Config
from attnjax.models.families import understand
from attnjax.models.messages import LONGEST, cut, nearest, shown
from tests.models.gguf_written import LLAMA, numbers, shapes, write
from tests.models.published import copied
from tests.models.saved import decoder, edit_config, pack, reseal, unpack
from tests.models.test_families import NAMES
from tests.models.test_families import published as fields_of
from tests.models.test_gguf import VOCABULARY
from tests.models.test_published_configs import GEMMA_3_4B

LONGEST_MESSAGE = 900  # without the path of the file


def deep(levels):
    value = 1
    for i in range(levels):
        value = [value] if i % 2 else {"a": value}
    return value


LONG = {
    "text": "x" * 100_000, "lines": "\n'\"\\" * 20_000, "signs": "\0\x7f\u2028é" * 20_000, "list": ["y" * 500] * 2000, "numbers": list(range(2000)),
    "object": {f"{'k' * 200}{i}": "v" * 200 for i in range(500)}, "deep": deep(300), "int": 10**19, "less": -(10**18), "float": 1.7976931348623157e308,
}  # fmt: skip


def check(fault, path=""):
    text = str(fault).replace(str(path), "")
    assert len(text) <= LONGEST_MESSAGE, f"{len(text)} characters: {text[:300]}"


def refused(attempt, path=""):
    """Whether it was refused; whichever way, in few words."""
    try:
        attempt()
    except (ValueError, FileNotFoundError) as fault:
        check(fault, path)
        return True
    return False


def test_values_are_cut_and_short_ones_are_not():
    assert [shown(value) for value in (1, "a", None, 4.5, [1, "b"], {"k": True}, "é")] == ["1", "'a'", "None", "4.5", "[1, 'b']", "{'k': True}", "'é'"]
    assert shown("model.layers.31.post_attention_layernorm.weight") == "'model.layers.31.post_attention_layernorm.weight'"
    for value in LONG.values():
        assert len(shown(value)) <= LONGEST
    assert len(shown(np.zeros((500, 500)))) <= LONGEST and len(shown(tuple(range(9999)))) <= LONGEST
    assert cut("short") == "short" and len(cut("x" * 10_000, 50)) <= 50 and cut("a" * 60 + "b" * 60, 20) == "aaaaaaaa...bbbbbbbb"


def test_a_name_is_compared_with_so_many_others_only():
    assert nearest("windw", ["sink", "window"]) == "; did you mean 'window'?"
    assert nearest("windw", ["sink"], 0.8) == nearest("x", []) == ""
    endless = (f"{i}" for i in iter(int, 1))
    assert nearest("0" * 10**6, endless) == "; did you mean '0'?"


@pytest.mark.cross
@pytest.mark.parametrize("name", [*NAMES, "tower"])
def test_each_field_of_a_published_config(name):
    base = GEMMA_3_4B if name == "tower" else fields_of(name)
    names = [*base, "rope_scaling", "rope_parameters", "unknown", "n" * 5000]
    understand(base)
    cases = [base | {field: value} for field in names for value in LONG.values()]
    inner = base.get("text_config") or base.get("rope_parameters") or {}
    holder = "text_config" if name == "tower" else "rope_parameters"
    for field in [*inner, "type", "factor", "rope_type", "f" * 5000]:
        cases += [base | {holder: inner | {field: value}} for value in LONG.values()]
    assert sum(refused(functools.partial(understand, case)) for case in cases) > 100


@pytest.mark.parametrize("kind", ["text", *(pytest.param(kind, marks=pytest.mark.slow) for kind in LONG if kind != "text")])
def test_each_field_of_a_saved_config(tmp_path, kind):
    value = LONG[kind]
    models.save(decoder(), tmp_path)
    whole = (tmp_path / "config.json").read_text()
    names = [*(field.name for field in dataclasses.fields(Config)), "unknown", "n" * 5000]
    names += [f"__{key}" for key in ("format", "format_version", "library_version", "config", "extra")]
    for name in names:
        edit_config(tmp_path, **{name: value})
        refused(lambda: models.load(tmp_path), tmp_path)
        (tmp_path / "config.json").write_text(whole)
    for letter in ("L" * 5000, "L"):
        for field in ("legend", "theta", "rope_scaling"):
            edit_config(tmp_path, **{field: {"G": "causal()", letter: value}})
            assert refused(lambda: models.load(tmp_path), tmp_path)
            (tmp_path / "config.json").write_text(whole)


def test_each_entry_of_a_header(tmp_path):
    models.save(decoder(), tmp_path)
    path = tmp_path / "model.safetensors"
    whole = path.read_bytes()
    header, payload = unpack(whole)
    name = next(iter(header))
    for value in LONG.values():
        for key in ("dtype", "shape", "data_offsets", "m" * 5000):
            path.write_bytes(pack(header | {name: header[name] | {key: value}}, payload))
            assert refused(lambda: models.load(tmp_path), tmp_path)
        for changed in ({name: value}, {"__metadata__": value}):
            path.write_bytes(pack(header | changed, payload))
            assert refused(lambda: models.load(tmp_path), tmp_path)
    moved = dict(header)
    moved["n" * 10_000] = moved.pop(name)
    path.write_bytes(pack(moved, payload))
    reseal(tmp_path)
    assert refused(lambda: models.load(tmp_path), tmp_path)
    twice = json.dumps(header)[:-1] + f', "{"n" * 9999}": 1, "{"n" * 9999}": 2}}'
    for text in (twice, '{"a": 1' + "0" * 100_000 + ".0}", '{"a": ' + "9" * 100_000 + "}", '{"a": -1e' + "9" * 100_000 + "}"):
        path.write_bytes(pack(text.encode(), payload))
        assert refused(lambda: models.load(tmp_path), tmp_path)


def test_each_entry_of_an_index(tmp_path):
    folder = copied("mistral", tmp_path)
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())["weight_map"]
    name = next(iter(index))
    longs = [*LONG.values(), "x" * 150 + ".safetensors", "x" * 5000 + ".safetensors", "é" * 150 + ".safetensors"]
    for weights in [*({**index, name: value} for value in longs), *longs, {**index, "n" * 9999: index[name]}]:
        path.write_text(json.dumps({"weight_map": weights}))
        assert refused(lambda: models.load(folder), folder)


@pytest.mark.slow
def test_each_value_of_a_gguf_header(tmp_path):
    path = tmp_path / "m.gguf"
    values = ["x" * 100_000, ["y" * 100] * 500, list(range(5000)), [0.5] * 5000, 4294967295, 3.4e38]
    keys = [*(f"llama.{name}" for name in LLAMA), "llama.rope.scaling.type", "llama.rope.scaling.factor", "llama.u" + "n" * 5000, "n" * 5000, "general.type", "general.alignment"]
    for key in keys:
        for value in values:
            own = {name: value for name, value in LLAMA.items() if f"llama.{name}" != key}
            write(path, own, **{key: value})
            refused(lambda: models.load(path), path)
    writer = gguf.GGUFWriter(path, "x" * 10_000)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert refused(lambda: models.load(path), path)
    long = {f"blk.0.{'w' * 5000}.weight": (4,), "w" * 5000: (4,)}
    for name, shape in long.items():
        write(path, weights=numbers(shapes() | {name: shape}))
        assert refused(lambda: models.load(path), path)
    for name in VOCABULARY | dict.fromkeys(f"tokenizer.ggml.{name}" for name in ("add_bos_token", "add_space_prefix")):
        for value in values:
            write(path, **VOCABULARY | {"tokenizer.ggml.add_bos_token": True, name: value})
            refused(lambda: models.tokenizer(path), path)


def test_each_part_of_a_tokenizer(tmp_path):
    words = {"version": "1.0", "model": {"type": "WordLevel", "vocab": {"to": 0, "?": 1}, "unk_token": "?"}}
    path = tmp_path / "tokenizer.json"
    for key in ("version", "model", "normalizer", "pre_tokenizer", "post_processor", "decoder", "added_tokens", "truncation", "padding", "n" * 5000):
        for value in LONG.values():
            for changed in (value, {"type": value}):
                path.write_text(json.dumps(words | {key: changed}))
                refused(lambda: models.tokenizer(tmp_path), path)


def test_a_name_that_the_system_cannot_have(tmp_path):
    with pytest.raises((ValueError, FileNotFoundError)):
        models.load(tmp_path / ("x" * 5000))
