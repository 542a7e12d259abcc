"""What save writes, what it refuses before it writes, and that a failure leaves everything as it was."""

import dataclasses
import errno
import importlib
import json
import os
import resource
import signal
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from flax import nnx

import attnjax
from attnjax import models
from attnjax.models import Decoder
from attnjax.models.saved_config import to_json
from attnjax.patterns import Causal, PerHead, Where
from tests.models.saved import CONFIG, SHAPES, bits, decoder


@pytest.fixture(autouse=True)
def traced_once(monkeypatch):
    for module in ("load", "save"):
        monkeypatch.setattr(importlib.import_module(f"attnjax.models.{module}"), "skeleton", SHAPES)


def near(q, k):
    return q - k < 3


def listing(folder):
    return {str(path.relative_to(folder)): path.is_dir() or path.read_bytes() for path in folder.rglob("*")}


def test_the_two_files_hold_the_config_in_words_and_one_weight_per_layer(tmp_path):
    model = decoder()
    models.save(model, tmp_path / "new" / "model")
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"model"}
    assert {path.name for path in (tmp_path / "new" / "model").iterdir()} == {"config.json", "model.safetensors"}
    saved = json.loads((tmp_path / "new" / "model" / "config.json").read_text())
    assert saved["format"] == "attnjax" and saved["format_version"] == 3
    assert saved["library_version"] == attnjax.__version__ and len(saved["weights_sha256"]) == 64
    assert saved["config"].keys() == {field.name for field in dataclasses.fields(CONFIG)}
    assert saved["config"]["legend"] == {"L": "window(3) | sink(1)", "G": "causal()"}
    assert saved["config"]["theta"] == {"L": 100.0, "G": None} and saved["config"]["d_ff"] == 8
    assert saved["config"]["dtype"] == saved["config"]["param_dtype"] == "float32"

    weights = safetensors.numpy.load_file(tmp_path / "new" / "model" / "model.safetensors")
    assert weights.keys() == bits(model).keys()  # the names as a person would guess them
    names = {name.removeprefix("layers.3.") for name in weights if name.startswith("layers.3.")}
    assert names >= {"attention.query.kernel", "attention.key_norm.scale", "mlp.down.kernel", "mlp_norm.scale"}
    for i in range(CONFIG.num_layers):
        np.testing.assert_array_equal(
            weights[f"layers.{i}.attention.query.kernel"], model.block(i).attention.query.kernel[...]
        )
    modes = {path.stat().st_mode for path in (tmp_path / "new" / "model").iterdir()}
    assert len(modes) == 1, "both files have the permissions that a new file gets"


def test_a_model_in_the_way_is_replaced_and_other_files_stay(tmp_path):
    models.save(decoder(), tmp_path)
    (tmp_path / "metrics.jsonl").write_text("{}")
    other = decoder(dataclasses.replace(CONFIG, num_layers=1))
    (tmp_path / "alias").symlink_to(tmp_path)
    models.save(other, tmp_path / "alias")
    assert {path.name for path in tmp_path.iterdir()} == {"alias", "metrics.jsonl", "config.json", "model.safetensors"}
    assert bits(models.load(tmp_path)) == bits(other)


def test_numbers_of_any_kind_are_written_as_what_they_are(tmp_path):
    config = dataclasses.replace(CONFIG, num_heads=np.int64(2), theta=np.float32(100), scan=np.True_, soft_cap=7)
    fields = to_json(config)
    assert [type(fields[name]) for name in ("num_heads", "scan")] == [int, bool] and fields["theta"] == 100.0
    json.dumps(fields)


@pytest.mark.cross
@pytest.mark.parametrize(
    "error, match, model",
    [
        (TypeError, "save takes a Decoder, got a dict", lambda: {}),
        (ValueError, r"legend\['H'\] = .* cannot be saved: .*where\(fn\) holds a Python function", lambda: decoder(
            dataclasses.replace(CONFIG, legend={"L": Causal(), "G": Causal(), "H": Causal() & Where(near)}))),
        (ValueError, "the patterns of legend are 69,.* characters long; a file may have 65,536", lambda: decoder(
            dataclasses.replace(CONFIG, legend={"L": Causal(), "G": Causal(), "H": PerHead([Causal()] * 6898)}))),
        (ValueError, r"param_dtype='float8_e4m3fn' cannot be saved; a saved model has one of", lambda: decoder(
            dataclasses.replace(CONFIG, param_dtype="float8_e4m3fn"))),
        (TypeError, "shapes but no values", lambda: nnx.eval_shape(lambda: Decoder(CONFIG, rngs=nnx.Rngs(0)))),
        (ValueError, "weight 'norm.scale' has shape \\(3,\\), the config asks for \\(8,\\)", lambda: changed(
            lambda model: model.norm.scale.set_value(jnp.ones(3)))),
        (ValueError, "weight 'norm.scale' is float16, the config asks for float32", lambda: changed(
            lambda model: model.norm.scale.set_value(jnp.ones(8, "float16")))),
        (ValueError, "weight 'norm.bias' is not part of this model", lambda: changed(
            lambda model: setattr(model.norm, "bias", nnx.Param(jnp.ones(8))))),
        (ValueError, "weight 'layers.4.mlp.up.kernel' is missing", lambda: changed(
            lambda model: delattr(model.rest[0].mlp.up, "kernel"))),
    ],
)  # fmt: skip
def test_what_cannot_be_saved_is_named_before_anything_is_written(tmp_path, error, match, model):
    model = model()
    with pytest.raises(error, match=match):
        models.save(model, tmp_path / "folder" / "model")
    assert not listing(tmp_path)


def changed(change):
    model = decoder()
    change(model)
    return model


def test_values_are_needed_and_tracers_have_none(tmp_path):
    graph, state = nnx.split(decoder())
    with pytest.raises(TypeError, match="outside jax.jit"):
        jax.jit(lambda state: models.save(nnx.merge(graph, state), tmp_path / "m"))(state)
    assert not listing(tmp_path)


def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(ImportError, match=r'pip install "attnjax\[models\]"'):
        models.save(decoder(), tmp_path / "m")


@pytest.mark.cross
@pytest.mark.parametrize("limit", [200, 20_000], ids=["first-bytes", "halfway"])
def test_a_full_disk_leaves_the_old_model_and_nothing_else(tmp_path, limit):
    # A limit on the size of files fails the write where a full disk would.
    models.save(decoder(), tmp_path / "old")
    before, model = listing(tmp_path), decoder(dataclasses.replace(CONFIG, d_ff=200))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for folder in ("old", "new"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            with pytest.raises(OSError, match=f"cannot save the model into .*{folder}: .*File too large"):
                models.save(model, tmp_path / folder)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, handler)
    assert listing(tmp_path) == before


@pytest.mark.parametrize("call", ["mkdir", "write_text", "fsync", "rename", "replace"])
def test_an_error_at_any_call_leaves_what_was_there(tmp_path, monkeypatch, call):
    models.save(decoder(), tmp_path / "old")
    before, model = listing(tmp_path), decoder(dataclasses.replace(CONFIG, num_layers=1))

    def fail(*_, **__):
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(*(("pathlib.Path." if call in ("mkdir", "write_text") else "os.") + call, fail))
    for folder in {"rename": ["new"], "replace": ["old"]}.get(call, ["old", "new"]):
        with pytest.raises(PermissionError, match=f"cannot save the model into .*{folder}: Permission denied"):
            models.save(model, tmp_path / folder)
    assert listing(tmp_path) == before


def test_killed_between_the_two_files_the_pair_is_refused(tmp_path, monkeypatch):
    models.save(decoder(), tmp_path)
    replace, calls = os.replace, []

    def once(*paths):
        calls.append(paths)
        if len(calls) == 2:
            raise KeyboardInterrupt
        replace(*paths)

    monkeypatch.setattr("os.replace", once)
    with pytest.raises(KeyboardInterrupt):
        models.save(changed(lambda model: model.norm.scale.set_value(jnp.zeros(8))), tmp_path)
    with pytest.raises(ValueError, match="checksums differ.*a save was interrupted"):
        models.load(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "model.safetensors"}


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="file is a file; give a folder"):
        models.save(decoder(), tmp_path / "file")
    with pytest.raises(OSError, match="cannot save the model into .*below"):
        models.save(decoder(), tmp_path / "file" / "below")
    assert listing(tmp_path) == {"file": b"mine"}
