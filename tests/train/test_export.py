"""Models that training leaves behind."""

import sys

from flax import nnx

from attnjax import models
from train import export


def tiny():
    return models.Decoder(models.Config(vocab_size=8, d_model=8, num_layers=1, num_heads=1), rngs=nnx.Rngs(0))


def test_a_kept_model_loads(tmp_path):
    assert export.keep(tiny(), tmp_path / "model") == f"model in {tmp_path / 'model'}"
    assert models.load(tmp_path / "model").config == tiny().config


def test_without_safetensors_a_line_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    said = export.keep(tiny(), tmp_path / "model")
    assert said.startswith("model not saved: ") and "attnjax[models]" in said
    assert not (tmp_path / "model").exists()
