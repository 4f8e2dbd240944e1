"""Device: a compute warpgroup of the GPU kernel of packed blocks: decodes 64 columns in registers and multiplies them.

yᵀ[64, rows] = W[64, inputs] · xᵀ[inputs, rows]: the weights are the left side of a wgmma, which it takes from
registers. While it multiplies a slot the next one is decoded.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.experimental.pallas.mosaic_gpu import WGMMAAccumulatorRef as ACC

from pallas_kernels.dispatch import gpu_interpretation
from pallas_kernels.gpu_ring import buffer_of
from pallas_kernels.kernel_types import Ref, Refs
from pallas_kernels.matmul.mosaic_gpu.compute_warpgroup import MATRIX
from pallas_kernels.matmul.mosaic_gpu.kernel_sizes import COLUMNS
from pallas_kernels.matmul.mosaic_gpu.memory_warpgroup import Work
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.field_boxes import FieldBox
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.group_terms import group_terms
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.kernel_sizes import KernelSizes
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.register_views import BYTES, apart, per_row
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.step_weights import step_weights


def multiply_steps(refs: Refs, work: Work, group: jax.Array, sizes: KernelSizes) -> list[jax.Array]:
    """The sums over the work's steps of each part, [64, rows] in float32, of a warpgroup's columns."""

    # Not known to the assembler to be 0, see `step_weights`.
    zero = (refs["layer"][0] >> 31).astype(jnp.uint32)

    if sizes.whole_copies:
        plgpu.barrier_wait(refs["arrived"])

    def sums(*accumulators: Ref) -> list[jax.Array]:
        @pl.loop(work.begin, work.end)
        def _(step: jax.Array) -> None:
            buffer = buffer_of(step, work.begin, sizes.depth)
            plgpu.barrier_wait(refs["filled"].at[buffer])
            for part, accumulator in enumerate(accumulators):
                _multiply_step(refs, accumulator, step, buffer, part, group, zero, sizes)
                plgpu.wgmma_wait(0)  # its operands' registers are then free for the next part
            plgpu.barrier_arrive(refs["freed"].at[buffer])

        return [plgpu.layout_cast(accumulator[...], MATRIX) for accumulator in accumulators]

    tile = ACC((COLUMNS, sizes.num_rows), jnp.float32)
    return pl.run_scoped(sums, *[tile] * sizes.num_parts)


def _multiply_step(
    refs: Refs,
    accumulator: Ref,
    step: jax.Array,
    buffer: jax.Array,
    part: int,
    group: jax.Array,
    zero: jax.Array,
    sizes: KernelSizes,
) -> None:
    others: dict[str, jax.Array] = {}
    for box in sizes.boxes:
        if box.is_whole:
            others[box.name] = _of_whole(refs[f"whole {box.name}"].at[part, group], box, step)
        elif box.name not in sizes.plane_names:
            others[box.name] = _by_column(refs[f"step {box.name}"].at[buffer, part, group], box, step)
    terms = group_terms(sizes.form, others, sizes.dtype, refs.get("whole scale_values"), _first_scale(step, sizes))
    planes = {
        name: plgpu.load(refs[f"step {name}"].at[buffer, part, group], layout=BYTES) for name in sizes.plane_names
    }
    width = sizes.order.slot_inputs
    for slot, weights in enumerate(step_weights(planes, terms, sizes.order, sizes.dtype, zero)):
        rows = refs["rows"].at[buffer, :, pl.ds(slot * width, width)].transpose((1, 0))
        if "weights" not in refs:
            plgpu.wgmma(accumulator, weights, rows)
            continue
        # The interpreter does not support operands in registers.
        memory = refs["weights"].at[group]
        memory[...] = weights
        plgpu.commit_smem()
        plgpu.wgmma(accumulator, memory, rows)
        plgpu.wgmma_wait(0)


def _first_scale(step: jax.Array, sizes: KernelSizes) -> jax.Array:
    """The number of the step's first group in its block, where scales are codes."""
    num_groups = sizes.form.block_len // sizes.form.group_len
    first = (box.first(step) for box in sizes.boxes if box.name == "scale_codes")
    return lax.rem(next(first, jnp.int32(0)), jnp.int32(num_groups))


def _by_column(field: Ref, box: FieldBox, step: jax.Array) -> jax.Array:
    """A step's values of each column [64, values]."""
    width, vectors = box.vector, list[jax.Array]()
    for i in range(0, box.values, width):
        values = pl.ds(i, width)
        if box.width > box.values:
            values = pl.ds(pl.multiple_of(box.offset(step) + i, width), width)
        vectors.append(apart(plgpu.load(field.at[:, values], layout=per_row(width), optimized=False), width))
    return jnp.concatenate(vectors, axis=1) if len(vectors) > 1 else vectors[0]


def _of_whole(field: Ref, box: FieldBox, step: jax.Array) -> jax.Array:
    """The same of a field [total, 64] that has the rows of all columns, one after the other."""
    if gpu_interpretation() is None:
        return _by_column(field.reshape(COLUMNS, box.total), box, step)
    # The interpreter does not support views of other shapes.
    return lax.dynamic_slice_in_dim(field[...].reshape(COLUMNS, box.total), box.offset(step), box.values, axis=1)
