"""Bands: which measured values a row allows, and whether it got them."""

import dataclasses
import math

EVALUATED = 1024  # sequences that every accuracy is measured on


@dataclasses.dataclass(frozen=True)
class Band:
    """Every value under `labels` must lie in [low, high].

    Attributes:
        labels: names of measures, comma separated; `a..b` stands for all integers from a to b.
        low: the lowest value allowed.
        high: the highest value allowed.
    """

    labels: str
    low: float
    high: float

    def names(self) -> tuple[str, ...]:
        """The labels one by one.

        Example:
            >>> Band("-2..-1,8,16", 0, 1).names()
            ('-2', '-1', '8', '16')
        """
        names = []
        for item in (part.strip() for part in self.labels.split(",")):
            first, dots, last = item.partition("..")
            names += [str(n) for n in range(int(first), int(last) + 1)] if dots else [item]
        return tuple(names)

    def worst(self, values: dict[str, float]) -> tuple[str, float]:
        """The label and value nearest to leaving the band, or farthest outside it."""
        return min(((name, values[name]) for name in self.names()), key=lambda item: self._room(item[1]))

    def holds(self, values: dict[str, float], slack: float = 0.0) -> bool:
        """Whether all values lie inside, give or take `slack`. Labels without a value are passed over."""
        return all(self._room(values[name]) >= -slack for name in self.names() if name in values)

    def _room(self, value: float) -> float:
        # NaN is outside every band.
        return -math.inf if math.isnan(value) else min(value - self.low, self.high - value)


def reached(labels: str, low: float = 0.95) -> Band:
    """The band of what a pattern lets a model see."""
    return Band(labels, low, 1.0)


def unreached(labels: str, chance: float) -> Band:
    """The band of what it hides: chance and five standard errors on the evaluated sequences.

    Example:
        >>> round(unreached("8..63", 1 / 16).high, 4)
        0.1003
    """
    return Band(labels, 0.0, chance + 5 * math.sqrt(chance * (1 - chance) / EVALUATED))
