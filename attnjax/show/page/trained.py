"""Heads of a small model that `python -m train check` leaves, on its own task: recall of pairs."""

import logging
import pathlib

import numpy as np

from attnjax import heads, models
from attnjax.show.page.published import attention
from attnjax.show.page.scene import Head, Scene, Sentence

log = logging.getLogger("attnjax")
LEFT = pathlib.Path("runs", "check", "models")  # where `train check` leaves them, from the folder that it ran in
ROW = "mqar-gqa"  # its local layer finds the token before, its global layer looks up
VOCAB, FIRST_VALUE = 32, 16  # of that task: 0 is a blank, then keys, then values
# Pairs, then each key again among blanks; the second binds the same keys to other values.
SEQUENCES = (
    ((1, 20), (2, 17), (3, 25), (4, 30)),
    ((4, 17), (3, 30), (2, 20), (1, 25)),
)
ASKED = (3, 1, 4, 2)


def scene(folder: pathlib.Path) -> Scene:
    """Four heads of one model, each found by a score, on two sequences of its own task.

    Raises:
        ValueError: if the model has no two layers of heads or another vocabulary than the task.
    """
    log.info("reading the model in %s", folder)
    model = models.load(folder)
    if model.config.vocab_size != VOCAB:
        raise ValueError(
            f"{folder} has a vocabulary of {model.config.vocab_size}; the figures read models of the row {ROW} "
            f"({VOCAB} tokens) that `python -m train check` leaves, GGUF files, and Hugging Face folders"
        )
    rows = np.array([[token for pair in pairs for token in pair] + [t for key in ASKED for t in (key, 0)][:-1]
                     for pairs in SEQUENCES])  # fmt: skip
    w_BLNTT = attention(model, rows.tolist())
    chosen = _choose(w_BLNTT, rows)
    sentences = tuple(
        Sentence(label, tuple(map(_word, row)), len(row) - 1)
        for label, row in zip(("Four pairs, then the keys", "The same keys, bound anew"), rows.tolist(), strict=True)
    )
    weights = tuple(np.stack([w[layer, head] for _, layer, head in chosen]) for w in w_BLNTT)
    named = tuple(Head(name, f"{layer}.{head}", about) for (name, about), layer, head in chosen)
    note = (
        f"A small model that `python -m train check` trained ({folder.name}): {model.config.num_layers} layers of "
        f"{model.config.num_heads} heads, on rows of pairs (a letter and its number) and then letters whose number it "
        "has to say. `attnjax figures --model FILE.gguf` draws a model that reads English."
    )
    return Scene(note, sentences, named, weights)


def _word(token: int) -> str:
    """Keys as letters, values as numbers, blanks as a dash."""
    return "–" if token == 0 else chr(ord("a") + token - 1) if token < FIRST_VALUE else str(token - FIRST_VALUE)


def _choose(w_BLNTT: np.ndarray, rows: np.ndarray) -> list[tuple[tuple[str, str], int, int]]:
    """((name, about), layer, head) of four different heads, the highest of each score in turn."""
    w_LNBTT = np.moveaxis(w_BLNTT, 0, 2)
    lookup = np.stack([heads.prefix_matching(w, row) for w, row in zip(w_BLNTT, rows, strict=True)]).mean(axis=0)
    previous = heads.previous_token(w_LNBTT).mean(axis=-1)
    scores = (
        ("Looks up", "A letter asked again looks at what followed it: its number (prefix matching {:.2f}).", lookup),
        ("Looks up too", "The next highest by prefix matching: {:.2f}.", lookup),
        ("Token before", "{:.2f} goes to the token before, so that a number learns whose it is.", previous),
        ("Spread out", "The head that spreads its attention most: {:.2f} nats of entropy.",
         heads.entropy(w_LNBTT).mean(axis=-1)),
    )  # fmt: skip
    chosen: list[tuple[tuple[str, str], int, int]] = []
    for name, about, score in scores:
        taken = {(layer, head) for _, layer, head in chosen}
        order = np.argsort(-score, axis=None, kind="stable")
        places = (tuple(map(int, divmod(int(i), score.shape[1]))) for i in order)
        layer, head = next(place for place in places if place not in taken)
        chosen.append(((name, about.format(score[layer, head])), layer, head))
    return chosen
