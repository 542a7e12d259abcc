"""Reading a model from a folder that anyone may have written."""

import contextlib
import dataclasses
import os
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from attnjax.models.config import Config
from attnjax.models.decoder import Decoder
from attnjax.models.files import WeightsFile, memory_for, open_file, read_json
from attnjax.models.gguf_file import open_gguf
from attnjax.models.gguf_header import MAGIC
from attnjax.models.huggingface import is_folder, open_folder, refuse_pickle
from attnjax.models.published import attention, decoder, read_config
from attnjax.models.saved_config import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    check_field_types,
    check_header,
    fields_of,
    from_json,
)
from attnjax.models.source import Source
from attnjax.models.weights import check_fit, check_sizes, expected, filled, skeleton
from attnjax.nn.attention import Attention
from attnjax.patterns import Pattern, PerHead, parse
from attnjax.patterns.checks import integer
from attnjax.visible import check_pattern


@typing.no_type_check
def load(
    path: str | os.PathLike,
    pattern: Pattern | PerHead | str | None = None,
    *,
    dtype: Any = None,
    param_dtype: Any = None,
) -> Decoder:
    """Reads a model that `save` wrote, bit for bit, or one that was published as a Hugging Face folder or as a GGUF
    file: Llama (and SmolLM2), Mistral, Qwen2, Qwen3, Gemma 2, Gemma 3 (its text tower).

    The files are not trusted: nothing in them is unpickled or executed, and every claim is checked. A published
    model gets the pattern, rotation and options that its config.json says; a field that changes the result and is not
    supported is an error.

    Args:
        path: the folder, or the GGUF file, whose weights are dequantised.
        pattern: replaces the pattern of every layer: a pattern or its text. None leaves each layer its own.
        dtype: dtype of the computation; None means as saved, and float32 for a published model.
        param_dtype: dtype to convert the weights to; None means the same.

    Returns:
        The decoder, with its layers stacked or not as they were. Those of a published model are not (`config.scan` is
        False): it compiles longer, but writes up to twice as fast, since no step copies a layer out of a stack.

    Raises:
        FileNotFoundError: if the folder or one of its files is missing.
        ImportError: if a package that reads the file is missing.
        TypeError: if `pattern` or a dtype is none.
        ValueError: if a file is damaged, manipulated, of a later format, a pickle or of another kind, naming the
            file and what is wrong; if a published config has an unknown family or a field that is not supported, or
            a weight is missing, unknown, misshapen or too large for the memory; if `pattern` does not parse, does not
            fit or sees the future; if weights would be float64 while JAX has that switched off, or do not fit
            `param_dtype`.

    Example:
        >>> import tempfile
        >>> from attnjax import models
        >>> from flax import nnx
        >>> config = models.Config(vocab_size=32, d_model=16, num_layers=2, num_heads=2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     models.save(models.Decoder(config, rngs=nnx.Rngs(0)), folder)
        ...     model = models.load(folder, "window(4) | sink(1)", dtype="bfloat16")
        >>> str(model.block(0).attention.pattern), model.config.dtype.name, model.config.param_dtype.name
        ('window(4) | sink(1)', 'bfloat16', 'float32')
    """
    path = Path(path)
    with memory_for(f"{path}: its weights"), _published(path) as source:
        if source is not None:
            found = read_config(source)
            unstacked = dataclasses.replace(found.config, scan=False)
            return decoder(source, found, _asked_config(unstacked, pattern, dtype, param_dtype))
        return _saved(path, pattern, dtype, param_dtype)


@typing.no_type_check
def load_attention(
    path: str | os.PathLike,
    layer: int,
    pattern: Pattern | PerHead | str | None = None,
    *,
    dtype: Any = None,
    param_dtype: Any = None,
) -> Attention:
    """Reads the attention of one layer of a published model, and none of its other weights.

    For models whose MLP `Decoder` does not have (gpt-oss, with learned sinks and a mixture of experts), or that are
    too large to read whole. Its input is the normalised stream.

    Args:
        path: a Hugging Face folder or a GGUF file, as in `load`.
        layer: which layer, from 0.
        pattern, dtype, param_dtype: as in `load`.

    Returns:
        The layer, with the pattern and the rotation that it has in the model.

    Raises:
        IndexError: if there is no such layer.
        FileNotFoundError, TypeError, ValueError: as `load`; a layer that is no int is a TypeError.

    Example:
        >>> import json, pathlib, tempfile
        >>> import numpy as np
        >>> from attnjax import models
        >>> from safetensors.numpy import save_file
        >>> config = dict(model_type="llama", vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
        ...               num_attention_heads=2)
        >>> weights = {f"model.layers.0.self_attn.{name}_proj.weight": np.eye(8, dtype="float32") for name in "qkvo"}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_file(weights, f"{folder}/model.safetensors")
        ...     _ = pathlib.Path(folder, "config.json").write_text(json.dumps(config))
        ...     layer = models.load_attention(folder, 0)
        >>> layer.num_heads, str(layer.pattern)
        (2, 'causal()')
    """
    path, layer = Path(path), integer("layer", layer)
    with memory_for(f"{path}: its weights"), _published(path) as source:
        if source is None:
            raise ValueError(f"{path} was written by models.save: take load(path).block({layer}).attention")
        found = read_config(source)
        return attention(source, found, _asked_config(found.config, pattern, dtype, param_dtype), layer)


@contextlib.contextmanager
def _published(path: Path) -> Iterator[Source | None]:
    """The published model at this path; None if it is a folder that `save` wrote."""
    refuse_pickle(path)
    if not os.path.isdir(path):
        with open_file(path) as file:
            is_gguf = file.read(len(MAGIC)) == MAGIC
        if not is_gguf:
            raise ValueError(f"{path} is a file, but no GGUF file; a folder is one of models.save or Hugging Face")
        yield open_gguf(path)
        return
    if not (path / CONFIG_FILE).exists():
        for file in sorted(path.iterdir()):
            refuse_pickle(file)
    config = read_json(path / CONFIG_FILE)
    if not is_folder(config):
        yield None
        return
    with open_folder(path, config) as source:
        yield source


def _saved(folder: Path, pattern: Any, dtype: Any, param_dtype: Any) -> Decoder:
    """The model that `save` wrote."""
    saved = _read_config(folder / CONFIG_FILE)
    with WeightsFile(folder / WEIGHTS_FILE) as file:
        stored = _stored_config(saved, folder / CONFIG_FILE, file)
        config = _asked_config(stored, pattern, dtype, param_dtype)
        check_fit({entry.name: entry for entry in file.entries}, expected(stored), str(file.path))
        weights, digest = file.read()
    if digest != saved["weights_sha256"]:
        raise ValueError(
            f"{file.path} is not the file that {CONFIG_FILE} was written with (their checksums differ): it "
            "was damaged, exchanged, or a save was interrupted"
        )
    return filled(skeleton(config), weights)


def _read_config(path: Path) -> dict[str, Any]:
    saved = read_json(path)
    try:
        check_header(saved)
    except ValueError as fault:
        raise ValueError(f"{path}: {fault}") from None
    return saved


def _stored_config(saved: dict[str, Any], path: Path, file: WeightsFile) -> Config:
    try:
        fields = fields_of(saved)
        check_field_types(fields)
        check_sizes(fields, len(file.entries), file.num_bytes, "bytes", file.path.name)
        return from_json(fields)
    except ValueError as fault:
        raise ValueError(f"{path}: {fault}") from None


def _asked_config(stored: Config, pattern: Any, dtype: Any, param_dtype: Any) -> Config:
    changes = {"dtype": dtype, "param_dtype": param_dtype}
    changes = {name: value for name, value in changes.items() if value is not None}
    if pattern is not None:
        pattern = parse(pattern) if isinstance(pattern, str) else pattern
        check_pattern(pattern)
        if pattern.sees_future and not pattern.is_prefix:
            raise ValueError(
                f"pattern={pattern} looks at tokens after the query; write it & causal(), or use prefix(n)"
            )
        changes["legend"] = dict.fromkeys(stored.legend, pattern)
    config = dataclasses.replace(stored, **changes)
    if jax.dtypes.canonicalize_dtype(config.param_dtype) != config.param_dtype:
        raise ValueError(
            "param_dtype=float64, which JAX has switched off: pass param_dtype='float32', or call "
            "jax.config.update('jax_enable_x64', True) first"
        )
    return config
