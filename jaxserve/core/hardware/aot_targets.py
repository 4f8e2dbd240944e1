"""Device: meshes of accelerators that are not here: their makers' compilers work without them."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh

from jaxserve.core.errors import ConfigError
from jaxserve.core.hardware.compilers import require_compiler
from jaxserve.core.hardware.mesh import TENSOR
from pallas_kernels.gpu_targets import gpu_target


def mesh_of(devices: list[Any]) -> Mesh:
    return Mesh(np.array(devices), (TENSOR,))


@cache
def tpu_devices(topology: str) -> list[Any]:
    """All devices of a topology: "v5e:2x2", "v5p:2x2x1", "v6e:2x4", "tpu7x:2x2x1" (two devices a chip), …"""
    require_compiler("tpu")
    try:
        return topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    except jax.errors.JaxRuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(
            f"{topology!r} is no TPU topology: {reason}. Names are like v5e:2x2, v5p:2x2x1, v6e:2x4 and tpu7x:2x2x1"
        ) from None


@cache
def gpu_devices(name: str, num_devices: int) -> list[Any]:
    """GPUs of one model, by its name in `gpu_targets`."""
    try:
        target = gpu_target(name)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    require_compiler("gpu")
    sizes = {"target_config": target, "topology": f"1x1x{num_devices}"}
    return topologies.get_topology_desc(platform="cuda", topology_name=name, **sizes).devices


@contextmanager
def no_persistent_cache() -> Iterator[None]:
    """jax's persistent cache would keep what is compiled for absent devices, and fail to read it in the next run."""
    name = "jax_persistent_cache_min_compile_time_secs"
    usual = getattr(jax.config, name)
    jax.config.update(name, float("inf"))
    try:
        yield
    finally:
        jax.config.update(name, usual)
