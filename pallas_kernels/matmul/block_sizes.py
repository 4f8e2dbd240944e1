"""Device: `BlockSizes`: how a back end of `matmul` divides a product."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BlockSizes:
    """How a back end divides a product among thread blocks. Results depend on it by rounding only."""

    columns: int
    """Output columns of a thread block; with a gate, of the gate and of the other half each."""
    inputs: int
    """Inputs that are multiplied at once."""
    splits: int
    """Runs of inputs whose sums are computed by different thread blocks, and then added in order."""

    def __post_init__(self) -> None:
        for name in ("columns", "inputs", "splits"):
            size = getattr(self, name)
            if size < 1 or size & (size - 1):
                raise ValueError(f"BlockSizes: {name}={size} must be a power of two")
