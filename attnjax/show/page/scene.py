"""What figures 5.1 and 5.4 draw: a few heads of one model on a few sentences."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from attnjax import heads


class Sentence(NamedTuple):
    """A sentence as tokens, and the one whose attention is shown first."""

    label: str
    tokens: tuple[str, ...]
    start: int


class Head(NamedTuple):
    """A head as the menu names it: `where` is layer.head, `about` says what it does, in a sentence."""

    name: str
    where: str
    about: str


@dataclasses.dataclass(frozen=True, eq=False)
class Scene:
    """Heads on sentences. `weights` holds [heads, T, T] for each sentence; `note` says whose they are."""

    note: str
    sentences: tuple[Sentence, ...]
    heads: tuple[Head, ...]
    weights: tuple[np.ndarray, ...]

    def plain(self) -> dict[str, Any]:
        """As lists and numbers, with each head's scores on the first sentence."""
        w_NTT = np.asarray(self.weights[0], np.float64)
        scores = [_scores(w_TT) for w_TT in w_NTT]
        return {
            "note": self.note,
            "sentences": [sentence._asdict() | {"tokens": list(sentence.tokens)} for sentence in self.sentences],
            "heads": [head._asdict() | {"scores": own} for head, own in zip(self.heads, scores, strict=True)],
            "weights": [np.asarray(w, np.float64).tolist() for w in self.weights],
        }


def _scores(w_TT: np.ndarray) -> list[dict[str, Any]]:
    """What the library measures on one head, each with the number that fills its bar."""
    T = len(w_TT)
    found = (
        ("on the word before", heads.previous_token(w_TT), 1.0),
        ("on the first word", heads.first_token(w_TT), 1.0),
        ("mean distance", heads.mean_distance(w_TT), T / 2),
        ("entropy", heads.entropy(w_TT), np.log(T)),
    )
    return [{"name": name, "value": float(value), "most": float(most)} for name, value, most in found]
