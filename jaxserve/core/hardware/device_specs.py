"""Host: `DEVICES`: published memory, memory bandwidth and peak compute of accelerators.

Peak rates are those of dense bfloat16 matrix products with float32 accumulation. TPUs: Cloud TPU documentation,
pages "TPU v5p", "TPU v6e" (also of v5e) and "TPU7x". NVIDIA: data sheets of A100, H100, H200 (SXM modules), DGX B200
(an eighth of it), L4 and L40S; the papers on the architectures GA102, Ada and Blackwell for the RTX cards.
"""

from dataclasses import dataclass

GB = 10**9
GPU_SHARE = 0.75  # fraction of a GPU's memory that JAX uses unless XLA_PYTHON_CLIENT_MEM_FRACTION is set


@dataclass(frozen=True, slots=True)
class DeviceType:
    """An accelerator. bandwidth_bytes_s, bfloat16_operations_s: peak rates, None if unknown.

    memory_share: fraction of the memory that JAX uses by default.
    """

    name: str
    memory_bytes: int
    bandwidth_bytes_s: int | None
    memory_share: float = 1.0
    bfloat16_operations_s: int | None = None

    @property
    def usable_bytes(self) -> int:
        """Memory that JAX uses by default."""
        return int(self.memory_bytes * self.memory_share)


# Published GB are taken as 10**9 bytes; where 2**30 is meant, a device has 7 % more memory than stated here.
def _tpu(name: str, memory_gb: int, bandwidth_gb_s: int, tera_operations_s: float) -> DeviceType:
    return DeviceType(name, memory_gb * GB, bandwidth_gb_s * GB, 1.0, int(tera_operations_s * 10**12))


def _gpu(name: str, memory_gb: int, bandwidth_gb_s: int, tera_operations_s: float) -> DeviceType:
    return DeviceType(name, memory_gb * GB, bandwidth_gb_s * GB, GPU_SHARE, int(tera_operations_s * 10**12))


DEVICES: tuple[DeviceType, ...] = (
    _tpu("TPU v5e", 16, 800, 197),
    _tpu("TPU v5p", 95, 2765, 459),
    _tpu("TPU v6e", 32, 1600, 918),
    _tpu("TPU7x, half a chip", 96, 3690, 1153.5),  # a chip is two devices to JAX
    _gpu("A100 40GB", 40, 1555, 312),
    _gpu("A100 80GB", 80, 2039, 312),
    _gpu("H100 80GB", 80, 3350, 989),
    _gpu("H200", 141, 4800, 989),
    _gpu("B200", 180, 8000, 2250),
    _gpu("L4", 24, 300, 121),
    _gpu("L40S", 48, 864, 362),
    _gpu("RTX 3090", 24, 936, 71),
    _gpu("RTX 4090", 24, 1008, 165),
    _gpu("RTX 5090", 32, 1792, 209),
)

# `Device.device_kind` of JAX → name in DEVICES.
NAMES_BY_DEVICE_KIND: dict[str, str] = {
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


def device_type(kind: str) -> DeviceType | None:
    """The accelerator with this `Device.device_kind`; None if it is not in the table."""
    return next((device for device in DEVICES if device.name == NAMES_BY_DEVICE_KIND.get(kind)), None)
