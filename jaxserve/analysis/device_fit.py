"""Host: whether a model fits on accelerators of one type, and how many sequences fit with it: arithmetic on bytes."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxserve.core.hardware.device_specs import DeviceType
from jaxserve.core.hardware.roofline import read_time
from jaxserve.core.kv_groups import KVGroups
from jaxserve.engine.build.kv_pool_size import bytes_left, num_sequences


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """What one of `num_devices` devices holds of a model, in bytes.

    read_bytes: of the weights, in one step. page_bytes: of a KV page. scratch_bytes: slots and the temporaries of the
    largest step.
    """

    num_devices: int
    weight_bytes: int
    read_bytes: int
    page_bytes: int
    scratch_bytes: int


@dataclass(frozen=True, slots=True)
class DeviceFit:
    """A model on `num_devices` devices of a type; all bytes are of one device.

    memory_bytes: what JAX takes. kv_bytes: room for KV, negative by what is missing. kv_tokens: positions that it
    holds, in sequences of the first of the lengths. sequences: how many of each length run at once, by length.
    step_floor_s: the time to read the weights once, a lower bound of a decode step; None where the bandwidth is not
    known.
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
    share: DeviceShare,
    groups: KVGroups,
    lengths: Sequence[int],
    *,
    memory_utilization: float,
    max_kv_bytes: int | None = None,
) -> DeviceFit:
    """What a device's share of the model leaves of its memory for KV, of which `max_kv_bytes` are used at most."""
    room = bytes_left(device.usable_bytes, memory_utilization, share.weight_bytes, share.scratch_bytes)
    if max_kv_bytes is not None:
        room = min(room, max_kv_bytes)
    sequences = num_sequences(groups, room, share.page_bytes, lengths)
    return DeviceFit(
        device=device.name,
        num_devices=share.num_devices,
        memory_bytes=device.usable_bytes,
        weight_bytes=share.weight_bytes,
        scratch_bytes=share.scratch_bytes,
        kv_bytes=room,
        kv_tokens=sequences[lengths[0]] * lengths[0],
        sequences=sequences,
        step_floor_s=read_time(share.read_bytes, device),
    )
