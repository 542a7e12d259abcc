"""What a training run left in metrics.jsonl and run.json, or curves given as numbers: series to draw."""

import json
import math
import os
import pathlib
import reprlib
import stat
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

METRICS, RECORD = "metrics.jsonl", "run.json"

class Series(NamedTuple):
    """One curve."""

    name: str
    steps: np.ndarray
    values: np.ndarray


class Run(NamedTuple):
    """The curves of a run, and levels to compare them with."""

    name: str
    series: tuple[Series, ...]
    levels: dict[str, float]


def read_run(run: Any, keys: Sequence[str]) -> Run:
    """A folder, a metrics.jsonl, or a mapping from names to (steps, values)."""
    if isinstance(run, Mapping):
        return Run("", tuple(_series(str(name), *_pair(name, given)) for name, given in run.items()), {})
    if not isinstance(run, str | os.PathLike):
        raise TypeError(f"a run is a folder, a {METRICS} or a mapping name -> (steps, values), {type(run).__name__}")
    path = pathlib.Path(run)
    path = path / METRICS if os.path.isdir(path) else path
    try:
        lines = read_lines(path)
    except FileNotFoundError:
        said = f"there is no {path}; `python -m train run CONFIG --out FOLDER` leaves one there"
        raise FileNotFoundError(said) from None
    found = [_series(key, *zip(*points, strict=True)) for key in keys if (points := _points(path, lines, key))]
    if not found:
        there = sorted({name for line in lines for name in line} - {"step"})
        has = ", ".join(there) or "no line"
        raise ValueError(f"{path} has no {' or '.join(keys)}; it has {has}: say with keys= what to draw")
    return Run(path.parent.resolve().name, tuple(found), _levels(path.with_name(RECORD)))


def read_text(path: pathlib.Path) -> str:
    """The text of a regular file.

    Raises:
        FileNotFoundError: if there is none, a link to nothing included.
        ValueError: if it is a folder, a pipe or a device, cannot be read, or is not UTF-8.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # reading a pipe could wait forever
            raise ValueError(f"{path} is not a file")
        return path.read_bytes().decode()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text (byte {error.start} is not UTF-8)") from None


def parsed(text: str, where: str) -> Any:
    """What JSON says.

    Raises:
        ValueError: if it is none, or nests deeper or has longer numbers than Python reads.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(f"{where} is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{where} is not JSON ({getattr(error, 'msg', error)})") from None


def read_lines(path: pathlib.Path) -> list[dict[str, Any]]:
    """The records of a metrics.jsonl; the last line may be half of one, if the run was killed while writing it.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: as `read_text`, and for a line that is no record with a step.
    """
    texts = read_text(path).split("\n")
    if not texts[-1] or _torn(texts[-1]):
        texts.pop()
    lines = []
    for number, text in enumerate(texts, 1):
        line = parsed(text, f"{path}, line {number},")
        if not isinstance(line, dict) or not is_number(line.get("step")) or not math.isfinite(line["step"]):
            raise ValueError(f"{path}, line {number}, is no record with a step")
        lines.append(line)
    return lines


def _torn(text: str) -> bool:
    """Whether a text without its line end can be the first part of a record, but is none."""
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return text.startswith("{")
    except (ValueError, RecursionError):
        pass
    return False


def is_number(value: Any) -> bool:
    """Whether JSON gave a number that a float can hold; NaN and the infinities are."""
    return type(value) is float or type(value) is int and abs(value) < 2**1023


def _pair(name: object, given: Any) -> tuple[Any, Any]:
    try:
        steps, values = given
    except (TypeError, ValueError):
        raise ValueError(f"{name!r} must be a pair (steps, values) of equally long sequences") from None
    return steps, values


def _series(name: str, steps: Any, values: Any) -> Series:
    try:
        x, y = np.asarray(steps, np.float64), np.asarray(values, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name!r} has steps or values that are no numbers ({error})") from None
    if x.ndim != 1 or x.shape != y.shape or not x.size:
        raise ValueError(f"{name!r} has steps {x.shape} and values {y.shape}: one value for each step, at least one")
    if not np.isfinite(x).all():
        raise ValueError(f"{name!r} has the step {x[~np.isfinite(x)][0]}; steps are finite numbers")
    return Series(name, x, y)


def _points(path: pathlib.Path, lines: list[dict[str, Any]], key: str) -> list[tuple[float | int, float | int]]:
    points = [(line["step"], line[key]) for line in lines if key in line]
    for step, value in points:
        if not is_number(value):
            raise ValueError(f"{path}: {key} of step {step} is {reprlib.repr(value)}, not a number")
    return points


def _levels(path: pathlib.Path) -> dict[str, float]:
    """The losses of models that only count, which a run writes down to be compared with."""
    try:
        record = parsed(read_text(path), str(path))
    except FileNotFoundError:
        return {}
    levels = record.get("baselines", {}) if isinstance(record, dict) else None
    if not isinstance(levels, dict) or not all(is_number(value) and math.isfinite(value) for value in levels.values()):
        raise ValueError(f"{path} is no record of a run, or its baselines are no numbers")
    return {name: float(value) for name, value in levels.items()}
