"""Four heads set by hand, for when there is no model: the chapter's example with its two numbers, and a few more."""

import numpy as np

from attnjax.patterns import Causal
from attnjax.reference import trace
from attnjax.show.page.scene import Head, Scene, Sentence

SENTENCE = "The animal didn't cross the street because it was too {}."
NOTE = (
    "No model was at hand, so these four heads are set by hand: each word carries a few plain features (a living "
    "thing, a place, a verb, its position), each head compares two of them, and `aj.trace` turns that into weights. "
    "`make learn` leaves a small trained model for this figure; `attnjax figures --model FILE.gguf` draws a real one."
)
HEADS = (
    Head("Who is “it”?", "",
         "The last word looks for what can be tired, or wide. “it” cannot see that word yet, so it hedges."),
    Head("Previous word", "", "Each word looks at the one right before it."),
    Head("Subject finder", "", "Verbs look for who does it; other words rest."),
    Head("Resting", "", "With nothing to find, attention is parked on the first word."),
)  # fmt: skip
ASKS_NOTHING = 3.0  # the pull of the first word on words that ask for nothing
LIVING, PLACE, WANTS_LIVING, WANTS_PLACE, SUBJECT, VERB, OTHER, FIRST = range(8)
FEATURES = {
    "animal": {LIVING: 1.5, SUBJECT: 1.5},
    "street": {PLACE: 1.5},
    "it": {WANTS_LIVING: 0.8, WANTS_PLACE: 0.8, SUBJECT: 0.9},
    "tired": {WANTS_LIVING: 1.0},
    "wide": {WANTS_PLACE: 1.0},
    "didn't": {VERB: 1.0},
    "cross": {VERB: 1.0},
    "was": {VERB: 1.0},
}


def scene() -> Scene:
    """The two sentences of the chapter, under the four heads."""
    sentences, weights = [], []
    for word in ("tired", "wide"):
        words: list[str] = [*SENTENCE.format(word).rstrip(".").split()]
        tokens = tuple(words[:1] + [" " + other for other in words[1:]])
        sentences.append(Sentence(f"… {word}", tokens, len(tokens) - 1))
        weights.append(_weights(words))
    return Scene(NOTE, tuple(sentences), HEADS, tuple(weights))


def _weights(words: list[str]) -> np.ndarray:
    """[heads, T, T]."""
    T = len(words)
    x_TD = np.zeros((T, FIRST + 1 + T))
    for i, word in enumerate(words):
        for feature, size in FEATURES.get(word, {}).items():
            x_TD[i, feature] = size
        x_TD[i, OTHER] = 0.0 if {WANTS_LIVING, WANTS_PLACE} & FEATURES.get(word, {}).keys() else 1.0
        x_TD[i, FIRST] = float(i == 0)
        x_TD[i, FIRST + 1 + i] = 1.0
    pairs = (
        [(WANTS_LIVING, LIVING, 3.0), (WANTS_PLACE, PLACE, 3.0), (OTHER, FIRST, ASKS_NOTHING)],
        [(FIRST + 1 + i, FIRST + i, 5.0) for i in range(1, T)],
        [(VERB, SUBJECT, 3.0)] + [(FIRST + 1 + i, FIRST, 3.0) for i in range(T) if not x_TD[i, VERB]],
        [(FIRST + 1 + i, FIRST, 3.5) for i in range(T)],
    )
    found = []
    for head in pairs:
        # Column n of wq and wk picks the n-th pair of features, so that q . k adds up their products.
        wq, wk = np.zeros((2, x_TD.shape[1], len(head)))
        for n, (asked, offered, size) in enumerate(head):
            wq[asked, n], wk[offered, n] = size, 1.0
        found.append(trace(x_TD, wq, wk, wk, pattern=Causal(), scale=1.0).weights)
    return np.stack(found)
