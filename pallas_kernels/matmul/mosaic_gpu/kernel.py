"""Device: the GPU kernel of `matmul`: thread blocks, each of a tile of output columns and a run of the inputs.

memory warpgroup      the layer's weights, and the rows → ring in shared memory (TMA)
compute warpgroup     sums in registers → activation, bias, residual → y, or → one split's sums
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array, Float, Int, Num

from pallas_kernels.dispatch import gpu_interpretation
from pallas_kernels.kernel_types import Ref, Refs
from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.matmul.mosaic_gpu.compute_warpgroup import multiply_steps, store_tile
from pallas_kernels.matmul.mosaic_gpu.kernel_sizes import KernelSizes
from pallas_kernels.matmul.mosaic_gpu.memory_warpgroup import Work, stream_steps

COMPUTE, MEMORY = range(2)
"""Warpgroups."""


def multiply(
    x: Num[Array, "N I"],
    stack: Num[Array, "L parts O I"],
    scales: Float[Array, "L parts O"] | None,
    row_scales: Float[Array, "N"] | None,
    layer: Int[Array, ""],
    bias: Float[Array, "O"] | None,
    residual: Float[Array, "N O"] | None,
    *,
    sizes: KernelSizes,
    spec: MatmulSpec,
) -> Float[Array, "N O"] | Float[Array, "splits parts N O"]:
    """The result; with several splits their sums in float32, without bias, residual and activation.

    scales: of a stack of codes; float32. row_scales: of x, if it has codes; float32.
    """
    tiles = (sizes.num_tiles, sizes.columns)
    arrays: dict[str, Any] = {"x": x, "stack": stack, "layer": layer.reshape(1)}
    if scales is not None:
        arrays["scales"] = scales.reshape(*scales.shape[:2], *tiles)
    if row_scales is not None:
        arrays["row_scales"] = row_scales
    shape = (sizes.num_rows, *tiles)
    if sizes.splits > 1:
        shape = (sizes.splits, sizes.num_parts, *shape)
    else:
        if bias is not None:
            arrays["bias"] = bias.reshape(tiles)
        if residual is not None:
            arrays["residual"] = residual.reshape(shape)
    interpreter = gpu_interpretation()
    scratch = sizes.scratch(is_interpreted=interpreter is not None)
    names = (*arrays, "y", *scratch)

    def matmul_tiles(*refs: Ref) -> None:
        _thread_block(dict(zip(names, refs, strict=True)), sizes, spec)

    y = plgpu.kernel(
        matmul_tiles,
        out_type=jax.ShapeDtypeStruct(shape, jnp.float32 if sizes.splits > 1 else sizes.out_dtype),
        scratch_types=tuple(scratch.values()),
        grid=(sizes.splits, sizes.num_tiles),
        grid_names=("split", "tile"),
        num_threads=2,
        thread_name="group",
        interpret=interpreter,
    )(*arrays.values())
    return y.reshape(*shape[:-2], sizes.num_columns)


def _thread_block(refs: Refs, sizes: KernelSizes, spec: MatmulSpec) -> None:
    split, tile, group = (lax.axis_index(name) for name in ("split", "tile", "group"))
    begin, end = (lax.div((split + i) * sizes.num_steps, jnp.int32(sizes.splits)) for i in (0, 1))
    work = Work(tile, split, begin, end)

    @pl.when(group == MEMORY)
    def _() -> None:
        stream_steps(refs, work, sizes)

    @pl.when(group == COMPUTE)
    def _() -> None:
        store_tile(refs, work, multiply_steps(refs, work, sizes), sizes, spec)
