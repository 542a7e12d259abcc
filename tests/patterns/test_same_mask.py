"""Rectangles with one number show the same pairs, whatever parts are asked about."""

import numpy as np
import pytest

import attnjax as aj
from attnjax.patterns.same_mask import same_mask
from attnjax.patterns.tiles import Rects


@pytest.mark.parametrize(
    "text",
    ["strided(4) | strided(10)", "strided(4) | strided(9)", "strided(6) & ~strided(9)", "chunked(10)", "causal() & ~chunked(7)"],
)
def test_one_part_by_itself(text):
    """The last part: of two combs what the first has left of the second."""
    pattern = aj.parse(text)
    part, corners = pattern.parts()[-1], np.arange(0, 80, 5)
    q, k = (x.ravel() for x in np.meshgrid(corners, corners, indexing="ij"))
    number, first = same_mask((part,), Rects(q, q + 5, k, k + 5))
    masks = []
    for a, b in zip(q, k, strict=True):
        i, j = a + np.arange(5)[:, None], b + np.arange(5)
        masks.append((pattern.allows_in((part,), i, j) & ((i - j) % part.step == 0)).tobytes())
    assert all(masks[at] == masks[first[n]] for at, n in enumerate(number))
    assert number[first].tolist() == list(range(len(first)))
