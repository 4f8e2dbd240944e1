"""Wiring: the bytes of a model on each device under tensor parallelism, and the devices of this machine."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax

from jaxserve.analysis.device_fit import DeviceShare
from jaxserve.analysis.model_info import leaves
from jaxserve.core.errors import ConfigError
from jaxserve.core.hardware.device_specs import DeviceType, device_type
from jaxserve.core.hardware.mesh import AnyMesh, abstract_mesh, num_shards
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.kv_pool_size import CPU_POOL_BYTES
from jaxserve.engine.build.memory_budget import device_limit, scratch_bytes
from jaxserve.kv.pool_layout import page_layout
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.kv_heads import kv_layout
from jaxserve.models.packing import DENSE, Packing
from jaxserve.models.param_spec import ParamSpec
from jaxserve.models.params import is_spec

MAX_DEVICES = 16


@dataclass(frozen=True, slots=True)
class LocalSizes:
    """The devices of this process: their type, with the memory that JAX may use, and their number."""

    device: DeviceType
    platform: str
    num_devices: int

    def max_kv_bytes(self, config: EngineConfig) -> int | None:
        """The most that a pool takes: on CPU a small default, unless the options give the share of memory to use."""
        return CPU_POOL_BYTES if self.platform == "cpu" and config.memory_utilization is None else None


def local_devices() -> LocalSizes | None:
    """None where the devices do not report their memory."""
    devices = jax.devices()
    limit_bytes = device_limit(devices[0])
    if limit_bytes is None:
        return None
    return LocalSizes(as_limited(devices[0], limit_bytes), devices[0].platform, len(devices))


def as_limited(device: Any, limit_bytes: int) -> DeviceType:
    """A device that is present: the rates of its type, and the memory that JAX may use."""
    known = device_type(device.device_kind)
    bandwidth, rate = (known.bandwidth_bytes_s, known.bfloat16_operations_s) if known else (None, None)
    return DeviceType(f"this {device.device_kind}", limit_bytes, bandwidth, bfloat16_operations_s=rate)


def possible_sizes(model: ModelConfig, asked: int | None) -> tuple[int, ...]:
    """Numbers of devices, up to `MAX_DEVICES`, that divide the model; only the one asked for, or ConfigError."""
    if asked is not None:
        kv_layout(model, abstract_mesh(asked), 16, "float32")
        return (asked,)
    return tuple(n for n in range(1, MAX_DEVICES + 1) if divides(model, n))


def device_share(
    config: EngineConfig,
    model: ModelConfig,
    dtype: Any,
    num_devices: int,
    page_size: int,
    platform: str,
    packing: Packing = DENSE,
) -> DeviceShare:
    """One device's share of weights, pages and scratch memory."""
    mesh = abstract_mesh(num_devices)
    weights = weight_shares(model, mesh, dtype, packing)
    return DeviceShare(
        num_devices=num_devices,
        weight_bytes=sum(weights.values()),
        read_bytes=read_bytes(model, weights),
        page_bytes=kv_layout(model, mesh, page_size, dtype, page_layout(config.kv_layout)).page_bytes // num_devices,
        scratch_bytes=sum(scratch_bytes(config, platform, model, mesh)),
    )


def weight_shares(model: ModelConfig, mesh: AnyMesh, dtype: Any, packing: Packing) -> dict[str, int]:
    """Bytes of each parameter on one device, by path."""

    def share(spec: ParamSpec) -> int:
        return spec.num_bytes // math.prod(num_shards(mesh, axis) for axis in spec.axes if axis)

    found = leaves(model, mesh, dtype, packing).items()
    return {path: sum(map(share, jax.tree.leaves(leaf, is_leaf=is_spec))) for path, leaf in found}


def read_bytes(model: ModelConfig, shares: Mapping[str, int]) -> int:
    """Bytes of parameters that a step reads: all but an embedding table that is not the head too, of which it reads few
    rows."""
    return sum(shares.values()) - (0 if model.is_tied else shares["embed"])


def divides(model: ModelConfig, num_devices: int) -> bool:
    """Whether the model's heads can be divided over as many devices."""
    try:
        kv_layout(model, abstract_mesh(num_devices), 16, "float32")
    except ConfigError:
        return False
    return True
