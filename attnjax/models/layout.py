"""Layouts: one letter per layer, and what each letter stands for.

`layout = "LLLLLG"` with `legend = {"L": "window(512) | sink(4)", "G": "causal()"}` gives layer i the letter
`layout[i % len(layout)]`. One pass through the layout is a period; whole periods have the same structure,
which is what lets them be stacked and scanned.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from attnjax.models.messages import cut, shown
from attnjax.patterns import Pattern, PerHead, parse
from attnjax.rope_scaling import read_scaling


class Letters(Mapping[str, Any]):
    """A mapping from letters that never changes and can be hashed, so that a config can hold it."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, Any]):
        for letter in items:
            if not isinstance(letter, str) or len(letter) != 1:
                raise ValueError(f"{shown(letter)} is not a letter: a key stands for one character of the layout")
        self._items = dict(sorted(items.items()))

    def __getitem__(self, letter: str) -> Any:
        return self._items[letter]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and dict(self) == dict(other)

    def __hash__(self) -> int:
        return hash(tuple(self._items.items()))

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{letter!r}: {str(value)!r}" for letter, value in self._items.items()) + "}"


def read_legend(legend: Any) -> Letters:
    """Letters to patterns; a pattern may be given as its text."""
    if not isinstance(legend, Mapping) or not legend:
        raise TypeError(f"legend={shown(legend)} must map letters to patterns, e.g. {{'G': 'causal()'}}")
    patterns = {}
    for letter, pattern in legend.items():
        if isinstance(pattern, str):
            try:
                pattern = parse(pattern)
            except ValueError as fault:
                raise ValueError(f"legend[{shown(letter)}]: {cut(fault)}") from None
        if not isinstance(pattern, (Pattern, PerHead)):
            raise TypeError(f"legend[{shown(letter)}]={shown(pattern)} is not a pattern; give one or its text")
        patterns[letter] = pattern
    return Letters(patterns)


def read_scalings(scaling: Any, legend: Mapping[str, Any]) -> Any:
    """One rope scaling for all letters, or, from a mapping whose keys are letters, `Letters` of them."""
    if not isinstance(scaling, Mapping) or any(len(str(key)) != 1 for key in scaling) or not scaling:
        return read_scaling(scaling)
    check_letters(scaling, legend, "rope_scaling")
    return Letters({letter: read_scaling(rule) for letter, rule in scaling.items()})


def check_letters(letters: Any, known: Mapping[str, Any], what: str) -> None:
    """Raises an error that names the first letter that is not `known`, and the nearest one that is."""
    for letter in letters:
        if letter not in known:
            names, near = cut(", ".join(map(repr, known)), 100), nearest(letter, known)
            raise ValueError(f"{what} letter {shown(letter)} is not in the legend {names}; did you mean {near!r}?")


def nearest(letter: str, known: Mapping[str, Any]) -> str:
    """The known letter that differs in case only, else the closest one in the alphabet."""
    return min(known, key=lambda k: (k.lower() != letter.lower(), abs(ord(k) - ord(letter[0]))))


def layer_letters(layout: str, num_layers: int) -> str:
    """The letter of every layer: the layout repeated, and cut at the last layer."""
    return (layout * -(-num_layers // len(layout)))[:num_layers]
