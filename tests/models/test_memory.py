"""Memory that is not there is a ValueError that names the file and what asked for it."""

import contextlib

import jax
import jax.numpy as jnp
import pytest

from attnjax import models
from attnjax.models import gguf_file, gguf_header
from attnjax.models.files import WeightsFile, memory_for
from tests.models.gguf_written import write
from tests.models.published import copied
from tests.models.saved import decoder


class Endless:
    """A file whose parts fit no memory beyond the first so many bytes."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def read(self, size):
        if size > self.room:
            raise MemoryError
        return self.file.read(size)

    def __getattr__(self, name):
        return getattr(self.file, name)


def no_room(monkeypatch, module, room):
    opened = module.open_file

    @contextlib.contextmanager
    def open_file(path):
        with opened(path) as file:
            yield Endless(file, room)

    monkeypatch.setattr(module, "open_file", open_file)


def test_a_weight_of_a_gguf_file(tmp_path, monkeypatch):
    path = write(tmp_path / "m.gguf")
    no_room(monkeypatch, gguf_file, 4000)
    with pytest.raises(ValueError, match=r"m.gguf: the 6144 bytes of weight 'token_embd.weight' \(48, 32\) and its numbers do not fit in memory"):
        models.load(path)


def test_the_numbers_that_a_quantised_weight_becomes(tmp_path, monkeypatch):
    from gguf import quants

    def dequantize(rows, kind):
        raise MemoryError("Unable to allocate 9. TiB")

    path = write(tmp_path / "m.gguf")
    monkeypatch.setattr(quants, "dequantize", dequantize)
    with pytest.raises(ValueError, match="m.gguf: the .* do not fit in memory: Unable to allocate 9. TiB"):
        models.load_attention(path, 0)


def test_a_value_of_a_gguf_header(tmp_path, monkeypatch):
    path = write(tmp_path / "m.gguf", **{"tokenizer.ggml.scores": [0.5] * 1000})
    no_room(monkeypatch, gguf_header, 3000)
    for read in (models.load, models.tokenizer):
        with pytest.raises(ValueError, match="the values in the header of .*m.gguf do not fit in memory"):
            read(path)


def test_a_weight_of_a_folder(tmp_path, monkeypatch):
    folder = copied("smollm2", tmp_path)
    first = WeightsFile.__init__

    def small(self, *arguments):
        first(self, *arguments)
        self.file = Endless(self.file, 100)

    monkeypatch.setattr(WeightsFile, "__init__", small)
    with pytest.raises(ValueError, match=r"model.safetensors: the \d+ bytes of 'model.embed_tokens.weight' do not fit in memory"):
        models.load(folder)


@pytest.mark.parametrize("fault", [MemoryError("Unable to allocate 9. TiB"), jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes")], ids=["numpy", "jax"])
@pytest.mark.parametrize("kind", ["saved", "folder", "file"])
def test_the_models_own_numbers(tmp_path, monkeypatch, fault, kind):
    path = copied("smollm2", tmp_path) if kind == "folder" else tmp_path / "saved"
    if kind == "saved":
        models.save(decoder(), path)
    if kind == "file":
        path = write(tmp_path / "m.gguf")

    def array(value):
        raise fault

    monkeypatch.setattr(jnp, "array", array)
    with pytest.raises(ValueError, match=f"{path.name}: its weights do not fit in memory: (Unable|RESOURCE)"):
        models.load(path)


def test_other_faults_stay_what_they_are():
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"), memory_for("the numbers"):
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")
    with pytest.raises(KeyError), memory_for("the numbers"):
        raise KeyError("x")
    with pytest.raises(ValueError, match="^the numbers do not fit in memory: none is left$"), memory_for("the numbers"):
        raise MemoryError
