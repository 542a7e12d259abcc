"""Every task against its rule, token by token in plain Python."""

import functools

import jax
import numpy as np
import pytest

from train import tasks
from train.tasks.base import tally
from train.tasks.lookup import FAR, NEAR

SIZE = 16


@functools.cache
def draw(task):
    return jax.jit(functools.partial(task.batch, size=SIZE))


def drawn(task, seed=0):
    batch = draw(task)(jax.random.key(seed))
    batch = type(batch)(*(np.asarray(x) for x in batch))
    assert all(x.shape == (SIZE, task.length) for x in batch)
    assert batch.tokens.min() >= 0 and batch.tokens.max() < task.vocab
    assert batch.targets.min() >= 0 and batch.targets.max() < task.vocab
    # What is scored is trained on, and nothing without a target is.
    assert (batch.weights[batch.group >= 0] == 1).all()
    return batch


TASKS = [tasks.Reach(), tasks.Reach(at=5), tasks.Reach(at=7, ahead=True), tasks.Delay(), tasks.Recall(),
         tasks.Mqar(), tasks.Backcopy(), tasks.Repeat(), tasks.SelectiveCopy(), tasks.FlipFlop(), tasks.Text()]


@pytest.mark.cross
@pytest.mark.parametrize("task", TASKS, ids=repr)
def test_batches_are_a_function_of_the_key(task):
    a, b, c = drawn(task), drawn(task), drawn(task, seed=1)
    assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    assert not np.array_equal(a.tokens, c.tokens)


@pytest.mark.parametrize("task", TASKS, ids=repr)
def test_groups_are_labels(task):
    assert set(np.unique(drawn(task).group)) <= set(range(-1, len(task.labels)))


@pytest.mark.parametrize(("at", "ahead"), [(0, False), (5, False), (7, True)])
def test_reach(at, ahead):
    task = tasks.Reach(length=16, at=at, ahead=ahead)
    batch = drawn(task)
    assert (batch.tokens[:, at] >= 16).all() and (np.delete(batch.tokens, at, axis=1) < 16).all()
    assert (batch.targets == batch.tokens[:, [at]]).all()
    asked = [i < at if ahead else i != at for i in range(16)]
    assert (batch.weights == np.array(asked, float)).all()
    assert [task.labels[g] for g in batch.group[0] if g >= 0] == [str(i - at) for i in range(16) if asked[i]]


def test_delay():
    batch = drawn(tasks.Delay(length=12, delay=5))
    assert (batch.targets[:, 5:] == batch.tokens[:, :-5]).all()
    assert (batch.weights == (np.arange(12) >= 5)).all()


def test_recall():
    batch = drawn(tasks.Recall())
    found = {"near": 0, "far": 0, "between": 0}
    for tokens, targets, group in zip(batch.tokens, batch.targets, batch.group, strict=True):
        last = {}
        for i in range(0, 64, 2):
            key = tokens[i]
            if key in last:
                ago = i - last[key]
                label = "near" if ago <= NEAR else "between" if ago <= FAR else "far"
                assert tasks.Recall().labels[group[i]] == label
                assert targets[i] == tokens[last[key] + 1] == tokens[i + 1]
                found[label] += 1
            else:
                assert group[i] == -1
            assert group[i + 1] == -1
            last[key] = i
    assert min(found.values()) > 20


def test_mqar():
    batch = drawn(tasks.Mqar())
    for tokens, targets, weights in zip(batch.tokens, batch.targets, batch.weights, strict=True):
        pairs = dict(zip(tokens[:8:2], tokens[1:8:2], strict=True))
        asked = np.flatnonzero(weights)
        assert len(pairs) == 4 and all(1 <= key < 16 <= value for key, value in pairs.items())
        assert sorted(tokens[asked]) == sorted(pairs) and (asked >= 8).all() and (asked % 2 == 0).all()
        assert [pairs[key] for key in tokens[asked]] == list(targets[asked])
        assert (np.delete(tokens[8:], asked - 8) == 0).all()


def test_backcopy():
    batch = drawn(tasks.Backcopy())
    assert (batch.tokens[:, 0] == 0).all() and (batch.tokens[:, 1:] != 0).all()
    assert (batch.targets[:, :-1] == batch.tokens[:, 1:]).all()
    trigger = batch.tokens >= 32 - 8
    assert trigger.sum() > 50 and not trigger[:, :2].any()
    assert (batch.group == np.where(trigger, 0, 1)).all()
    rows, at = np.nonzero(trigger)
    assert (batch.targets[rows, at] == batch.tokens[rows, at - 1]).all()


def test_repeat():
    batch = drawn(tasks.Repeat())
    first = batch.weights.argmax(axis=1)
    assert len(set(first)) > 3 and first.min() >= 12 and first.max() <= 24
    for tokens, targets, weights, period in zip(batch.tokens, batch.targets, batch.weights, first, strict=True):
        assert weights[period:].all() and (targets[period:] == tokens[1 : 64 - period + 1]).all()


def test_selective_copy():
    batch = drawn(tasks.SelectiveCopy())
    for tokens, targets in zip(batch.tokens, batch.targets, strict=True):
        assert list(tokens[tokens > 1]) == list(targets[-4:]) and (tokens[-4:] == 1).all()


def test_flipflop():
    batch, reads = drawn(tasks.FlipFlop()), 0
    for tokens, targets, group in zip(batch.tokens, batch.targets, batch.group, strict=True):
        assert tokens[0] == 1
        for i in range(0, 64, 2):
            if tokens[i] == 1:
                written, at = tokens[i + 1], i + 1
            assert (group[i] >= 0) == (tokens[i] == 0)
            if tokens[i] == 0:
                assert targets[i] == tokens[i + 1] == written
                assert group[i] == (0 if i - at <= 8 else 1 if i - at <= 14 else 2)
                reads, at = reads + 1, i + 1
    assert reads > 20


def test_text_reads_on_and_stays_in_its_part():
    from train import corpus

    batch, text = drawn(tasks.Text()), corpus.default().train.tobytes()
    assert (batch.targets[:, :-1] == batch.tokens[:, 1:]).all()
    assert all(row.astype(np.uint8).tobytes() in text for row in batch.tokens)
    judged = tasks.Text().evaluation(jax.random.key(0))
    flat = np.asarray(judged.tokens).reshape(-1).astype(np.uint8)
    assert np.array_equal(flat, corpus.default().validation[: len(flat)])
    assert len(corpus.default().validation) - len(flat) <= 64 * 64


def test_evaluation_draws_1024_sequences():
    batch = tasks.Reach(length=8).evaluation(jax.random.key(0))
    assert batch.tokens.shape == (8, 128, 8)
    assert len(np.unique(np.asarray(batch.tokens).reshape(1024, 8), axis=0)) > 1000


def test_tally_sums_by_label():
    got = tally(np.array([[1.0, 0.5, 0.25]], np.float32), np.array([[0, -1, 0]]), 2)
    assert np.array_equal(got, [[1.25, 0.0], [2.0, 0.0]])


@pytest.mark.slow
def test_backcopy_measures_the_head_that_rests_most():
    task = tasks.Backcopy()
    batch = task.batch(jax.random.key(0), SIZE)
    trigger = np.asarray(batch.tokens) >= 32 - 8
    weights = np.zeros((SIZE, 2, 64, 64), np.float32)
    weights[:, 0, :, 0] = np.where(trigger, 0.875, 0.5)  # rests less where it has nothing to do
    weights[:, 1, :, 0] = np.where(trigger, 0.25, 0.75)

    def model(tokens, return_weights):
        assert return_weights
        return jax.nn.one_hot(batch.targets, 32), (weights,)

    total, count = np.asarray(task.measure(model, batch))
    assert np.allclose(total / count, [1.0, 1.0, 0.75, 0.25])
    assert count[2] + count[3] == SIZE * (64 - 8)
