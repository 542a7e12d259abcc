"""What config.json of a saved model says: the header, and a Config as JSON and back."""

import dataclasses
import importlib
import types
import typing
from collections.abc import Mapping
from typing import Any

import numpy as np

from attnjax.models.config import Config
from attnjax.models.files import DTYPES
from attnjax.models.messages import cut, nearest, shown
from attnjax.patterns import Pattern, PerHead, parse

CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"
# To be raised whenever Config gains a field; a reader of older versions then says what stood for it.
FORMAT, FORMAT_VERSION = "attnjax", 3
# What models meant that were written before there were these fields: version -> fields that came after it.
BEFORE: dict[int, dict[str, Any]] = {
    1: {
        "qk_norm_eps": 1e-6, "scale": None, "use_bias": False, "out_bias": None, "activation": "silu",
        "mlp_bias": False, "post_norms": False, "embedding_scale": None, "logits_soft_cap": None,
    },
    2: {"precision": None},
}  # fmt: skip
KEYS = ("format", "format_version", "library_version", "weights_sha256", "config")
LEGEND_LIMIT = 1 << 16  # letters of all patterns; reading a million would take half a minute
FIELDS = {field.name: field for field in dataclasses.fields(Config)}
DTYPE_NAMES = tuple(dtype.name for dtype in DTYPES.values())


def header(weights_sha256: str) -> dict[str, Any]:
    """Everything in config.json but the config."""
    version = importlib.import_module("attnjax").__version__
    return dict(zip(KEYS, (FORMAT, FORMAT_VERSION, version, weights_sha256), strict=False))


def check_header(saved: dict[str, Any]) -> None:
    """Raises a ValueError unless `saved` has the keys of this format, in its name and a version that is read."""
    if saved.get("format") != FORMAT:
        raise ValueError(f"format={shown(saved.get('format'))}, but models.load reads {FORMAT!r} only")
    version = saved.get("format_version")
    if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
        raise ValueError(
            f"format_version={shown(version)}, but this version of attnjax reads 1 to {FORMAT_VERSION}; the file was "
            f"written by attnjax {shown(saved.get('library_version'))}"
        )
    check_keys(saved, KEYS, "the file")


def fields_of(saved: dict[str, Any]) -> Any:
    """The config of a file whose header is checked, in terms of this version."""
    fields = saved["config"]
    for version in range(saved["format_version"], FORMAT_VERSION):
        if isinstance(fields, dict):
            for name in BEFORE[version]:
                if name in fields:
                    raise ValueError(f"config has the key {name!r}, which format_version={version} did not have")
            fields = fields | BEFORE[version]
    return fields


def to_json(config: Config) -> dict[str, Any]:
    """Every field of the config in terms of JSON: patterns as text, dtypes as names.

    Raises:
        ValueError: if a field has no text, such as a pattern that holds a `Where`.
    """
    for letter, pattern in config.legend.items():
        _check_text(letter, pattern)
    for name in ("dtype", "param_dtype"):
        check_dtype_name(name, getattr(config, name).name)
    fields = {name: _plain(name, getattr(config, name)) for name in FIELDS}
    back = from_json(fields)
    for name in FIELDS:
        kept, read = getattr(config, name), getattr(back, name)
        if kept != read:
            raise ValueError(f"{name}={kept!r} cannot be saved: its text reads as {read!r}")
    return fields


def from_json(fields: Any) -> Config:
    """The Config that these fields describe, each of them checked.

    Raises:
        ValueError: if a field is missing, unknown or wrong, or fields do not fit together.
    """
    check_field_types(fields)
    for name in ("dtype", "param_dtype"):
        check_dtype_name(name, fields[name])
    _check_length(fields["legend"])
    try:
        return Config(**fields | {"rope_scaling": _used_scaling(fields)})
    except (TypeError, ValueError, OverflowError) as fault:
        raise ValueError(cut(fault)) from None


def _used_scaling(fields: dict[str, Any]) -> Any:
    """rope_scaling without letters of the legend that no layer has: they stretch nothing, and were once accepted."""
    scaling, legend = fields["rope_scaling"], fields["legend"]
    unused = set(legend if isinstance(legend, dict) else ()) - set(fields["layout"][: fields["num_layers"]])
    if not isinstance(scaling, dict) or not unused & set(scaling):
        return scaling
    return {letter: rule for letter, rule in scaling.items() if letter not in unused} or None


def check_field_types(fields: Any) -> None:
    """Raises a ValueError unless these are exactly the fields of a Config, each of a type that it takes."""
    check_keys(fields, FIELDS, "config")
    for name, field in FIELDS.items():
        if not _fits(fields[name], field.type):
            raise ValueError(f"{name}={shown(fields[name])} has the wrong type: it takes {field.type}")


def check_keys(found: Any, wanted: Any, what: str) -> None:
    """Raises a ValueError unless `found` is a dict with exactly the wanted keys."""
    if not isinstance(found, dict):
        raise ValueError(f"{what} must be an object {{...}}, not {shown(found)}")
    for key in found:
        if key not in wanted:
            raise ValueError(f"{what} has the unknown key {shown(key)}{nearest(key, wanted, 0.6)}")
    for key in wanted:
        if key not in found:
            raise ValueError(f"{what} lacks the key {key!r}")


def check_dtype_name(name: str, found: Any) -> None:
    """Raises a ValueError unless `found` names a dtype that a saved model can have."""
    if found not in DTYPE_NAMES:
        names = ", ".join(DTYPE_NAMES)
        raise ValueError(f"{name}={shown(found)} cannot be saved; a saved model has one of {names}")


def _check_length(legend: Mapping[str, Any]) -> None:
    length = sum(len(str(text)) for text in legend.values())
    if length > LEGEND_LIMIT:
        raise ValueError(f"the patterns of legend are {length:,} characters long; a file may have {LEGEND_LIMIT:,}")


def _check_text(letter: str, pattern: Any) -> None:
    try:
        same = parse(str(pattern)) == pattern
    except ValueError as fault:
        raise ValueError(f"legend[{letter!r}] = {pattern} cannot be saved: {fault}") from None
    if not same:
        raise ValueError(f"legend[{letter!r}] = {pattern} cannot be saved: its text is of another pattern")


def _plain(name: str, value: Any) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, (Pattern, PerHead)):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(name, inner) for key, inner in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(name, inner) for inner in value]
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(name, getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, np.bool_):
        return bool(value)
    if hasattr(value, "__index__"):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value)
    raise ValueError(f"{name} holds {value!r}, a {type(value).__name__}, which cannot be saved")


def _fits(value: Any, annotation: Any) -> bool:
    """Whether a JSON value is of a type that the field takes; classes of our own judge JSON themselves."""
    is_union = isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union
    options = typing.get_args(annotation) if is_union else (annotation,)
    return any(_fits_one(value, typing.get_origin(option) or option) for option in options)


def _fits_one(value: Any, kind: Any) -> bool:
    if kind is float:
        return type(value) in (int, float)
    if kind in (int, bool, str, types.NoneType):
        return type(value) is kind
    return kind is Any or isinstance(value, dict)
