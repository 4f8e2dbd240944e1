"""Device: the memory warpgroup of a GPU kernel of `matmul`: streams weights and activations into the ring."""

from typing import NamedTuple

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from pallas_kernels.gpu_ring import fill_ring
from pallas_kernels.kernel_types import Refs
from pallas_kernels.matmul.mosaic_gpu.kernel_sizes import KernelSizes


class Work(NamedTuple):
    """A thread block's work: output columns [tile · columns, … + columns), steps begin <= s < end of the inputs."""

    tile: jax.Array
    split: jax.Array
    begin: jax.Array
    end: jax.Array


def stream_steps(refs: Refs, work: Work, sizes: KernelSizes) -> None:
    """Fills the ring's buffers in turn, each after the compute warpgroup has released its previous step."""
    layer = refs["layer"][0]

    def fill(step: jax.Array, buffer: jax.Array) -> None:
        inputs = pl.ds(pl.multiple_of(step * sizes.inputs, sizes.inputs), sizes.inputs)
        _copy_weights(refs, layer, work, inputs, buffer, sizes)
        plgpu.copy_gmem_to_smem(refs["x"].at[:, inputs], refs["rows"].at[buffer], refs["filled"].at[buffer])

    fill_ring(work.begin, work.end, sizes.depth, refs["freed"], fill)


def _copy_weights(
    refs: Refs, layer: jax.Array, work: Work, inputs: pl.Slice, buffer: jax.Array, sizes: KernelSizes
) -> None:
    columns = pl.ds(pl.multiple_of(work.tile * sizes.columns, sizes.columns), sizes.columns)
    for part in range(sizes.num_parts):
        plgpu.copy_gmem_to_smem(
            refs["stack"].at[layer, part, columns, inputs],
            refs["weights"].at[buffer, part],
            refs["filled"].at[buffer],
        )
