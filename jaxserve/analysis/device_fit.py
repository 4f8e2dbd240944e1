"""Host: what of a model fits on accelerators of one type: arithmetic on bytes, and nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxserve.core.hardware.device_specs import DeviceType
from jaxserve.core.kv_groups import KVGroups
from jaxserve.engine.build.kv_pool_size import bytes_left


@dataclass(frozen=True, slots=True)
class Share:
    """What one of `num_devices` devices holds of a model, in bytes, and what it reads of it for one step."""

    num_devices: int
    weight_bytes: int
    read_bytes: int
    page_bytes: int
    scratch_bytes: int  # slots and the temporaries of the largest step


@dataclass(frozen=True, slots=True)
class DeviceFit:
    """A model on `num_devices` devices of a type; all bytes are of one device.

    memory_bytes: what JAX takes. kv_bytes: room for KV, negative by what is missing. kv_tokens: positions that it
    holds, in sequences of the first of the lengths. sequences: how many of each length run at once, by length.
    step_floor_s: the time that reading the weights once takes, below which no decode step can be; None where the
    bandwidth is not known.
    """

    device: str
    num_devices: int
    memory_bytes: int
    weight_bytes: int
    scratch_bytes: int
    kv_bytes: int
    kv_tokens: int
    sequences: dict[int, int]
    step_floor_s: float | None

    @property
    def does_fit(self) -> bool:
        """Whether a sequence of the first of the lengths can run."""
        return self.kv_tokens > 0


def fit(
    device: DeviceType,
    share: Share,
    groups: KVGroups,
    lengths: Sequence[int],
    *,
    memory_utilization: float,
    max_kv_bytes: int | None = None,
) -> DeviceFit:
    """What one device's share leaves of its memory for KV, of which `max_kv_bytes` are used at most."""
    room = bytes_left(device.usable_bytes, memory_utilization, share.weight_bytes, share.scratch_bytes)
    if max_kv_bytes is not None:
        room = min(room, max_kv_bytes)
    num_pages = max(room // share.page_bytes - 1, 0)  # page 0 is the scratch page
    sequences = {n: num_pages // groups.num_pages(n, n) for n in lengths}
    bandwidth = device.bandwidth_bytes_s
    return DeviceFit(
        device=device.name,
        num_devices=share.num_devices,
        memory_bytes=device.usable_bytes,
        weight_bytes=share.weight_bytes,
        scratch_bytes=share.scratch_bytes,
        kv_bytes=room,
        kv_tokens=sequences[lengths[0]] * lengths[0],
        sequences=sequences,
        step_floor_s=None if bandwidth is None else share.read_bytes / bandwidth,
    )
