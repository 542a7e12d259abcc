"""The report names planted heads; its table, its arrays, its probes, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import attnjax as aj
from attnjax import heads, models
from attnjax.heads.probes import repeats
from tests.heads import planted

SMALL = models.Config(vocab_size=32, d_model=16, num_layers=2, num_heads=2)


@pytest.fixture(scope="module")
def found():
    return heads.report(planted.decoder(), draws=2)


@pytest.mark.cross
@pytest.mark.parametrize("scan", [True, False], ids=["scan", "unrolled"])
def test_planted_heads_get_their_names(found, scan):
    report = found if scan else heads.report(planted.decoder(scan=False), draws=2)
    assert report.names.tolist() == planted.NAMES
    for score, layer, head in (
        ("previous_token", 0, 0), ("duplicate_token", 0, 1), ("first_token", 0, 2), ("sink_rate", 0, 2),
        ("induction", 1, 0), ("prefix_matching", 1, 0), ("copying", 1, 0), ("previous_token", 2, 0),
    ):  # fmt: skip
        assert report[score][layer, head] == pytest.approx(1, abs=1e-5), score
    assert [str(head) for head in report.heads] == [
        "1.0 induction 1.00", "0.0 previous token 1.00", "2.0 previous token 1.00", "0.1 duplicate token 1.00",
        "0.2 resting 1.00",
    ]  # fmt: skip
    np.testing.assert_array_equal(np.argwhere(report["copying"] > -1), [[1, 0]])  # the others write nothing, or no token


def test_the_table_is_sorted_and_names_what_was_measured(found):
    lines = str(found).splitlines()
    assert lines[0] == (
        "4 layers of 3 heads; induction and duplicate on 2 probes of 105 tokens, prefix and copying on 2 of 101, the rest "
        "on the same"
    )
    assert lines[1].split()[:3] == ["head", "name", "score"] and "learned" not in lines[1]
    assert [line[:28].split() for line in lines[2:7]] == [
        ["1.0", "induction", "1.00"], ["0.0", "previous", "token", "1.00"], ["2.0", "previous", "token", "1.00"],
        ["0.1", "duplicate", "token", "1.00"], ["0.2", "resting", "1.00"],
    ]  # fmt: skip
    assert lines[7].strip() == "7 heads have no name: none of these scores is high" and len(lines) == 8
    assert len({len(line) for line in lines[1:7]}) == 1, "columns are not aligned"
    row = dict(zip(lines[1].split()[2:], lines[2].split()[2:], strict=True))
    assert row["induction"] == row["prefix"] == row["copying"] == "1.00" and row["previous"] == f"{found['previous_token'][1, 0]:.2f}"


def test_long_lists_are_cut_in_the_text_only():
    rest = np.linspace(0.5, 0.95, 20).reshape(4, 5)
    found = heads.Report({"induction": 0 * rest, "first_token": rest})
    assert len(found.heads) == 20 and found.heads[0] == (3, 4, "resting", 0.95)
    assert "and 12 more that are resting" in str(found) and "and 18 more" in found.table(most=2)
    assert "more that" not in found.table(most=None)
    assert [str(head) for head in found.top("first_token", 2)] == ["3.4 first_token 0.95", "3.3 first_token 0.93"]
    with pytest.raises(KeyError, match="no score 'inductoin'; there are induction, first_token"):
        found["inductoin"]


def test_a_name_is_the_highest_score_and_work_comes_before_rest():
    scores = {
        "induction": np.array([[0.5, 0.39, 0.1, 0.0]]),
        "previous_token": np.array([[0.6, 0.0, 0.0, 0.0]]),
        "first_token": np.array([[0.9, 0.5, 0.3, 0.3]]),
        "learned_sink": np.array([[0.0, 0.0, 0.3, 0.1]]),
    }
    found = heads.Report(scores)
    assert found.names.tolist() == [["previous token", "resting", "resting", ""]]
    assert found.heads[1] == (0, 2, "resting", 0.6), "what a learned sink takes is rest as well"


@pytest.mark.slow
def test_tokens_change_what_heads_do_on_text_and_nothing_else(found):
    text = jax.random.randint(jax.random.key(5), (3, 20), 0, planted.VOCAB)
    report = heads.report(planted.decoder(), text, draws=2)
    own = heads.measure(planted.decoder(), text)
    assert "the rest on 3 rows of 20 tokens of text" in str(report)
    for name in ("induction", "prefix_matching", "duplicate_token", "copying"):
        np.testing.assert_array_equal(report[name], found[name])
    for name in ("previous_token", "first_token", "sink_rate", "entropy", "mean_distance"):
        np.testing.assert_array_equal(report[name], own[name])
        assert (report[name] != found[name]).any(), name


@pytest.mark.slow
def test_the_key_draws_the_probes():
    model = models.Decoder(SMALL, rngs=nnx.Rngs(0))
    default, same, other = (heads.report(model, key=key, draws=1) for key in (None, jax.random.key(0), jax.random.key(1)))
    np.testing.assert_array_equal(default["induction"], same["induction"])
    assert (default["induction"] != other["induction"]).all()


@pytest.mark.parametrize("vocab, bos, copies, period, size", [(49152, 0, 2, None, 64), (49152, 0, 4, None, 25), (32, 16, 2, None, 25), (49152, 7000, 2, 40, 40)])
def test_probes_repeat_a_round_of_different_tokens(vocab, bos, copies, period, size):
    rows = np.asarray(repeats(jax.random.key(3), vocab, copies=copies, period=period, draws=5, bos=bos))
    assert rows.shape == (5, 1 + copies * size) and (rows[:, 0] == bos).all()
    rounds = rows[:, 1:].reshape(5, copies, size)
    assert (rounds == rounds[:, :1]).all()
    for tokens in rounds[:, 0]:
        assert len(set(tokens.tolist()) - {bos}) == size
        assert tokens.min() >= vocab // 10 and tokens.max() < vocab - vocab // 10
    assert len({tuple(tokens) for tokens in rounds[:, 0].tolist()}) == 5, "every draw has a round of its own"


@pytest.mark.cross
@pytest.mark.parametrize(
    "change, options, error, text",
    [
        ({"vocab_size": 8}, {}, ValueError, "vocab_size=8 has 7 tokens for the probes .* takes 8 different ones"),
        ({}, {"period": 40}, ValueError, "vocab_size=32 has 26 tokens for the probes .* takes 40 different ones"),
        ({}, {"period": 4}, ValueError, "period=4 is too small"),
        ({}, {"bos": 32}, ValueError, "bos=32 is not in the vocabulary of 32 tokens"),
        ({}, {"draws": 0}, ValueError, "draws=0 is too small"),
        ({}, {"draws": 2.0}, TypeError, "draws=2.0 is a float"),
        ({}, {"tokens": jnp.zeros((8,), int)}, ValueError, r"tokens\(8,\) must be \[B, T\] .* one row is tokens\[None\]"),
        ({}, {"tokens": jnp.zeros((2, 1), int)}, ValueError, r"tokens\(2, 1\) .* T >= 2"),
        ({}, {"tokens": jnp.zeros((2, 8))}, TypeError, "tokens are dtype float32"),
        ({}, {"tokens": [[1, 2]]}, TypeError, "tokens are a list"),
        ({}, {"tokens": jnp.full((1, 8), 32)}, ValueError, "token 32 is not in the vocabulary"),
    ],
)  # fmt: skip
def test_refused_with_the_numbers(change, options, error, text):
    import dataclasses

    model = models.Decoder(dataclasses.replace(SMALL, **change), rngs=nnx.Rngs(0))
    with pytest.raises(error, match=text):
        heads.report(model, **options)


def test_a_model_that_is_no_decoder():
    with pytest.raises(TypeError, match=r"model is a function, not a Decoder; .* heads.previous_token\(weights\)"):
        heads.report(lambda tokens: tokens)


def test_heads_come_with_the_package():
    assert aj.heads is heads


def test_counts_and_keys_are_checked(found):
    with pytest.raises(ValueError, match="n=-1 is too small"):
        found.top("induction", -1)
    with pytest.raises(ValueError, match="most=-1 is too small"):
        found.table(most=-1)
    with pytest.raises(TypeError, match="key=0 is no single JAX key"):
        heads.report(planted.decoder(), key=0)
