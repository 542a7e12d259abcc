"""Compiling for a chip that is not there."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

# For the process that compiles, set before it imports JAX. With another platform JAX would look for the hardware, and
# libtpu would ask the network and a lock file which TPU this is.
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}

# An H200 as its data sheet and the limits of compute capability 9.0 describe it, in XLA's words.
HOPPER = """
platform_name: "CUDA"
device_description_str: "NVIDIA H200"
runtime_version { major: 13 }
dnn_version_info { major: 9 minor: 12 }
gpu_device_info {
  cuda_compute_capability { major: 9 }
  core_count: 132
  fpus_per_core: 128
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  registers_per_block_limit: 65536
  registers_per_core_limit: 65536
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  clock_rate_ghz: 1.98
  memory_bandwidth: 4800000000000
  l2_cache_size: 62914560
  device_memory_size: 150000000000
}
"""


@dataclasses.dataclass(frozen=True)
class Target:
    """A kind of chip."""

    platform: str  # that JAX lowers for
    topology: str
    options: dict[str, str] = dataclasses.field(default_factory=dict)


TARGETS = {
    "sm_90": Target("cuda", "", {"topology": "1x1x1", "target_config": HOPPER}),
    "v5e": Target("tpu", "v5e:2x2"),
    "v6e": Target("tpu", "v6e:2x2"),
}


def compiled(function: Callable[..., Any], shapes: list[jax.ShapeDtypeStruct], target: Target) -> Any:
    """The program that one chip of this kind would run, from JAX's `Lowered.compile`."""
    found = topologies.get_topology_desc(target.topology, target.platform, **target.options)
    mesh = Mesh(np.array(found.devices[:1]), ("device",))
    there = NamedSharding(mesh, PartitionSpec())
    arguments = [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=there) for x in shapes]
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):  # Pallas asks the mesh for the chip
        return jax.jit(function).trace(*arguments).lower(lowering_platforms=(target.platform,)).compile()

