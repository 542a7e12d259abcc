"""The scores of one head on one sequence, query by query and key by key in float64; imports nothing of the package."""

import math

import numpy as np


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def previous_token(w):
    return mean(w[i, i - 1] for i in range(1, len(w)))


def first_token(w):
    return mean(w[i, 0] for i in range(1, len(w)))


def above(w, threshold=0.3):
    return mean(w[i, 0] for i in range(len(w))) > threshold


def induction(w, period):
    return mean(w[i, i - period + 1] for i in range(len(w) - period, len(w)))


def duplicate_token(w, tokens):
    found = []
    for i in range(len(w)):
        earlier = [j for j in range(i) if tokens[j] == tokens[i]]
        if earlier:
            found.append(sum(w[i, j] for j in earlier))
    return mean(found)


def prefix_matching(w, tokens):
    found = []
    for i in range(len(w)):
        after = [j + 1 for j in range(i) if tokens[j] == tokens[i]]
        if after:
            found.append(sum(w[i, j] for j in after))
    return mean(found)


def copying(logits, tokens, rows=None):
    """`logits` [S, V] of the head alone, where it looks at token j alone."""
    found = []
    for j in range(len(tokens)) if rows is None else rows:
        raised = [max(0.0, x - logits[j].mean()) for x in logits[j]]
        among = sum(raised[t] for t in set(tokens))
        found.append(2 * raised[tokens[j]] / among - 1 if among else -1)
    return mean(found)


def entropy(w, normalized=False):
    rows = [-sum(x * math.log(x) for x in row if x > 0) for row in w]
    return mean(h / math.log(i + 1) for i, h in enumerate(rows) if i) if normalized else mean(rows)


def mean_distance(w):
    far = sum(w[i, j] * abs(i - j) for i, j in np.ndindex(w.shape))
    return far / w.sum()


def learned_sink(w):
    return mean(1 - row.sum() for row in w)
