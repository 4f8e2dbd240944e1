"""Device: `KernelSizes`: the static sizes of a GPU kernel of `matmul`, and the shared memory that it needs.

ring of weights[depth, parts, columns, inputs]     parts: 2 with a gate
ring of rows[depth, rows, inputs]
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu

from pallas_kernels.gpu_ring import tiled

MAX_ROWS = 64
COLUMNS = 64
"""Output columns of a wgmma: its rows."""
INPUTS = 64
"""Inputs of 128 bytes, the widest swizzle."""
SHARED_BYTES = 110 * 2**10
"""Of the 113 KiB that each of two thread blocks on a multiprocessor can have; one starts while the other still streams.
An H200 needs 40 KB in flight on each: 4.8 TB/s over 132 multiprocessors, times a microsecond of latency."""
MAX_DEPTH = 8


@dataclass(frozen=True)
class KernelSizes:
    """Sizes and types of one kernel."""

    num_parts: int
    num_rows: int
    """A multiple of 8."""
    num_columns: int
    num_inputs: int
    columns: int
    inputs: int
    splits: int
    dtype: Any
    out_dtype: Any

    @property
    def num_tiles(self) -> int:
        """Thread blocks of a split."""
        return self.num_columns // self.columns

    @property
    def num_steps(self) -> int:
        """Tiles of inputs, of all splits."""
        return self.num_inputs // self.inputs

    @property
    def depth(self) -> int:
        """Steps in shared memory. Raises NotImplementedError when two do not fit."""
        step_bytes = (self.num_parts * self.columns + self.num_rows) * self.inputs * jnp.dtype(self.dtype).itemsize
        depth = SHARED_BYTES // step_bytes
        if depth < 2:
            raise NotImplementedError(f"two steps of {self.inputs} inputs exceed shared memory; use fewer")
        return min(depth, MAX_DEPTH)

    def scratch(self) -> dict[str, Any]:
        """Shared memory and barriers by name."""
        return {
            "weights": tiled((self.depth, self.num_parts, self.columns, self.inputs), self.dtype, unit=INPUTS),
            "rows": tiled((self.depth, self.num_rows, self.inputs), self.dtype, unit=INPUTS),
            "filled": plgpu.Barrier(num_arrivals=self.num_parts + 1, num_barriers=self.depth),
            "freed": plgpu.Barrier(num_barriers=self.depth),
        }
