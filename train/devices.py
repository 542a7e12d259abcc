"""Several devices of one host: each computes its share of the batch, all hold the same parameters."""

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def mesh(count: int | None, batch: int) -> Mesh:
    """The devices of a run, in one row.

    Args:
        count: how many; None takes all of this host.
        batch: sequences per step, which they share equally.

    Raises:
        ValueError: if there are fewer devices or none at all, or the batch cannot be shared equally.

    Example:
        >>> mesh(1, 32).devices.shape
        (1,)
    """
    try:
        there = jax.local_devices()
    except RuntimeError as error:  # JAX_PLATFORMS names one that is not here
        raise ValueError(f"JAX finds no device: {error}") from None
    count = len(there) if count is None else count
    if count > len(there):
        raise ValueError(f"run.devices={count}, but this host has {len(there)}; use at most that many, or leave it "
                         "out to use all")
    if batch % count:
        fewer = max(n for n in range(1, count) if batch % n == 0)
        raise ValueError(f"data.batch={batch} is not a multiple of the {count} devices that share it; use "
                         f"data.batch={-(-batch // count) * count} or run.devices={fewer}")
    return Mesh(np.asarray(there[:count]), ("batch",))


def everywhere(mesh: Mesh) -> NamedSharding:
    """A whole copy on every device."""
    return NamedSharding(mesh, PartitionSpec())


def shared(mesh: Mesh, axis: int = 0) -> NamedSharding:
    """Cut along one axis, a piece for each device."""
    return NamedSharding(mesh, PartitionSpec(*[None] * axis, "batch"))
