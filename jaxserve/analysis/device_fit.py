"""Host: whether a model fits on accelerators of one type, and how many sequences fit with it: arithmetic on bytes."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxserve.core.hardware.device_specs import DeviceType
from jaxserve.core.hardware.roofline import read_time
from jaxserve.core.kv_groups import KVGroups
from jaxserve.engine.build.kv_pool_size import bytes_left, longest_sequence, num_sequences, pages_for_sequences


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
class ContextRange:
    """The contexts that will do: an engine shrinks one that was left open. chunk: of a prompt, in one step."""

    shortest: int
    longest: int
    chunk: int


@dataclass(frozen=True, slots=True)
class DeviceFit:
    """A model on `num_devices` devices of a type; all bytes are of one device.

    memory_bytes: what JAX takes. kv_bytes: room for KV, negative by what is missing. num_pages: the pages that it
    holds for sequences. kv_tokens: positions in them while no window has freed any. max_model_len: the longest context
    that they hold, 0 where that is less than the shortest one that will do. sequences: how many of each length run at
    once, by length. step_floor_s: the time to read the weights once, a lower bound of a decode step; None where the
    bandwidth is not known.
    """

    device: str
    num_devices: int
    memory_bytes: int
    weight_bytes: int
    scratch_bytes: int
    kv_bytes: int
    num_pages: int
    kv_tokens: int
    max_model_len: int
    sequences: dict[int, int]
    step_floor_s: float | None

    @property
    def does_fit(self) -> bool:
        """Whether a sequence of the shortest context that will do can run."""
        return self.max_model_len > 0


def fit(
    device: DeviceType,
    share: DeviceShare,
    groups: KVGroups,
    lengths: Sequence[int],
    contexts: ContextRange,
    *,
    memory_utilization: float,
    max_kv_bytes: int | None = None,
) -> DeviceFit:
    """What a device's share of the model leaves of its memory for KV, of which `max_kv_bytes` are used at most."""
    room = bytes_left(device.usable_bytes, memory_utilization, share.weight_bytes, share.scratch_bytes)
    if max_kv_bytes is not None:
        room = min(room, max_kv_bytes)
    num_pages = pages_for_sequences(room, share.page_bytes)
    context = longest_sequence(groups, num_pages, contexts.longest, contexts.chunk)
    return DeviceFit(
        device=device.name,
        num_devices=share.num_devices,
        memory_bytes=device.usable_bytes,
        weight_bytes=share.weight_bytes,
        scratch_bytes=share.scratch_bytes,
        kv_bytes=room,
        num_pages=num_pages,
        kv_tokens=num_pages // groups.num_groups * groups.page_size,
        max_model_len=context if context >= contexts.shortest else 0,
        sequences=num_sequences(groups, num_pages, lengths),
        step_floor_s=read_time(share.read_bytes, device),
    )
