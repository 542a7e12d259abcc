"""The heads of a real model: SmolLM2-135M gives the scores that an independent implementation gave."""

import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

from attnjax import heads, models

ROOT = pathlib.Path(__file__).parents[2]
FILE = ROOT / "build/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"  # `make smollm2` puts it there
GOLDEN = np.load(ROOT / "tests/golden/smollm2_golden.npz")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model():
    return models.load(FILE)


def test_all_heads_have_their_golden_scores(model):
    found = heads.measure(model, jnp.asarray(GOLDEN["repeat_token_ids"])[None], period=64)
    for golden, name in (
        ("head_induction", "induction"), ("head_duplicate", "duplicate_token"), ("head_previous", "previous_token"),
        ("head_first", "first_token"),
    ):  # fmt: skip
        assert GOLDEN[golden].shape == found[name].shape == (30, 9)
        np.testing.assert_allclose(found[name], GOLDEN[golden], rtol=0, atol=1e-3, err_msg=name)
    assert found["induction"][18, 6] == pytest.approx(0.950, abs=1e-3)
    np.testing.assert_allclose(found["prefix_matching"], found["induction"], atol=1e-6)  # the round's tokens differ


def test_the_report_finds_the_known_heads(model):
    report = heads.report(model, jnp.asarray(GOLDEN["token_ids"])[None, :256])
    assert str(report.heads[0]).startswith("18.6 induction 0.")
    assert report.names[16, 0] == report.names[11, 1] == "previous token"
    assert report.names[14, 3] == "duplicate token"
    assert {(h.layer, h.head) for h in report.top("induction", 4)} >= {(18, 6), (17, 3), (17, 5)}
    resting = (report["first_token"] > 0.3).mean(axis=1)
    assert resting[:2].max() < 0.3 < 0.9 < resting[18:].max(), "heads rest, but not in the bottom two layers"
