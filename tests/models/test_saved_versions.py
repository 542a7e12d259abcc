"""A folder that an earlier version wrote means what it meant then."""

import dataclasses
import pathlib
import shutil

import numpy as np
import pytest

from attnjax import models
from attnjax.models.saved_config import BEFORE, FIELDS, FORMAT_VERSION
from tests.models.saved import CONFIG, bits, decoder, edit_config, logits

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"


@pytest.mark.parametrize("version", range(1, FORMAT_VERSION))
def test_an_older_folder_loads_and_gives_the_numbers_that_it_gave(version, tmp_path):
    folder = GOLDEN / f"saved_v{version}"
    model = models.load(folder)
    golden = np.load(folder / "logits.npz")
    # The same program on the same weights; another compiler may round the sums otherwise, and a sum of large terms may be small.
    rounding = 4e-6 * np.abs(golden["logits"]).max()
    np.testing.assert_allclose(logits(model, golden["tokens"]), golden["logits"], rtol=0, atol=rounding)
    models.save(model, tmp_path)
    again = models.load(tmp_path)
    assert again.config == model.config and bits(again) == bits(model)
    assert (tmp_path / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_what_stood_for_a_new_field_is_what_it_does_by_default():
    assert set(BEFORE) == set(range(1, FORMAT_VERSION))
    for fields in BEFORE.values():
        defaults = {name: FIELDS[name].default for name in fields}
        assert fields == defaults


def test_a_norm_of_heads_keeps_the_eps_that_it_had(tmp_path):
    """The folder has norm_eps=0.01, which the norms of q and k of that version did not heed."""
    shutil.copytree(GOLDEN / "saved_v1", tmp_path / "model")
    golden = np.load(GOLDEN / "saved_v1" / "logits.npz")
    model = models.load(tmp_path / "model")
    assert (model.config.norm_eps, model.config.qk_norm_eps) == (0.01, 1e-6)
    models.save(model, tmp_path / "model")
    edit_config(tmp_path / "model", qk_norm_eps=0.01)
    other = logits(models.load(tmp_path / "model"), golden["tokens"])
    assert np.abs(other - golden["logits"]).max() > 1e-3


NEW = dict(
    qk_norm_eps=1e-3, scale=0.25, use_bias=True, out_bias=False, activation="gelu_tanh", mlp_bias=True,
    post_norms=True, embedding_scale=3.0, logits_soft_cap=5.0, precision="high",
)  # fmt: skip


def test_every_new_field_is_saved(tmp_path):
    assert set(NEW) == set().union(*BEFORE.values())
    config = dataclasses.replace(CONFIG, **NEW)
    model = decoder(config)
    models.save(model, tmp_path)
    loaded = models.load(tmp_path)
    assert loaded.config == config and bits(loaded) == bits(model)
