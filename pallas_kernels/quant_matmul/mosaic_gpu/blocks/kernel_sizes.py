"""Device: `KernelSizes`: the static sizes of the GPU kernel of packed blocks, and the shared memory that it needs.

ring of each field[depth, parts, warpgroups, 64, …]     parts: 2 with a gate
ring of rows[depth, rows, inputs]
whole fields[parts, warpgroups, …, 64]                  those of `FieldBox.is_whole`
values of the codes of scales[256]                      with double quantization
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu

from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.block_forms.table_forms import NestedScales, Table
from pallas_kernels.gpu_ring import tiled
from pallas_kernels.matmul.mosaic_gpu.kernel_sizes import COLUMNS, MAX_DEPTH, SHARED_BYTES
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.field_boxes import FieldBox, field_boxes
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.input_order import InputOrder


@dataclass(frozen=True)
class KernelSizes:
    """Sizes and types of one kernel."""

    form: BlockForm
    num_parts: int
    num_chunks: int
    """Of rows: a thread block multiplies one, and reads its columns' bytes again for each."""
    num_rows: int
    """Of a chunk, a multiple of 8."""
    num_columns: int
    num_inputs: int
    warpgroups: int
    """That compute, each 64 columns of a thread block."""
    inputs: int
    """Of a step."""
    splits: int
    dtype: Any
    """Of the rows, in which weights are multiplied."""
    out_dtype: Any

    columns = COLUMNS

    @property
    def num_tiles(self) -> int:
        """Of 64 columns."""
        return self.num_columns // COLUMNS

    @property
    def num_steps(self) -> int:
        """Of all splits."""
        return -(-self.num_inputs // self.inputs)

    @property
    def order(self) -> InputOrder:
        return InputOrder(self.form, self.inputs)

    @cached_property
    def boxes(self) -> tuple[FieldBox, ...]:
        return field_boxes(self.form, self.num_inputs, self.inputs)

    @property
    def whole_boxes(self) -> tuple[FieldBox, ...]:
        return tuple(box for box in self.boxes if box.is_whole)

    @property
    def whole_copies(self) -> int:
        """Of a thread block, before its first step."""
        tiles = self.num_parts * self.warpgroups
        return tiles * sum(len(box.whole_copies) for box in self.whole_boxes) + bool(self.scale_values)

    @property
    def scale_values(self) -> Table:
        """Of the codes of scales, which are looked up; empty: scales are numbers."""
        return self.form.scales.values if isinstance(self.form.scales, NestedScales) else ()

    @property
    def plane_names(self) -> tuple[str, ...]:
        return tuple(plane.field for plane in self.form.planes)

    @property
    def depth(self) -> int:
        """Steps in shared memory, which one thread block of two warpgroups has alone."""
        tiles = self.num_parts * self.warpgroups
        weight_bytes = tiles * sum(box.num_bytes for box in self.boxes if not box.is_whole)
        step_bytes = weight_bytes + self.num_rows * self.inputs * jnp.dtype(self.dtype).itemsize
        whole_bytes = tiles * sum(box.num_bytes for box in self.whole_boxes)
        whole_bytes += len(self.scale_values) * jnp.dtype(jnp.float32).itemsize
        return min((self.warpgroups * SHARED_BYTES - whole_bytes) // step_bytes, MAX_DEPTH)

    def scratch(self, *, is_interpreted: bool) -> dict[str, Any]:
        """Shared memory and barriers by name. is_interpreted: weights lie there, not in registers."""
        tiles = (self.num_parts, self.warpgroups)
        lead = (self.depth, *tiles, COLUMNS)
        stepped = [box for box in self.boxes if not box.is_whole]
        found = {
            f"step {box.name}": tiled((*lead, box.width), box.dtype, unit=box.alignment)
            if box.name in self.plane_names
            else plgpu.SMEM((*lead, box.width), box.dtype)
            for box in stepped
        }
        if self.scale_values:
            found["whole scale_values"] = plgpu.SMEM((len(self.scale_values),), jnp.float32)
        if self.whole_copies:
            whole = self.whole_boxes
            found |= {f"whole {box.name}": plgpu.SMEM((*tiles, box.total, COLUMNS), box.dtype) for box in whole}
            found["arrived"] = plgpu.Barrier(num_arrivals=self.whole_copies)
        slot = self.order.slot_inputs
        found |= {
            "rows": tiled((self.depth, self.num_rows, self.inputs), self.dtype, unit=slot),
            "filled": plgpu.Barrier(
                num_arrivals=self.num_parts * self.warpgroups * len(stepped) + 1, num_barriers=self.depth
            ),
            "freed": plgpu.Barrier(num_arrivals=self.warpgroups, num_barriers=self.depth),
        }
        if is_interpreted:
            found["weights"] = tiled((self.warpgroups, COLUMNS, slot), self.dtype, unit=slot)
        return found
