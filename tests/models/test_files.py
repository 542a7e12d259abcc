"""The reader of untrusted files: what a well-formed file gives, and what each kind of lie is told."""

import hashlib
import os
import pickle
import struct

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from attnjax.models.files import CONFIG_LIMIT, HEADER_LIMIT, WeightsFile, parse_json, read_json
from tests.models.saved import pack

PAYLOAD = np.arange(6, dtype="<f4").tobytes() + np.arange(4, dtype="<f2").tobytes()
A = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
B = {"dtype": "F16", "shape": [4], "data_offsets": [24, 32]}


def read(path, data):
    path.write_bytes(data)
    with WeightsFile(path) as file:
        return file.read()


def test_weights_have_the_numbers_of_the_file_and_its_checksum(tmp_path):
    data = pack({"__metadata__": {"made": "by hand"}, "b": B, "a": A}, PAYLOAD)
    weights, digest = read(tmp_path / "w", data)
    np.testing.assert_array_equal(weights["a"], np.arange(6, dtype=np.float32).reshape(2, 3), strict=True)
    np.testing.assert_array_equal(weights["b"], np.arange(4, dtype=np.float16), strict=True)
    assert digest == hashlib.sha256(data).hexdigest()


def test_files_of_the_safetensors_package_read_the_same(tmp_path):
    rng = np.random.default_rng(0)
    made = {name: rng.standard_normal((3, 2)).astype(name) for name in ("float64", "float32", "float16")}
    made |= {"bfloat16": np.asarray(jnp.ones((2, 0, 5), jnp.bfloat16)), "scalar": np.array(3.0)}
    safetensors.numpy.save_file(made, tmp_path / "w")
    weights, _ = read(tmp_path / "w", (tmp_path / "w").read_bytes())
    assert weights.keys() == made.keys()
    for name, array in made.items():
        np.testing.assert_array_equal(weights[name], array, strict=True)


def lie(**changes):
    return pack({"a": A | changes, "b": B}, PAYLOAD)


@pytest.mark.parametrize(
    "match, data",
    [
        ("truncated or no safetensors file: it has 0 bytes", b""),
        ("truncated or no safetensors file: it has 5 bytes", b"12345"),
        ("announce a header of 18446744073709551615", b"\xff" * 8 + PAYLOAD),
        ("announce a header of 99", struct.pack("<Q", 99) + b"{}"),
        ("truncated or no safetensors file", pickle.dumps({"a": np.arange(3)})),
        (f"limit is {HEADER_LIMIT}", struct.pack("<Q", HEADER_LIMIT + 1) + b" " * (HEADER_LIMIT + 1)),
        ("is truncated: its weights end at byte 32 of 31", lie()[:-1]),
        ("bytes that belong to no weight: its weights end at byte 32 of 33", lie() + b"\0"),
        ("header of .* is not valid JSON: .*utf-8", pack(b'{"a\xff": 1}', b"")),
        ("header of .* is not valid JSON", pack(b"{", b"")),
        ("header of .* holds a JSON list", pack(b"[]", b"")),
        ("header of .* is nested too deeply", pack(b'{"a":' + b"[" * 200_000, b"")),
        ("the key 'a' stands twice", pack(b'{"a": 1, "a": 2}', b"")),
        ("__metadata__ must map names to text", pack({"__metadata__": {"a": 1}}, b"")),
        ("__metadata__ must map names to text", pack({"__metadata__": 7}, b"")),
        ("weight 'a' must have exactly dtype, shape and data_offsets", pack({"a": 3}, b"")),
        ("weight 'a' must have exactly", pack({"a": {"dtype": "F32", "shape": []}}, b"")),
        ("weight 'a' must have exactly", lie(more=1)),
        ("weight 'a' has dtype 'I32'; it must be one of F64, F32, F16, BF16", lie(dtype="I32")),
        ("weight 'a' has dtype None", lie(dtype=None)),
        ("weight 'a' has dtype \\['F32'\\]", lie(dtype=["F32"])),
        ("weight 'a' has no valid shape", lie(shape=[2, -3])),
        ("weight 'a' has no valid shape", lie(shape=[2.0, 3])),
        ("weight 'a' has no valid shape", lie(shape=[True, 6])),
        ("weight 'a' has no valid shape", lie(shape="23")),
        ("weight 'a' has no valid shape", lie(shape=[1] * 9)),
        ("weight 'a' has 24 bytes, but F32 of shape \\(2, 4\\) takes 32", lie(shape=[2, 4])),
        ("weight 'a' has 24 bytes, but F64 of shape \\(2, 3\\) takes 48", lie(dtype="F64")),
        ("weight 'a' has 24 bytes, but F32 of shape .* takes 40{8}", lie(shape=[10**8])),
        ("weight 'a' has no valid data_offsets", lie(data_offsets=[24, 0])),
        ("weight 'a' has no valid data_offsets", lie(data_offsets=[-24, 0])),
        ("weight 'a' has no valid data_offsets", lie(data_offsets=[0, 24, 48])),
        ("weight 'a' has no valid data_offsets", lie(data_offsets=None)),
        ("weight 'a' has 9223372036854775783 bytes", lie(data_offsets=[24, 2**63 - 1])),
        ("is not valid JSON: 1000000.* is larger than any size", lie(shape=[10**30])),
        ("weight 'b' overlaps the weight before it: it starts at 20, not 24", pack(
            {"a": A, "b": B | {"data_offsets": [20, 28]}}, PAYLOAD)),
        ("weight 'b' overlaps the weight before it", pack({"a": A, "b": A}, PAYLOAD)),
        ("weight 'b' leaves a gap before it: it starts at 28, not 24", pack(
            {"a": A, "b": B | {"data_offsets": [28, 36]}}, PAYLOAD + b"1234")),
        ("weight 'b' leaves a gap before it", pack({"b": B}, PAYLOAD)),
    ],
)  # fmt: skip
def test_each_lie_of_a_weights_file_is_named(tmp_path, match, data):
    with pytest.raises(ValueError, match=match) as fault:
        read(tmp_path / "some.safetensors", data)
    assert "some.safetensors" in str(fault.value)


@pytest.mark.parametrize(
    "match, data",
    [
        ("NaN is not a number", b'{"a": NaN}'),
        ("-Infinity is not a number", b'{"a": -Infinity}'),
        ("1e999 is not a number", b'{"a": 1e999}'),
        ("is larger than any size", b'{"a": ' + b"9" * 5000 + b"}"),
        ("the key 'a' stands twice", b'{"b": {"a": 1, "a": 1}}'),
        ("nested too deeply", b'{"a":' * 100_000),
        ("holds a JSON str", b'"text"'),
        ("not valid JSON", pickle.dumps({"a": 1})),
        ("not valid JSON", "{}".encode("utf-16")),
        ("not valid JSON", b""),
    ],
)
def test_json_is_read_strictly(match, data):
    with pytest.raises(ValueError, match=match):
        parse_json(data, "here")


def test_json_numbers_come_back_exactly():
    text = b'{"a": 0.1, "b": -3, "c": 1e-06, "d": [true, null, "\\u00e9"]}'
    assert parse_json(text, "here") == {"a": 0.1, "b": -3, "c": 1e-06, "d": [True, None, "\u00e9"]}


def test_only_regular_files_of_a_sane_size_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # opening one normally waits for its other end
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "nowhere").symlink_to("missing")
    (tmp_path / "folder").mkdir()
    (tmp_path / "big").write_bytes(b" " * (CONFIG_LIMIT + 1))
    for reader in (read_json, WeightsFile):
        for name, match in (("pipe", "not a regular file"), ("folder", "folder"), ("loop", "cannot be read")):
            with pytest.raises(ValueError, match=match):
                reader(tmp_path / name)
        for name in ("nowhere", "missing"):
            with pytest.raises(FileNotFoundError, match=name):
                reader(tmp_path / name)
    with pytest.raises(ValueError, match=f"is larger than {CONFIG_LIMIT} bytes"):
        read_json(tmp_path / "big")
