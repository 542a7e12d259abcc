"""Where results lie on explicit axes of a mesh (`jax.make_mesh`), whose operations do not guess; elsewhere nothing."""

from typing import Any

import jax
from flax import nnx
from jax.sharding import PartitionSpec


def rows_of(table: Any, index: Any, **options: Any) -> Any:
    """table[index], whose rows lie as the numbers in `index` do."""
    spec = (*jax.typeof(index).sharding.spec, jax.typeof(table).sharding.spec[1])
    return table.at[index].get(out_sharding=PartitionSpec(*spec) if any(spec) else None, **options)


def joined(linear: nnx.Linear, x: Any) -> Any:
    """linear(x), where the axis that it sums over may be split over devices: all of them get the sum."""
    spec = jax.typeof(x).sharding.spec
    return linear(x) if spec[-1] is None else linear(x, out_sharding=PartitionSpec(*spec[:-1], None))
