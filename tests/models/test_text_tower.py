"""Gemma 3 of 4B and more: a folder that also reads images loads as its text tower, whatever the tower is called."""

import json

import numpy as np
import pytest

from attnjax import models
from attnjax.models import published
from tests.models.published import GOLDEN, copied, weights_of, write_weights
from tests.models.saved import SHAPES, bits

HEAD = "lm_head.weight"
THEN = ("language_model.model.", "language_model.", "vision_tower.", "multi_modal_projector.")
SINCE = ("model.language_model.", "", "model.vision_tower.", "model.multi_modal_projector.")


@pytest.fixture(autouse=True)
def traced_once(monkeypatch):
    monkeypatch.setattr(published, "skeleton", SHAPES)


def tower(tmp_path, names=THEN, change=lambda weights: None, **beside):
    """The tiny Gemma 3 as the text tower of a model that reads images."""
    folder = copied("gemma3", tmp_path)
    text = json.loads((folder / "config.json").read_text())
    config = dict(model_type="gemma3", architectures=["Gemma3ForConditionalGeneration"], vision_config={"model_type": "siglip_vision_model"}, mm_tokens_per_image=256)
    (folder / "config.json").write_text(json.dumps(config | {"text_config": text} | beside))
    model, head, images, projector = names
    found = weights_of(folder / "model.safetensors")
    renamed = {(model + name.removeprefix("model.") if name.startswith("model.") else head + name): weight for name, weight in found.items()}
    renamed |= {f"{images}vision_model.embeddings.patch_embedding.weight": np.ones((4, 3, 2, 2)), f"{projector}mm_soft_emb_norm.weight": np.ones(4)}
    change(renamed)
    write_weights(folder / "model.safetensors", renamed)
    return folder


@pytest.mark.parametrize("names", [THEN, SINCE], ids=["then", "since"])
def test_it_is_the_model_of_text_alone(tmp_path, names):
    folder, alone = tower(tmp_path, names), GOLDEN / "gemma3"
    found, want = models.load(folder), models.load(alone)
    assert found.config == want.config and bits(found) == bits(want)
    layer = models.load_attention(folder, 5)
    np.testing.assert_array_equal(layer.query.kernel[...], want.block(5).attention.query.kernel[...])


@pytest.mark.parametrize("names, head", [(THEN, "language_model.lm_head.weight"), (SINCE, HEAD), (THEN, HEAD)], ids=["then", "since", "between"])
def test_a_tied_head_may_be_stored_too(tmp_path, names, head):
    def store(weights):
        weights[head] = weights[names[0] + "embed_tokens.weight"]

    assert bits(models.load(tower(tmp_path, names, store))) == bits(models.load(GOLDEN / "gemma3"))


def rename(weights, name, other):
    weights[other] = weights.pop(name)


@pytest.mark.parametrize(
    "match, change",
    [
        ("weight 'model.layers.3.mlp.up_proj.weight' is missing", lambda w: w.pop("language_model.model.layers.3.mlp.up_proj.weight")),
        ("weight 'audio_tower.x' is not part of this gemma3_text", lambda w: w.update({"audio_tower.x": np.ones(2)})),
        ("weight 'model.layers.8.mlp.up_proj.weight' is not part of this gemma3_text", lambda w: w.update({"language_model.model.layers.8.mlp.up_proj.weight": np.ones(2)})),
        (
            "weights 'language_model.model.norm.weight' and 'model.language_model.norm.weight' are the same one of the text tower",
            lambda w: w.update({"model.language_model.norm.weight": w["language_model.model.norm.weight"]}),
        ),
        ("weight 'vision_towers.x' is not part of", lambda w: w.update({"vision_towers.x": np.ones(2)})),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_is_wrong_with_the_text_tower_is_named(tmp_path, match, change):
    with pytest.raises(ValueError, match=match) as fault:
        models.load(tower(tmp_path, change=change))
    assert str(tmp_path) in str(fault.value)


def test_a_contradiction_beside_it_is_named(tmp_path):
    with pytest.raises(ValueError, match="gemma3: tie_word_embeddings=False, but tie_word_embeddings=True in text_config"):
        models.load(tower(tmp_path, tie_word_embeddings=False))


def test_images_in_a_shard_of_their_own(tmp_path):
    folder = tower(tmp_path)
    weights = weights_of(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    shards = {"a.safetensors": {}, "b.safetensors": {}}
    for name, weight in weights.items():
        shards["b.safetensors" if name.startswith("vision") else "a.safetensors"][name] = weight
    for file, part in shards.items():
        write_weights(folder / file, part)
    index = {name: file for file, part in shards.items() for name in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    assert bits(models.load(folder)) == bits(models.load(GOLDEN / "gemma3"))
