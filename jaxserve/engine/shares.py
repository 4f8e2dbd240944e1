"""Wiring: what each device holds of a model under tensor parallelism, and which devices are there to hold it."""

from dataclasses import dataclass
from typing import Any

from jaxserve.core.config import EngineConfig
from jaxserve.core.devices import DeviceType, bandwidth_of
from jaxserve.core.errors import ConfigError
from jaxserve.core.sharding import RULES, TENSOR, abstract_mesh
from jaxserve.engine.fit import Share
from jaxserve.engine.limits import CPU_POOL_BYTES
from jaxserve.engine.memory import device_limit, scratch_bytes
from jaxserve.engine.model_facts import leaves
from jaxserve.kv.layout import page_layout
from jaxserve.models.config import ModelConfig
from jaxserve.models.kv import kv_layout

MAX_DEVICES = 16


@dataclass(frozen=True, slots=True)
class Local:
    """The devices that this process sees: their type, how many, and where JAX's limit differs, the pool's own."""

    device: DeviceType
    platform: str
    num_devices: int

    def max_kv_bytes(self, config: EngineConfig) -> int | None:
        """On CPU the engine takes a small pool unless it is told what share of the memory to use."""
        return CPU_POOL_BYTES if self.platform == "cpu" and config.memory_utilization is None else None


def local_devices() -> Local | None:
    """None where the devices do not tell their memory."""
    import jax

    devices = jax.devices()
    limit_bytes = device_limit(devices[0])
    if limit_bytes is None:
        return None
    kind, platform = devices[0].device_kind, devices[0].platform
    return Local(DeviceType(f"this {kind}", limit_bytes, bandwidth_of(kind)), platform, len(devices))


def possible_sizes(model: ModelConfig, asked: int | None) -> tuple[int, ...]:
    """Numbers of devices that divide the model, up to `MAX_DEVICES`; only the one asked for, or ConfigError."""
    if asked is not None:
        kv_layout(model, abstract_mesh(asked), 16, "float32")
        return (asked,)
    return tuple(n for n in range(1, MAX_DEVICES + 1) if _divides(model, n))


def share_of(
    config: EngineConfig, model: ModelConfig, dtype: Any, num_devices: int, page_size: int, platform: str
) -> Share:
    """One device's part of weights, pages and scratch memory."""
    mesh = abstract_mesh(num_devices)
    weights = {}
    for path, spec in leaves(model, mesh, dtype).items():
        is_divided = any(axis is not None and RULES.get(axis) == TENSOR for axis in spec.axes)
        weights[path] = spec.num_bytes // (num_devices if is_divided else 1)
    total = sum(weights.values())
    return Share(
        num_devices=num_devices,
        weight_bytes=total,
        # Of a table that is not the head too, a step reads a few rows.
        read_bytes=total if model.is_tied else total - weights["embed"],
        page_bytes=kv_layout(model, mesh, page_size, dtype, page_layout(config.kv_layout)).page_bytes // num_devices,
        scratch_bytes=sum(scratch_bytes(config, platform, model, mesh)),
    )


def _divides(model: ModelConfig, num_devices: int) -> bool:
    try:
        kv_layout(model, abstract_mesh(num_devices), 16, "float32")
    except ConfigError:
        return False
    return True
