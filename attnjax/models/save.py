"""Writing a model into a folder: all of it or nothing."""

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from attnjax.models.decoder import Decoder
from attnjax.models.saved_config import CONFIG_FILE, WEIGHTS_FILE, header, to_json
from attnjax.models.weights import by_layer, check_fit, skeleton


@typing.no_type_check
def save(model: Decoder, folder: str | os.PathLike) -> None:
    """Writes a model as two files: `config.json`, for people and programs, and `model.safetensors`.

    config.json holds the format's name and version, the library's version, every field of the config
    (patterns as their text, dtypes as names) and the SHA-256 of the weights file. Weights have one name per
    layer, such as `layers.3.attention.query.kernel`, whether or not the layers are stacked: with `scan`
    edited in config.json a stacked model loads unrolled, and the other way round.

    A new folder appears complete or not at all. In a folder that exists other files stay, and both of ours
    are written out in full before the first takes its place; a process killed between the two leaves a pair
    that `load` refuses by its checksum, and one killed earlier a hidden `.saving-...` folder to delete. Needs
    the safetensors package: `pip install "attnjax[models]"`.

    Args:
        model: a decoder with values (not inside `jax.jit`).
        folder: where to; parents are created.

    Raises:
        TypeError: if the model is not a `Decoder`, or has no values.
        ValueError: if a pattern holds a `Where` (its function has no text), another field has no text, the
            weights no longer fit the config, or `folder` is a file. Nothing has been written then.
        OSError: if the disk is full or the folder cannot be written. What stood there before still does.
        ImportError: if safetensors is not installed.

    Example:
        >>> import tempfile
        >>> from attnjax import models
        >>> from flax import nnx
        >>> config = models.Config(vocab_size=32, d_model=16, num_layers=2, num_heads=2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     models.save(models.Decoder(config, rngs=nnx.Rngs(0)), folder)
        ...     models.load(folder).config == config
        True
    """
    if not isinstance(model, Decoder):
        raise TypeError(f"save takes a Decoder, got a {type(model).__name__}")
    package = _safetensors()
    target = Path(os.path.realpath(folder))
    if target.exists() and not target.is_dir():
        raise ValueError(f"{folder} is a file; give a folder")
    config = to_json(model.config)
    weights = _values(model)
    check_fit(weights, by_layer(skeleton(model.config)), "cannot save")
    try:
        with _staging(target) as staging:
            _write(package, staging, weights, config)
            _publish(staging, target)
    except (OSError, package.SafetensorError) as fault:
        number, text = getattr(fault, "errno", None), getattr(fault, "strerror", None) or fault
        message = f"cannot save the model into {folder}: {text}"
        raise (OSError(message) if number is None else OSError(number, message)) from fault


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError:
        raise ImportError('models.save needs safetensors: pip install "attnjax[models]"') from None
    return safetensors


def _values(model: Decoder) -> dict[str, np.ndarray]:
    try:
        weights = by_layer(model)
    except jax.errors.TracerArrayConversionError:
        raise TypeError("save needs the weights' values: call it outside jax.jit and jax.grad") from None
    if any(isinstance(weight, jax.ShapeDtypeStruct) for weight in weights.values()):
        raise TypeError("this model has shapes but no values: it was built under eval_shape")
    return weights


@contextlib.contextmanager
def _staging(target: Path) -> Iterator[Path]:
    """A hidden folder on the same file system as the target, gone afterwards."""
    name = f".saving-{secrets.token_hex(8)}"
    staging = target / name if target.is_dir() else target.parent / f".{target.name}{name}"
    try:
        staging.mkdir(parents=True)
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _write(package: Any, staging: Path, weights: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    # The package writes an array's memory as it lies, so the last axis must be the fastest.
    rows = {name: np.asarray(weight, order="C") for name, weight in weights.items()}
    package.numpy.save_file(rows, staging / WEIGHTS_FILE)
    with open(staging / WEIGHTS_FILE, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    text = json.dumps(header(digest) | {"config": config}, indent=2, allow_nan=False)
    (staging / CONFIG_FILE).write_text(text + "\n", encoding="utf-8")
    shutil.copymode(staging / CONFIG_FILE, staging / WEIGHTS_FILE)  # the package makes a private file
    for path in (staging / WEIGHTS_FILE, staging / CONFIG_FILE, staging):
        _to_disk(path)


def _publish(staging: Path, target: Path) -> None:
    if target.is_dir():
        for name in (WEIGHTS_FILE, CONFIG_FILE):
            os.replace(staging / name, target / name)
        _to_disk(target)
    else:
        os.rename(staging, target)
    _to_disk(target.parent)


def _to_disk(path: Path) -> None:
    """A rename can reach the disk before the bytes that it names, unless these are sent there first."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
