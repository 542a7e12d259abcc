"""The figures' claims about a real model: SmolLM2-135M on both sentences, against stored attention of all its heads."""

import pathlib

import numpy as np
import pytest

from attnjax import models
from attnjax.show.page import published

ROOT = pathlib.Path(__file__).parents[2]
FILE = ROOT / "build" / "smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
WITHIN = 1e-3

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def golden():
    with np.load(ROOT / "tests" / "golden" / "smollm2_coreference.npz") as file:
        return {name: file[name] for name in file}


@pytest.fixture(scope="module")
def model():
    assert FILE.exists(), "make smollm2 fetches the model"
    return models.load(FILE)


def test_the_attention_of_all_heads_is_the_stored_one(golden, model):
    tokenizer = models.tokenizer(FILE)
    rows = [tokenizer.encode(published.SENTENCE.format(word)).ids for word in published.LAST]
    for word, row, found in zip(published.LAST, rows, published.attention(model, rows), strict=True):
        assert row == golden[f"{word}_token_ids"].tolist()
        assert found.shape == (30, 9, 13, 13)
        np.testing.assert_allclose(found, golden[f"{word}_attention"], atol=WITHIN)


def test_the_page_finds_the_heads_that_tell_tired_from_wide(golden, model, monkeypatch):
    monkeypatch.setattr(models, "load", lambda path: model)
    scene = published.scene(FILE)
    assert [(head.name, head.where) for head in scene.heads[:3]] == [
        ("Tired or wide?", "4.2"), ("Who is “it”?", "13.8"), ("Previous word", "16.0")]  # fmt: skip
    assert [head.name for head in scene.heads[3:]] == ["Resting", "Induction"] and scene.heads[4].where == "18.6"
    assert "270" in scene.note and FILE.name in scene.note
    for sentence, weights, word in zip(scene.sentences, scene.weights, published.LAST, strict=True):
        assert sentence.tokens == tuple(golden[f"{word}_tokens"]) and sentence.tokens[sentence.start] == f" {word}"
        for head, own in zip(scene.heads, weights, strict=True):
            layer, number = map(int, head.where.split("."))
            np.testing.assert_allclose(own, golden[f"{word}_attention"][layer, number], atol=WITHIN)
    tired, wide = scene.weights
    tokens = scene.sentences[0].tokens
    last, animal, street, it = (tokens.index(f" {word}") for word in ("tired", "animal", "street", "it"))
    assert abs(wide[0, last, street] - 0.46) < 0.01 and abs(tired[0, last, animal] - 0.15) < 0.01
    assert abs(tired[1, it, animal] - 0.75) < 0.01 and abs(wide[1, it, animal] - tired[1, it, animal]) < 1e-6
    assert "0.46 to “street”" in scene.heads[0].about and "0.15 to “animal”" in scene.heads[0].about
