"""Device: the device mesh, the table from logical axes to mesh axes, and per-device shapes and sizes of arrays.

Only this module names mesh axes. Others name the logical axes of `RULES`, and ask `num_shards` for sizes.
"""

import math
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from jaxserve.core.errors import ConfigError
from jaxserve.core.hardware.nvidia_driver import unusable_gpu

AnyMesh = Mesh | AbstractMesh  # shapes and sizes need no devices

# Data, pipeline, expert and tensor parallelism; all but the last have size 1.
AXES = ("data", "pipe", "expert", "tensor")

# Logical axis of a parameter, pool or activation → mesh axis; other axes are replicated.
RULES: dict[str, str] = {
    "kv_heads": "tensor",
    "heads": "tensor",
    "mlp": "tensor",
    "vocab": "tensor",
    "rows": "tensor",  # of logits, while tokens are drawn
}


def make_mesh(tensor_parallel_size: int) -> Mesh:
    """A mesh of the first `tensor_parallel_size` devices (all steps run under a mesh, also of size 1).

    Raises ConfigError if the machine has a GPU that JAX cannot use, unless jax_platforms is set, because falling back
    to the CPU silently is rarely intended.
    """
    available = jax.devices()
    if available[0].platform == "cpu" and not jax.config.jax_platforms and (reason := unusable_gpu()):
        raise ConfigError(f"this machine has an NVIDIA GPU, but {reason}. To run on the CPU, set JAX_PLATFORMS=cpu.")
    if tensor_parallel_size > len(available):
        raise ConfigError(
            f"tensor_parallel_size={tensor_parallel_size} but there are {len(available)} {available[0].platform} "
            "devices; use a smaller size, or on CPU start with XLA_FLAGS=--xla_force_host_platform_device_count=N",
            param="tensor_parallel_size",
        )
    return mesh_of(available[:tensor_parallel_size])


def mesh_of(devices: list[Any]) -> Mesh:
    """A tensor-parallel mesh of these devices."""
    return Mesh(np.array(devices).reshape(_shape(len(devices))), AXES)


def abstract_mesh(tensor_parallel_size: int) -> AbstractMesh:
    """A mesh of this size without devices."""
    return AbstractMesh(_shape(tensor_parallel_size), AXES)


def _shape(tensor_parallel_size: int) -> tuple[int, ...]:
    return (1, 1, 1, tensor_parallel_size)


def num_shards(mesh: AnyMesh, axis: str) -> int:
    """The number of parts into which a logical axis is divided."""
    return mesh.shape[RULES[axis]]


def spec(*axes: str | None) -> PartitionSpec:
    """Partition of an array with these logical axes."""
    return PartitionSpec(*(None if axis is None else RULES.get(axis) for axis in axes))


def sharding(mesh: Mesh, *axes: str | None) -> NamedSharding:
    """Sharding of an array with these logical axes."""
    return NamedSharding(mesh, spec(*axes))


def replicated(mesh: Mesh) -> NamedSharding:
    """A full copy on every device."""
    return NamedSharding(mesh, PartitionSpec())


def local_shape(array: Any) -> tuple[int, ...]:
    """Shape of the part of an array, or of a `ShapeDtypeStruct`, on one device."""
    return array.shape if array.sharding is None else array.sharding.shard_shape(array.shape)


def device_bytes(tree: Any) -> int:
    """Bytes of a tree of arrays, or of `ShapeDtypeStruct`s, on one device."""
    return sum(math.prod(local_shape(a)) * np.dtype(a.dtype).itemsize for a in jax.tree.leaves(tree))
