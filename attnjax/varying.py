"""Under `jax.shard_map` an array varies along some axes of the mesh: types tell along which.

A loop's carry must start with the type that it ends with, and a cotangent must have the type of its array.
"""

from typing import Any

import jax


def axes_of(tree: Any) -> frozenset[str]:
    """The mesh axes along which any array of a tree varies; none outside `jax.shard_map`."""
    return frozenset().union(*(jax.typeof(x).mat.varying for x in jax.tree.leaves(tree)))


def vary(tree: Any, axes: frozenset[str]) -> Any:
    """The arrays varying along these axes as well; the tree itself where there are none."""

    def one(x: Any) -> Any:
        missing = tuple(sorted(axes - axes_of(x)))
        return jax.lax.pcast(x, missing, to="varying") if missing else x

    return jax.tree.map(one, tree) if axes else tree


def summed_as(tree: Any, like: Any) -> Any:
    """Cotangents of the arrays of `like`: those of arrays that do not vary along an axis, summed over it."""

    def one(x: Any, array: Any) -> Any:
        extra = tuple(sorted(axes_of(x) - axes_of(array)))
        return jax.lax.psum(x, extra) if extra else x

    return jax.tree.map(one, tree, like)
