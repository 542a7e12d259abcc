import collections
import math

import numpy as np
import pytest

from train import baselines, corpus


def test_the_last_tenth_judges_in_one_piece():
    text = bytes(range(256)) * 4
    parts = corpus.split(text)
    assert parts.train.tobytes() + parts.validation.tobytes() == text
    assert len(parts.validation) == len(text) // 10


def test_the_default_text_is_pythons_help():
    parts = corpus.default()
    assert len(parts.train) > 300_000 and len(parts.validation) == (len(parts.train) + len(parts.validation)) // 10
    assert b'The "import" statement' in parts.train.tobytes() + parts.validation.tobytes()


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(ValueError, match="nowhere.txt.*leave it out for the default"):
        corpus.read(str(tmp_path / "nowhere.txt"))
    (tmp_path / "latin.txt").write_bytes(b"x" * 200 + "é".encode("latin-1") + b"x")
    with pytest.raises(ValueError, match=r"not UTF-8 \(byte 200\)"):
        corpus.read(str(tmp_path / "latin.txt"))
    (tmp_path / "short.txt").write_text("x")
    with pytest.raises(ValueError, match="has 1 bytes; at least 100"):
        corpus.read(str(tmp_path / "short.txt"))


def by_hand(parts, order):
    """The interpolated n-gram model with dictionaries, byte by byte."""
    train, judged = parts.train.tobytes(), parts.validation.tobytes()
    follow = collections.defaultdict(collections.Counter)
    for n in range(order):
        for i in range(n, len(train)):
            follow[train[i - n : i]][train[i]] += 1

    def p(context, byte):
        lower = p(context[1:], byte) if context else 1 / 256
        seen = follow.get(context)
        return lower if not seen else (seen[byte] + len(seen) * lower) / (seen.total() + len(seen))

    losses = [-math.log(p(judged[i - order + 1 : i], judged[i])) for i in range(2, len(judged))]
    return sum(losses) / len(losses)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_byte_counts_equal_the_model_by_hand(order):
    whole = np.concatenate(corpus.default())[:6000]
    parts = corpus.split(whole.tobytes())
    assert baselines.byte_counts(parts, order) == pytest.approx(by_hand(parts, order), rel=1e-12)


def test_longer_contexts_know_more_and_have_a_limit():
    losses = [baselines.byte_counts(corpus.default(), order) for order in (1, 2, 3)]
    assert losses[0] > losses[1] > losses[2] > 1
    with pytest.raises(ValueError, match="order=4 is not one of 1, 2, 3"):
        baselines.byte_counts(corpus.default(), 4)
