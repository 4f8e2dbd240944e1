"""Device: `KernelSizes`: the static sizes of a GPU kernel of `matmul`, and the shared memory that it needs.

ring of weights[depth, parts, columns, inputs]     parts: 2 with a gate; in 16 bits, or codes of 8
ring of rows[depth, rows, inputs]                  in 16 bits, or codes of 8
"""

import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu

from pallas_kernels.gpu_ring import tiled

MAX_ROWS = 64
MAX_CODED_ROWS = 128
"""Of codes, whose products need no registers for what is widened."""
COLUMNS = 64
"""Output columns of a wgmma: its rows."""
SWIZZLE_BYTES = 128
"""The widest."""
INPUTS = 64
"""Inputs of 16 bits in a swizzle."""
CODES = (jnp.dtype(jnp.int8), jnp.dtype(jnp.float8_e4m3fn))
"""Types of 8 bits that a wgmma multiplies. Sums of int8 are exact. Of float8 Hopper keeps some 14 bits of what it adds
(DeepSeek-V3, arXiv 2412.19437, section 3.3.2), which no interpreter shows."""
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
    """Of the rows, in which weights are multiplied."""
    weight_dtype: Any
    """As they are stored."""
    out_dtype: Any

    @property
    def is_widened(self) -> bool:
        """Weights are codes, and rows are not."""
        return jnp.dtype(self.weight_dtype) != jnp.dtype(self.dtype)

    @property
    def has_coded_rows(self) -> bool:
        return jnp.dtype(self.dtype) in CODES

    @property
    def sum_dtype(self) -> Any:
        """Of a wgmma's accumulator."""
        return jnp.int32 if jnp.dtype(self.dtype) == jnp.int8 else jnp.float32

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
        weight_bytes = self.num_parts * self.columns * jnp.dtype(self.weight_dtype).itemsize
        step_bytes = self.inputs * (weight_bytes + self.num_rows * jnp.dtype(self.dtype).itemsize)
        depth = SHARED_BYTES // step_bytes
        if depth < 2:
            raise NotImplementedError(f"two steps of {self.inputs} inputs exceed shared memory; use fewer")
        return min(depth, MAX_DEPTH)

    def scratch(self, *, is_interpreted: bool) -> dict[str, Any]:
        """Shared memory and barriers by name. is_interpreted: widened weights lie there, not in registers."""
        tile = (self.columns, self.inputs)

        def unit(dtype: Any) -> int:
            return math.gcd(self.inputs, SWIZZLE_BYTES // jnp.dtype(dtype).itemsize)

        found: dict[str, Any] = {
            "weights": tiled((self.depth, self.num_parts, *tile), self.weight_dtype, unit=unit(self.weight_dtype)),
            "rows": tiled((self.depth, self.num_rows, self.inputs), self.dtype, unit=unit(self.dtype)),
            "filled": plgpu.Barrier(num_arrivals=self.num_parts + 1, num_barriers=self.depth),
            "freed": plgpu.Barrier(num_barriers=self.depth),
        }
        if is_interpreted and self.is_widened:
            found["widened"] = tiled((self.num_parts, *tile), self.dtype, unit=INPUTS)
        return found
