"""Deliberate faults: each trains on another pattern than the row says, and must be caught by its bands."""

import dataclasses
import re
from collections.abc import Callable

from train.rows import Row


@dataclasses.dataclass(frozen=True)
class Break:
    """A fault and the rows that it must bring down.

    Attributes:
        rewrite: the text of a pattern -> the text that is trained instead.
        rows: names of the rows that run, each of which must contradict its bands.
    """

    rewrite: Callable[[str], str]
    rows: tuple[str, ...]

    def apply(self, row: Row) -> Row:
        """The row with its bands and a faulty pattern."""
        legend = {letter: self.rewrite(text) for letter, text in row.legend.items()}
        return dataclasses.replace(row, legend=legend, allow_future=self is BREAKS["leak-future"])


def longer(kind: str, text: str) -> str:
    """Adds one to the number in `kind(n)`.

    Example:
        >>> longer("window", "window(8) | strided(8)")
        'window(9) | strided(8)'
    """
    return re.sub(rf"\b{kind}\((\d+)\)", lambda found: f"{kind}({int(found[1]) + 1})", text)


def without_sink(text: str) -> str:
    """Leaves a sink out of a union.

    Example:
        >>> without_sink("window(8) | sink(1)")
        'window(8)'
    """
    return re.sub(r"\s*\|\s*sink\(\d+\)", "", text)


BREAKS = {
    "window+1": Break(lambda text: longer("window", text), ("window-1", "window-2", "sink-5")),
    "drop-sink": Break(without_sink, ("sink-0",)),
    "leak-future": Break(lambda text: f"({text}) | ~causal()", ("sink-5", "strided-5", "full-5", "prefix-causal")),
    "stride+1": Break(lambda text: longer("strided", text), ("strided-5", "stride", "delay-strided")),
}
