"""Device: the mesh, one table from logical axes to mesh axes, and what of an array lies on one device."""

import math
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from jaxserve.core.errors import ConfigError
from jaxserve.core.hardware.nvidia_driver import unusable_gpu

AnyMesh = Mesh | AbstractMesh  # shapes and byte counts need only the sizes of a mesh, not its devices

TENSOR = "tensor"  # mesh axis over which heads, mlp columns and vocabulary rows are divided

# Logical axis of a parameter, pool or activation → mesh axis; axes not named here are whole on every device.
RULES: dict[str, str] = {"kv_heads": TENSOR, "heads": TENSOR, "mlp": TENSOR, "vocab": TENSOR}


def make_mesh(tensor_parallel_size: int) -> Mesh:
    """A mesh of the first `tensor_parallel_size` devices (all steps run under a mesh, also of size 1).

    A GPU that is here but out of JAX's reach is an error, unless JAX was told what to use: nobody means to serve from a
    CPU beside it.
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
    return Mesh(np.array(available[:tensor_parallel_size]), (TENSOR,))


def abstract_mesh(tensor_parallel_size: int) -> AbstractMesh:
    """A mesh that has sizes and no devices."""
    return AbstractMesh((tensor_parallel_size,), (TENSOR,))


def spec(*axes: str | None) -> PartitionSpec:
    """Partition of an array whose dimensions carry these logical axes."""
    return PartitionSpec(*(None if axis is None else RULES.get(axis) for axis in axes))


def sharding(mesh: Mesh, *axes: str | None) -> NamedSharding:
    return NamedSharding(mesh, spec(*axes))


def replicated(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec())


def local_shape(array: Any) -> tuple[int, ...]:
    """Of the part that one device holds; `array` may be a description of one."""
    return array.shape if array.sharding is None else array.sharding.shard_shape(array.shape)


def device_bytes(tree: Any) -> int:
    """Bytes of a tree of arrays, or of descriptions of arrays, on one device."""
    return sum(math.prod(local_shape(a)) * np.dtype(a.dtype).itemsize for a in jax.tree.leaves(tree))
