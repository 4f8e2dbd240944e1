"""Host: accelerators by name: memory and memory bandwidth of one, as their makers publish them."""

from dataclasses import dataclass

GB = 10**9


@dataclass(frozen=True, slots=True)
class DeviceType:
    """One accelerator. bandwidth_bytes_s: of its memory, at best; None where it is not known."""

    name: str
    memory_bytes: int
    bandwidth_bytes_s: int | None


def _device(name: str, memory_gb: int, bandwidth_gb_s: int) -> DeviceType:
    """The makers' GB taken as 10**9 bytes: where they mean 2**30, the device has 7 % more than is counted with."""
    return DeviceType(name, memory_gb * GB, bandwidth_gb_s * GB)


DEVICES: tuple[DeviceType, ...] = (
    # Cloud TPU documentation, pages "TPU v5p", "TPU v6e" (also of v5e) and "TPU7x"; a TPU7x chip is two devices to JAX.
    _device("TPU v5e", 16, 800),
    _device("TPU v5p", 95, 2765),
    _device("TPU v6e", 32, 1600),
    _device("TPU7x, half a chip", 96, 3690),
    # NVIDIA's data sheets: A100, H100 and H200 as SXM modules; B200 as an eighth of a DGX B200.
    _device("A100 40GB", 40, 1555),
    _device("A100 80GB", 80, 2039),
    _device("H100 80GB", 80, 3350),
    _device("H200", 141, 4800),
    _device("B200", 180, 8000),
    _device("L4", 24, 300),
    _device("L40S", 48, 864),
    _device("RTX 3090", 24, 936),
    _device("RTX 4090", 24, 1008),
    _device("RTX 5090", 32, 1792),
)

# What JAX calls a device (`Device.device_kind`) → its row above.
KINDS: dict[str, str] = {
    "TPU v5 lite": "TPU v5e",
    "TPU v5": "TPU v5p",
    "TPU v6 lite": "TPU v6e",
    "TPU7x": "TPU7x, half a chip",
    "NVIDIA A100-SXM4-40GB": "A100 40GB",
    "NVIDIA A100-SXM4-80GB": "A100 80GB",
    "NVIDIA H100 80GB HBM3": "H100 80GB",
    "NVIDIA H200": "H200",
    "NVIDIA B200": "B200",
    "NVIDIA L4": "L4",
    "NVIDIA L40S": "L40S",
    "NVIDIA GeForce RTX 3090": "RTX 3090",
    "NVIDIA GeForce RTX 4090": "RTX 4090",
    "NVIDIA GeForce RTX 5090": "RTX 5090",
}


def bandwidth_of(kind: str) -> int | None:
    """Memory bandwidth, bytes a second, of a device that JAX calls `kind`; None where it is not in the table."""
    return next((device.bandwidth_bytes_s for device in DEVICES if device.name == KINDS.get(kind)), None)
