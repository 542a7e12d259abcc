"""Curves of training runs as a picture."""

import math
import os
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnjax.show.labels import shortened
from attnjax.show.runs import Series, read_run
from attnjax.show.sheet import Box, Item, Line, Number, Picture, Words

WIDE, HIGH = 560.0, 300.0
LEFT, TOP = 64.0, 44.0
INKS = "seen", "mixed", "third", "fourth"
MOST_POINTS = 800  # of one curve: more would not be seen


@typing.no_type_check
def curve(
    *runs: str | os.PathLike | Mapping[str, tuple[Sequence[float], Sequence[float]]],
    keys: Sequence[str] = ("loss", "validation"),
    title: str | None = None,
) -> Picture:
    """Draws how training runs went.

    Args:
        runs: each a folder that `python -m train run` filled, a metrics.jsonl (lines of JSON with `step`), or a
            mapping from a name to (steps, values).
        keys: what is drawn of a folder or file. Baselines that its run.json holds are dotted lines.
        title: None means the keys or names.

    Returns:
        The picture: a notebook shows it, `save` writes it as .svg or .png. Values that are no finite number leave
        a gap.

    Raises:
        FileNotFoundError: if a folder holds no metrics.jsonl.
        TypeError: if a run is neither a path nor a mapping.
        ValueError: if there is nothing to draw, a file cannot be read or holds something else, or steps and values
            differ in number.

    Example:
        >>> from attnjax import show
        >>> show.curve({"loss": ([0, 10, 20], [4.0, 2.5, 2.0])}).description
        'loss: 4 at step 0, 2 at step 20'
    """
    found = [read_run(run, keys) for run in runs]
    series, levels = [], {}
    for run in found:
        prefix = f"{run.name} " if len(found) > 1 and run.name else ""
        series += [one._replace(name=prefix + one.name) for one in run.series]
        levels |= run.levels
    finite = [one for one in series if np.isfinite(one.values).any()]
    if not finite:
        raise ValueError("there is no curve to draw: give at least one run with one finite value")
    heading = ", ".join(dict.fromkeys(one.name for one in series)) if title is None else title
    x_low, x_high = _range(np.concatenate([one.steps for one in finite]), np.array([]))
    y_low, y_high = _range(np.concatenate([one.values for one in finite]), np.array(list(levels.values())))
    sheet = _Sheet(x_low, x_high, y_low, y_high)
    items: list[Item] = [Words(12, 22, shortened(heading, 60), 14, bold=True), *sheet.axes(), *sheet.levels(levels)]
    for number, one in enumerate(series):
        items += sheet.curve(one, INKS[number % len(INKS)], dotted=number >= len(INKS))
    items += _legend(series)
    height = TOP + HIGH + 44 + 16 * len(series)
    return Picture(heading, "; ".join(map(_said, finite)), LEFT + WIDE + 24, height, tuple(items))


def _said(one: Series) -> str:
    """A curve in words: where it starts and where it ends."""
    fine = np.nonzero(np.isfinite(one.values))[0]
    first, last = fine[0], fine[-1]
    return (
        f"{one.name}: {one.values[first]:.4g} at step {one.steps[first]:g}, "
        f"{one.values[last]:.4g} at step {one.steps[last]:g}"
    )


def _range(values: np.ndarray, more: np.ndarray) -> tuple[float, float]:
    """The smallest and the largest finite value, apart from each other."""
    both = np.concatenate([values, more])
    both = both[np.isfinite(both)]
    low, high = float(both.min()), float(both.max())
    if high == low:
        apart = max(0.5, abs(low) / 1024)
        low, high = low - apart, high + apart
    if not math.isfinite(high - low):
        raise ValueError(f"numbers from {low:g} to {high:g} are too far apart to draw")
    return low, high


def _ticks(low: Number, high: Number) -> list[float]:
    """Round numbers between two others, about six of them."""
    raw = (high - low) / 6
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * n for n in (1, 2, 5, 10) if unit * n >= raw)
    return [n * step for n in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _legend(series: list[Series]) -> list[Item]:
    items: list[Item] = []
    for number, one in enumerate(series):
        y = TOP + HIGH + 50 + 16 * number
        ink, dotted = INKS[number % len(INKS)], number >= len(INKS)
        items.append(Line(((LEFT, y - 4), (LEFT + 22, y - 4)), ink, 1, 2.5, dotted))
        items.append(Words(LEFT + 28, y, shortened(_said(one) if np.isfinite(one.values).any() else one.name, 86), 10))
    return items


class _Sheet:
    """The ranges of both axes, and what is drawn inside them."""

    def __init__(self, x_low: Number, x_high: Number, y_low: Number, y_high: Number) -> None:
        self.x_low, self.x_high, self.y_low, self.y_high = x_low, x_high, y_low, y_high

    def place(self, x: Any, y: Any) -> tuple[Any, Any]:
        right = (x - self.x_low) / (self.x_high - self.x_low)
        up = (y - self.y_low) / (self.y_high - self.y_low)
        return LEFT + WIDE * right, TOP + HIGH * (1 - up)

    def axes(self) -> list[Item]:
        items: list[Item] = [Box(LEFT, TOP, WIDE, HIGH, "text", 0.03)]
        for value in _ticks(self.y_low, self.y_high):
            y = self.place(self.x_low, value)[1]
            items.append(Line(((LEFT, y), (LEFT + WIDE, y)), "text", 0.12))
            items.append(Words(LEFT - 8, y + 3.5, f"{value:g}", 9.5, "end", 0.7))
        for value in _ticks(self.x_low, self.x_high):
            x = self.place(value, self.y_low)[0]
            items.append(Words(x, TOP + HIGH + 16, f"{value:g}", 9.5, "middle", 0.7))
        items.append(Words(LEFT + WIDE / 2, TOP + HIGH + 32, "step", 10, "middle", 0.7))
        return items

    def levels(self, levels: dict[str, float]) -> list[Item]:
        items: list[Item] = []
        for name, value in levels.items():
            y = self.place(self.x_low, value)[1]
            items.append(Line(((LEFT, y), (LEFT + WIDE, y)), "text", 0.6, 1, dotted=True))
            items.append(Words(LEFT + WIDE - 4, y - 4, f"byte counts, {name}: {value:.3g}", 9, "end", 0.6))
        return items

    def curve(self, one: Series, ink: str, dotted: bool) -> list[Item]:
        """Stretches of finite values as lines, and a dot on each of a few points."""
        keep = np.unique(np.linspace(0, len(one.steps) - 1, min(len(one.steps), MOST_POINTS)).astype(int))
        steps, values = one.steps[keep], one.values[keep]
        fine = np.isfinite(values)
        x, y = self.place(steps, np.where(fine, values, self.y_low))
        items: list[Item] = []
        for stretch in np.split(np.arange(len(keep)), np.nonzero(np.diff(fine))[0] + 1):
            if fine[stretch[0]] and len(stretch) > 1:
                points = tuple((float(x[i]), float(y[i])) for i in stretch)
                items.append(Line(points, ink, 1, 1.75, dotted))
        for i in np.nonzero(fine)[0] if len(keep) <= 40 else ():
            tip = f"{one.name} {values[i]:.4g} at step {steps[i]:g}"
            items.append(Box(float(x[i]) - 2.5, float(y[i]) - 2.5, 5, 5, ink, 1, tip))
        return items
