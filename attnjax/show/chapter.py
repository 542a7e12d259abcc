"""Four tokens and three matrices, small enough to check every number of one attention head by hand."""

import dataclasses

import numpy as np
from jaxtyping import Float64


def _frozen(*rows: tuple[float, ...]) -> np.ndarray:
    array = np.array(rows, np.float64)
    array.flags.writeable = False
    return array


@dataclasses.dataclass(frozen=True, eq=False)
class Chapter:
    """One head on one sentence, as read-only float64 arrays: `aj.trace` computes the rest.

    Example:
        >>> import attnjax as aj
        >>> from attnjax.show import CHAPTER as c
        >>> steps = aj.trace(c.x, c.wq, c.wk, c.wv, pattern=aj.Causal())
        >>> c.tokens[2], steps.weights[2].round(2).tolist()
        (' sat', [0.15, 0.7, 0.15, 0.0])
    """

    tokens: tuple[str, ...]
    x: Float64[np.ndarray, "T D"]
    wq: Float64[np.ndarray, "D H"]
    wk: Float64[np.ndarray, "D H"]
    wv: Float64[np.ndarray, "D h"]


# The matrices are chosen so that each word has an obvious place to look: "sat" looks at "cat" (who sat?) with
# weight 0.70, "down" at "sat" with 0.60.
CHAPTER = Chapter(
    tokens=("The", " cat", " sat", " down"),
    x=_frozen(
        (0.2, -0.4, 0.1, 0.9),
        (1.0, 0.3, -0.6, 0.2),
        (-0.3, 0.8, 0.5, -0.1),
        (0.4, 0.6, 0.9, -0.5),
    ),
    wq=_frozen(
        (0.6, 1.2, 0.1, 0.4),
        (0.6, -1.1, 1.2, 0.3),
        (0.8, 1.4, 0.0, 1.3),
        (-0.5, -0.6, 0.9, -0.5),
    ),
    wk=_frozen(
        (-0.5, -1.2, 0.8, -0.3),
        (0.4, 0.9, 0.9, 0.6),
        (-0.8, 0.1, -1.3, -1.0),
        (-0.5, -0.3, 0.1, 0.2),
    ),
    wv=_frozen(
        (1.0, 0.0, 0.5, 0.0),
        (0.0, 1.0, 0.0, -0.5),
        (0.5, 0.0, -1.0, 0.0),
        (0.0, 0.5, 0.0, 1.0),
    ),
)
