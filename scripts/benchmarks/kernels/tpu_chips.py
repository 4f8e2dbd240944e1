"""TPU data of the time model, per JAX device: half a chip on 7x, otherwise a whole chip."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Chip:
    topology: str
    """The smallest slice of it that libtpu compiles for."""
    device_kind: str
    bytes_per_s: float
    """HBM bandwidth: docs.cloud.google.com/tpu/docs/{v5e,v5p,v6e,tpu7x}."""
    ops_per_s: float
    """Peak rate in bfloat16, of the same pages."""
    num_cores: int
    """TensorCores of the device; a kernel with an undivided grid runs on one."""
    ops_per_bundle: float
    """Operations per bundle of a core when its matrix units are full: those of the 16 bfloat16 rows that they hold,
    over the bundles from one such product to the next; from the schedule of a product of 1024 × 512 × 512 (libtpu
    0.0.48)."""

    @property
    def clock_hz(self) -> float:
        """Bundles per second: the peak rate over `ops_per_bundle`, since it is not documented."""
        return self.ops_per_s / self.num_cores / self.ops_per_bundle


CHIPS = {
    "v5e": Chip("v5e:2x2", "TPU v5 lite", 819e9, 197e12, 1, 4 * 16 * 128 * 128 * 2 / 12),
    "v5p": Chip("v5p:2x2x1", "TPU v5", 2765e9, 459e12, 2, 4 * 16 * 128 * 128 * 2 / 12),
    "v6e": Chip("v6e:2x2", "TPU v6 lite", 1640e9, 918e12, 1, 2 * 16 * 256 * 256 * 2 / 8),
    "7x": Chip("tpu7x:2x2x1", "TPU7x", 7370e9 / 2, 2307e12 / 2, 1, 2 * 16 * 256 * 256 * 2 / 4),
}
