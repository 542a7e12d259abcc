"""Heads of a published model on the chapter's two sentences, each found by what it does there or on probes."""

import logging
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

from attnjax import heads, models
from attnjax.show.page.scene import Head, Scene, Sentence

log = logging.getLogger("attnjax")
SENTENCE = "The animal didn't cross the street because it was too {}."
LAST = "tired", "wide"


def scene(path: pathlib.Path) -> Scene:
    """The heads of one model, on both sentences.

    Raises:
        ImportError: if a package that reads the file is missing.
        ValueError: if the file cannot be read, or its tokenizer does not give both sentences the same tokens but one.
    """
    log.info("reading the tokenizer of %s", path.name)
    tokenizer = models.tokenizer(path)
    rows = [tokenizer.encode(SENTENCE.format(word)).ids for word in LAST]
    tokens = [tuple(tokenizer.decode([i]) for i in row) for row in rows]
    at = _places(path, tokens)
    log.info("reading the weights of %s", path.name)
    model = models.load(path)
    log.info("running its %d layers on both sentences", model.config.num_layers)
    w_BLNTT = attention(model, rows)
    chosen = _coreference(w_BLNTT, at) + _reported(heads.report(model, jnp.asarray(rows)))
    layers, own = w_BLNTT.shape[1:3]
    return Scene(
        f"{path.name}: {layers} layers of {own} heads, run by attnjax on both sentences. Each head was found by its "
        f"score among all {layers * own}; most heads do things that are not easy to name.",
        tuple(Sentence(f"… {word}", row, at["last"]) for word, row in zip(LAST, tokens, strict=True)),
        tuple(Head(name, f"{layer}.{head}", about) for name, about, layer, head in chosen),
        tuple(np.stack([w[layer, head] for *_, layer, head in chosen]) for w in w_BLNTT),
    )


def attention(model: models.Decoder, rows: list[list[int]]) -> np.ndarray:
    """Every head's weights on rows of tokens, [B, layers, heads, T, T]."""
    found = jax.jit(lambda model, tokens: model(tokens, return_weights=True).weights)(model, jnp.asarray(rows))
    return np.stack([np.asarray(layer, np.float64) for layer in found], axis=1)


def _places(path: pathlib.Path, tokens: list[tuple[str, ...]]) -> dict[str, int]:
    """Where the words stand that the heads are asked about, the same in both sentences."""
    tired, wide = ([token.strip() for token in row] for row in tokens)
    asked = {"animal": "animal", "street": "street", "it": "it", "last": LAST[0]}
    whole = all(word in tired for word in asked.values()) and LAST[1] in wide
    if not whole or [word if word != LAST[1] else LAST[0] for word in wide] != tired:
        raise ValueError(
            f"{path}: its tokenizer cuts the sentence into {' | '.join(tired)}; the figures need animal, street, it, "
            "tired and wide as whole tokens"
        )
    return {name: tired.index(word) for name, word in asked.items()}


def _coreference(w_BLNTT: np.ndarray, at: dict[str, int]) -> list[tuple[str, str, int, int]]:
    """(name, about, layer, head) of the head that the last word swings most, and of the one that knows “it”."""
    tired, wide = w_BLNTT
    last, animal, street, it = (at[name] for name in ("last", "animal", "street", "it"))
    swing = (wide - tired)[..., last, street] + (tired - wide)[..., last, animal]
    layer, head = _highest(swing)
    about = (
        "Of all heads the last word swings this one most: "
        f"“wide” gives {wide[layer, head, last, street]:.2f} to “street”, "
        f"“tired” {tired[layer, head, last, animal]:.2f} to “animal”."
    )
    found = [("Tired or wide?", about, layer, head)]
    layer, head = _highest(np.where(swing == swing.max(), -1.0, tired[..., it, animal]))
    about = (
        f"“it” gives {tired[layer, head, it, animal]:.2f} to “animal” in both sentences: it cannot see the last word, "
        "which would tell."
    )
    return [*found, ("Who is “it”?", about, layer, head)]


def _highest(scores: np.ndarray) -> tuple[int, int]:
    layer, head = divmod(int(np.argmax(scores)), scores.shape[1])
    return layer, head


def _reported(report: heads.Report) -> list[tuple[str, str, int, int]]:
    """The highest previous-token, first-token and induction heads of the report."""
    asked = (
        ("Previous word", "previous_token", "On average {:.2f} of each word’s attention goes to the word before it."),
        ("Resting", "first_token", "With nothing to find, attention is parked on the first word: {:.2f} on average."),
        ("Induction", "induction",
         "On text that repeats, {:.2f} goes to what followed the same word last time. Nothing repeats here: it rests."),
    )  # fmt: skip
    found = []
    for name, score, about in asked:
        best = report.top(score, 1)[0]
        found.append((name, about.format(best.score), best.layer, best.head))
    return found
