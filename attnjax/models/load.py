"""Reading a model from a folder that anyone may have written."""

import dataclasses
import os
import typing
from pathlib import Path
from typing import Any

import jax

from attnjax.models.config import Config
from attnjax.models.decoder import Decoder
from attnjax.models.files import WeightsFile, open_file, read_json
from attnjax.models.saved_config import CONFIG_FILE, WEIGHTS_FILE, check_field_types, check_header, from_json
from attnjax.models.weights import by_layer, check_fit, filled, skeleton
from attnjax.patterns import Pattern, PerHead, parse
from attnjax.visible import check_pattern

ONLY_OURS = "not supported in this version, only folders written by models.save are"


@typing.no_type_check
def load(
    path: str | os.PathLike,
    pattern: Pattern | PerHead | str | None = None,
    *,
    dtype: Any = None,
    param_dtype: Any = None,
) -> Decoder:
    """Reads a model that `save` wrote; without options it equals the saved one bit for bit, dtypes included.

    The files are not trusted: nothing in them is unpickled or executed, and every claim is checked.

    Args:
        path: the folder.
        pattern: replaces the pattern of every layer: a pattern or its text. None leaves each layer its own.
        dtype: dtype of the computation; None means as saved.
        param_dtype: dtype to convert the weights to; None means as saved.

    Returns:
        The decoder, with its layers stacked or not as they were.

    Raises:
        FileNotFoundError: if the folder or one of its two files is missing.
        TypeError: if `pattern` or a dtype is none.
        ValueError: if a file is damaged, manipulated, of a later format or of another kind (Hugging Face,
            GGUF, pickle), naming the file and what is wrong; if `pattern` does not parse, does not fit or
            sees the future; if weights would be float64 while JAX has that switched off, or do not fit
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
    folder = Path(path)
    _check_folder(folder)
    saved = _read_config(folder / CONFIG_FILE)
    with WeightsFile(folder / WEIGHTS_FILE) as file:
        stored = _stored_config(saved["config"], folder / CONFIG_FILE, file)
        config = _asked_config(stored, pattern, dtype, param_dtype)
        model = skeleton(stored)
        check_fit({entry.name: entry for entry in file.entries}, by_layer(model), str(file.path))
        weights, digest = file.read()
    if digest != saved["weights_sha256"]:
        raise ValueError(
            f"{file.path} is not the file that {CONFIG_FILE} was written with (their checksums differ): it "
            "was damaged, exchanged, or a save was interrupted"
        )
    return filled(model if config == stored else skeleton(config), weights)


def _check_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    with open_file(folder) as file:
        kind = "a GGUF file" if file.read(4) == b"GGUF" else "a file"
    raise ValueError(f"{folder} is {kind}: {ONLY_OURS}")


def _read_config(path: Path) -> dict[str, Any]:
    saved = read_json(path)
    if "format" not in saved and not saved.keys().isdisjoint(("architectures", "model_type")):
        raise ValueError(f"{path.parent} is a Hugging Face folder: {ONLY_OURS}")
    try:
        check_header(saved)
    except ValueError as fault:
        raise ValueError(f"{path}: {fault}") from None
    return saved


def _stored_config(fields: Any, path: Path, file: WeightsFile) -> Config:
    try:
        check_field_types(fields)
        _check_sizes(fields, file)
        return from_json(fields)
    except ValueError as fault:
        raise ValueError(f"{path}: {fault}") from None


def _check_sizes(fields: dict[str, Any], file: WeightsFile) -> None:
    """Refuses to describe a model larger than the weights at hand, which alone could take for ever."""
    layers, weights = fields["num_layers"], len(file.entries)
    if layers > weights:
        raise ValueError(f"num_layers={layers}, but {file.path.name} holds {weights} weights")
    heads = fields["num_heads"] * (fields["head_dim"] or 1)
    widest = max(1, fields["vocab_size"], heads, fields["d_ff"] or 1)
    if widest * fields["d_model"] > file.num_bytes:
        raise ValueError(
            f"d_model={fields['d_model']} and a width of {widest} make a weight larger than all "
            f"{file.num_bytes} bytes in {file.path.name}"
        )


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
