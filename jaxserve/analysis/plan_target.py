"""Wiring: `PlanTarget`, the devices that a plan is made for: of one kind, present or not."""

from dataclasses import dataclass

from jax.sharding import Mesh

from jaxserve.analysis.sharded_sizes import as_limited, divides
from jaxserve.core.errors import ConfigError
from jaxserve.core.hardware.aot_targets import gpu_devices, tpu_devices
from jaxserve.core.hardware.device_specs import DeviceType, device_type
from jaxserve.core.hardware.mesh import make_mesh, mesh_of
from jaxserve.engine.build.memory_budget import limit_on
from jaxserve.models.config.model_config import ModelConfig


@dataclass(frozen=True, slots=True)
class PlanTarget:
    """device: None where the kind is not in the table of devices. limit_bytes: of one device, None where not known."""

    name: str
    mesh: Mesh
    device: DeviceType | None
    limit_bytes: int | None


def choose_target(model: ModelConfig, topology: str | None, gpu: str | None, asked: int | None) -> PlanTarget:
    """TPUs of a topology, GPUs by name, or the local devices. asked: tensor-parallel size, None where it is open."""
    if topology is not None:
        return tpu_target(topology, model, asked)
    return local_target(asked) if gpu is None else gpu_target(gpu, asked)


def tpu_target(topology: str, model: ModelConfig, asked: int | None) -> PlanTarget:
    """TPUs of a topology: as many as were asked for, or the most that divide the model; raises ConfigError."""
    devices = tpu_devices(topology)
    size = asked or max(n for n in range(1, len(devices) + 1) if divides(model, n))
    if size > len(devices):
        raise ConfigError(
            f"tensor_parallel_size={size} but {topology} has {len(devices)} devices; use a larger topology",
            param="tensor_parallel_size",
        )
    return _aot_target(topology, mesh_of(devices[:size]))


def gpu_target(name: str, asked: int | None) -> PlanTarget:
    """GPUs of one model: as many as were asked for, or one."""
    return _aot_target(name, mesh_of(gpu_devices(name, asked or 1)))


def local_target(asked: int | None) -> PlanTarget:
    """Devices of this process: as many as were asked for, or one."""
    mesh = make_mesh(asked or 1)
    limit_bytes = limit_on(mesh)
    device = None if limit_bytes is None else as_limited(mesh.devices.flat[0], limit_bytes)
    return PlanTarget("local", mesh, device, limit_bytes)


def _aot_target(name: str, mesh: Mesh) -> PlanTarget:
    device = device_type(mesh.devices.flat[0].device_kind)
    return PlanTarget(name, mesh, device, device and device.usable_bytes)
