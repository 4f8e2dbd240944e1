"""Device: AOT targets: meshes of accelerators built from topology descriptions, for compilers that need no device."""

from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import Any

import jax
from jax.experimental import topologies

from jaxserve.core.errors import ConfigError
from jaxserve.core.hardware.compilers import require_compiler
from pallas_kernels.gpu_targets import gpu_target

_jax: Any = jax  # whose settings have no types
_topologies: Any = topologies  # whose devices have no types


@cache
def tpu_devices(topology: str) -> list[Any]:
    """All devices of a topology: "v5e:2x2", "v5p:2x2x1", "v6e:2x4", "tpu7x:2x2x1" (two devices per chip), …"""
    require_compiler("tpu")
    try:
        return _topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    except jax.errors.JaxRuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(
            f"{topology!r} is no TPU topology: {reason}. Names are like v5e:2x2, v5p:2x2x1, v6e:2x4 and tpu7x:2x2x1"
        ) from None


@cache
def gpu_devices(name: str, num_devices: int) -> list[Any]:
    """GPUs of one type, by its name in `gpu_targets`."""
    try:
        target = gpu_target(name)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    require_compiler("gpu")
    sizes = {"target_config": target, "topology": f"1x1x{num_devices}"}
    return _topologies.get_topology_desc(platform="cuda", topology_name=name, **sizes).devices


@contextmanager
def no_persistent_cache() -> Generator[None]:
    """Disables JAX's persistent cache, which would store programs for absent devices and fail to read them later."""
    name = "jax_persistent_cache_min_compile_time_secs"
    usual = getattr(_jax.config, name)
    _jax.config.update(name, float("inf"))
    try:
        yield
    finally:
        _jax.config.update(name, usual)
