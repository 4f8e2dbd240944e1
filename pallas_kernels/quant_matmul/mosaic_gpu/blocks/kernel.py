"""Device: the GPU kernel of products with packed blocks: thread blocks, each of 64 columns or more, a run of inputs and
a chunk of rows. Those of a run's chunks follow each other, so that all but the first read its bytes from the L2 cache.

memory warpgroup       the layer's packed bytes, and the rows → ring in shared memory (TMA)
compute warpgroups     packed bytes → weights in registers → sums → activation, bias → y, or → one split's sums
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array, Float, Int, Shaped

from pallas_kernels.dispatch import gpu_interpretation
from pallas_kernels.kernel_types import Ref, Refs
from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.matmul.mosaic_gpu.compute_warpgroup import store_tile
from pallas_kernels.matmul.mosaic_gpu.kernel_sizes import COLUMNS
from pallas_kernels.matmul.mosaic_gpu.memory_warpgroup import Work
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.compute_warpgroup import multiply_steps
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.kernel_sizes import KernelSizes
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.memory_warpgroup import stream_steps


def multiply_blocks(
    x: Float[Array, "chunks N I"],
    fields: dict[str, Shaped[Array, "L parts O n"]],
    layer: Int[Array, ""],
    bias: Float[Array, "O"] | None,
    *,
    sizes: KernelSizes,
    spec: MatmulSpec,
) -> Float[Array, "chunks N O"] | Float[Array, "chunks splits parts N O"]:
    """The result; with several splits their sums in float32, without bias and activation. x: `InputOrder.permuted`."""
    tiles = (sizes.num_tiles, sizes.columns)
    whole = {box.name for box in sizes.whole_boxes}
    rows = {
        name: field.reshape(*field.shape[:2], -1, COLUMNS if name in whole else field.shape[-1])
        for name, field in fields.items()
    }
    arrays: dict[str, Any] = {"x": x, **rows, "layer": layer.reshape(1)}
    if sizes.scale_values:
        arrays["scale_values"] = jnp.asarray(sizes.scale_values, jnp.float32)
    splits = (sizes.splits, sizes.num_parts) if sizes.splits > 1 else ()
    shape = (sizes.num_chunks, *splits, sizes.num_rows, *tiles)
    if sizes.splits == 1 and bias is not None:
        arrays["bias"] = bias.reshape(tiles)
    interpreter = gpu_interpretation()
    scratch = sizes.scratch(is_interpreted=interpreter is not None)
    names = (*arrays, "y", *scratch)

    def block_tiles(*refs: Ref) -> None:
        _thread_block(dict(zip(names, refs, strict=True)), sizes, spec)

    y = plgpu.kernel(
        block_tiles,
        out_type=jax.ShapeDtypeStruct(shape, jnp.float32 if sizes.splits > 1 else sizes.out_dtype),
        scratch_types=tuple(scratch.values()),
        grid=(sizes.splits, sizes.num_tiles // sizes.warpgroups, sizes.num_chunks),
        grid_names=("split", "tile", "chunk"),
        num_threads=sizes.warpgroups + 1,
        thread_name="group",
        interpret=interpreter,
    )(*arrays.values())
    return y.reshape(*shape[:-2], sizes.num_columns)


def _thread_block(refs: Refs, sizes: KernelSizes, spec: MatmulSpec) -> None:
    split, tile, chunk, group = (lax.axis_index(name) for name in ("split", "tile", "chunk", "group"))
    refs = refs | {name: refs[name].at[chunk] for name in ("x", "y")}
    begin, end = (lax.div((split + i) * sizes.num_steps, jnp.int32(sizes.splits)) for i in (0, 1))

    @pl.when(group == sizes.warpgroups)
    def _() -> None:
        stream_steps(refs, Work(tile, split, begin, end), sizes)

    @pl.when(group < sizes.warpgroups)
    def _() -> None:
        own = Work(tile * sizes.warpgroups + group, split, begin, end)
        store_tile(refs, own, multiply_steps(refs, own, group, sizes), sizes, spec)
