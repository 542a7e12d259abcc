"""The numbers of the figures that need no model: 5.2, 5.3 and 5.5."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnjax import heads
from attnjax.blend import weights
from attnjax.patterns import Causal
from attnjax.reference import trace
from attnjax.scores import scores
from attnjax.show.chapter import CHAPTER

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
KEYS = 6
# The draw whose bars are shown: undivided it saturates as d grows, one key with nearly everything from d = 64 on.
DRAW = 42

# {w} is the window, which the reader slides.
PATTERNS = (
    (
        "Full causal", "causal()",
        "Every token looks at itself and at all before it: the work grows with the square of the length.",
    ),
    (
        "Sliding window", "window({w})",
        "Only the last w tokens, itself counted. What lies further back is handed on, w − 1 tokens a layer.",
    ),
    (
        "Sink + window", "window({w}) | sink(1)",
        "A window plus the very first token. Keeping that “attention sink” is what lets a windowed model stay stable "
        "on endless streams.",
    ),
    (
        "Strided sparse", "window({w}) | strided({w})",
        "A window plus every w-th token before it: no token is more than two hops away.",
    ),
)  # fmt: skip


def steps() -> dict[str, Any]:
    """Figure 5.2: the chapter's four tokens and the twelve steps of `aj.trace`."""
    c = CHAPTER
    found = trace(c.x, c.wq, c.wk, c.wv, pattern=Causal())
    return {"tokens": list(c.tokens), "trace": {name: plain(array) for name, array in found._asdict().items()}}


def plain(rows: np.ndarray) -> list[list[float | None]]:
    """Rows as lists; JSON knows no infinity, so None stands for -inf."""
    return [[None if number == -np.inf else number for number in row] for row in rows.tolist()]


def saturation() -> dict[str, Any]:
    """Figure 5.3: one draw at every size, its vectors growing, and `heads.saturation` over many draws."""
    q, *k = jax.random.normal(jax.random.key(DRAW), (1 + KEYS, max(SIZES)), jnp.float32)
    draws, averages = [], []
    for d in SIZES:
        q_THN, k_SHN = q[None, None, :d], jnp.stack(k)[:, None, :d]
        raw = scores(q_THN, k_SHN, scale=1.0)[0, 0]
        draws.append({"raw": _softmaxed(raw), "scaled": _softmaxed(scores(q_THN, k_SHN)[0, 0])})
        many = heads.saturation(d, keys=KEYS)
        averages.append({"raw": _averages(many.raw), "scaled": _averages(many.scaled)})
    return {"sizes": list(SIZES), "draws": draws, "averages": averages}


def _softmaxed(s: jax.Array) -> dict[str, list[float]]:
    """Scores of one query, their weights, and d weight / d score of each."""
    w = weights(s[None, None], jnp.ones((1, KEYS), bool))[0, 0]
    found = {"scores": s, "weights": w, "gradients": w * (1 - w)}
    return {name: np.asarray(array, np.float64).tolist() for name, array in found.items()}


def _averages(many: heads.Softmaxed) -> dict[str, float]:
    return {"spread": many.spread, "largest": many.largest, "gradient": many.gradient}


def computed() -> dict[str, Any]:
    """Figure 5.5: the patterns to choose from; their pictures and counts follow in the page."""
    named = [{"name": name, "text": text, "about": about} for name, text, about in PATTERNS]
    return {"patterns": named, "start": 2, "length": 16, "window": 4, "long": 128 * 1024, "longWindow": 4096}
