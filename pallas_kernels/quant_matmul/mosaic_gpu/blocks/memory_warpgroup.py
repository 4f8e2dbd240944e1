"""Device: the memory warpgroup of the GPU kernel of packed blocks: streams fields and activations into the ring."""

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from pallas_kernels.gpu_ring import fill_ring
from pallas_kernels.kernel_types import Refs
from pallas_kernels.matmul.mosaic_gpu.kernel_sizes import COLUMNS
from pallas_kernels.matmul.mosaic_gpu.memory_warpgroup import Work
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.field_boxes import FieldBox
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.kernel_sizes import KernelSizes


def stream_steps(refs: Refs, work: Work, sizes: KernelSizes) -> None:
    """Fills the ring's buffers in turn, each after the compute warpgroups have released its previous step."""

    for box in sizes.whole_boxes:
        _copy_whole(refs, work, box, sizes)
    if sizes.scale_values:
        plgpu.copy_gmem_to_smem(refs["scale_values"], refs["whole scale_values"], refs["arrived"])

    def fill(step: jax.Array, buffer: jax.Array) -> None:
        for box in sizes.boxes:
            if not box.is_whole:
                _copy_field(refs, work, box, step, buffer, sizes)
        inputs = pl.ds(pl.multiple_of(step * sizes.inputs, sizes.inputs), sizes.inputs)
        plgpu.copy_gmem_to_smem(refs["x"].at[:, inputs], refs["rows"].at[buffer], refs["filled"].at[buffer])

    fill_ring(work.begin, work.end, sizes.depth, refs["freed"], fill)


def _copy_field(refs: Refs, work: Work, box: FieldBox, step: jax.Array, buffer: jax.Array, sizes: KernelSizes) -> None:
    layer, values = refs["layer"][0], pl.ds(0, box.width)
    if box.width < box.total:
        values = pl.ds(pl.multiple_of(box.start(step), box.alignment), box.width)
    for part in range(sizes.num_parts):
        for group in range(sizes.warpgroups):
            tile = work.tile * sizes.warpgroups + group
            columns = pl.ds(pl.multiple_of(tile * COLUMNS, COLUMNS), COLUMNS)
            plgpu.copy_gmem_to_smem(
                refs[box.name].at[layer, part, columns, values],
                refs[f"step {box.name}"].at[buffer, part, group],
                refs["filled"].at[buffer],
            )


def _copy_whole(refs: Refs, work: Work, box: FieldBox, sizes: KernelSizes) -> None:
    for part in range(sizes.num_parts):
        for group in range(sizes.warpgroups):
            tile = work.tile * sizes.warpgroups + group
            begin, target = pl.multiple_of(tile * box.total, box.total), refs[f"whole {box.name}"].at[part, group]
            for first, count in box.whole_copies:
                plgpu.copy_gmem_to_smem(
                    refs[box.name].at[refs["layer"][0], part, pl.ds(begin + first, count)],
                    target.at[pl.ds(first, count)],
                    refs["arrived"],
                )
