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
KEYS, DRAWS = 6, 1000
DRAW = 231  # the one that is shown: the larger d, the more one key has, and from d = 64 on nearly everything

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
    """Figure 5.3: the same vectors at every size, their first d numbers; one draw of many, and all their averages."""
    random = np.random.default_rng(0)
    q_BTNH = jnp.asarray(random.standard_normal((DRAWS, 1, 1, max(SIZES)), np.float32))
    k_BSKH = jnp.asarray(random.standard_normal((DRAWS, KEYS, 1, max(SIZES)), np.float32))
    draws, averages = [], []
    for d in SIZES:
        first = (jnp.arange(max(SIZES)) < d).astype(jnp.float32)  # zeros beyond d: one shape, one compiled program
        raw_BNTS = scores(q_BTNH * first[None, None, None], k_BSKH, scale=1.0)
        both = {"raw": _softmaxed(raw_BNTS), "scaled": _softmaxed(raw_BNTS * d**-0.5)}
        draws.append({side: _shown(found) for side, found in both.items()})
        averages.append({side: _averages(found) for side, found in both.items()})
    return {"sizes": list(SIZES), "draws": draws, "averages": averages}


def _softmaxed(s_BNTS: jax.Array) -> heads.Softmaxed:
    w_BNTS = weights(s_BNTS, jnp.ones((1, KEYS), bool))
    return heads.Softmaxed(*(x[:, 0, 0] for x in (s_BNTS, w_BNTS, w_BNTS * (1 - w_BNTS))))


def _shown(found: heads.Softmaxed) -> dict[str, list[float]]:
    """The draw whose bars are shown."""
    return {name: np.asarray(x[DRAW], np.float64).tolist() for name, x in found._asdict().items()}


def _averages(found: heads.Softmaxed) -> dict[str, float]:
    return {"spread": found.spread, "largest": found.largest, "gradient": found.gradient}


def computed() -> dict[str, Any]:
    """Figure 5.5: the patterns to choose from; their pictures and counts follow in the page."""
    named = [{"name": name, "text": text, "about": about} for name, text, about in PATTERNS]
    return {"patterns": named, "start": 2, "length": 16, "window": 4, "long": 128 * 1024, "longWindow": 4096}
