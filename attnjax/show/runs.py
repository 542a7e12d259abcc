"""What a training run left in metrics.jsonl and run.json, or curves given as numbers: series to draw."""

import json
import os
import pathlib
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
    path = path / METRICS if path.is_dir() else path
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}; `python -m train run CONFIG --out FOLDER` leaves one there")
    lines = _lines(path)
    found = [_series(key, *zip(*points, strict=True)) for key in keys if (points := _points(path, lines, key))]
    if not found:
        there = sorted({name for line in lines for name in line} - {"step"})
        has = ", ".join(there) or "no line"
        raise ValueError(f"{path} has no {' or '.join(keys)}; it has {has}: say with keys= what to draw")
    return Run(path.parent.resolve().name, tuple(found), _levels(path.with_name(RECORD)))


def _pair(name: object, given: Any) -> tuple[Any, Any]:
    try:
        steps, values = given
    except (TypeError, ValueError):
        raise ValueError(f"{name!r} must be a pair (steps, values) of equally long sequences") from None
    return steps, values


def _series(name: str, steps: Any, values: Any) -> Series:
    x, y = np.asarray(steps, np.float64), np.asarray(values, np.float64)
    if x.ndim != 1 or x.shape != y.shape or not x.size:
        raise ValueError(f"{name!r} has steps {x.shape} and values {y.shape}: one value for each step, at least one")
    return Series(name, x, y)


def _lines(path: pathlib.Path) -> list[dict[str, Any]]:
    """The records; the last line may be half of one, if the run was killed while writing it."""
    texts = path.read_text(encoding="utf-8").splitlines()
    lines = []
    for number, text in enumerate(texts, 1):
        try:
            line = json.loads(text)
        except json.JSONDecodeError as error:
            if number == len(texts):
                break
            raise ValueError(f"{path}, line {number}, is not JSON ({error.msg})") from None
        if not isinstance(line, dict) or not isinstance(line.get("step"), int | float):
            raise ValueError(f"{path}, line {number}, is no record with a step")
        lines.append(line)
    return lines


def _points(path: pathlib.Path, lines: list[dict[str, Any]], key: str) -> list[tuple[float | int, float | int]]:
    points = [(line["step"], line[key]) for line in lines if key in line]
    for step, value in points:
        if not isinstance(value, int | float):
            raise ValueError(f"{path}: {key} of step {step} is {value!r}, not a number")
    return points


def _levels(path: pathlib.Path) -> dict[str, float]:
    """The losses of models that only count, which a run writes down to be compared with."""
    if not path.exists():
        return {}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON ({error.msg})") from None
    levels = record.get("baselines", {}) if isinstance(record, dict) else {}
    return {name: float(value) for name, value in levels.items() if isinstance(value, int | float)}
