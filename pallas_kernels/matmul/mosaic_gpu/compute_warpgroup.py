"""Device: the compute warpgroup of a GPU kernel of `matmul`: sums a tile of columns over the steps in the ring.

yᵀ[columns, rows] = W[columns, inputs] · xᵀ[inputs, rows]: a wgmma has at least 64 rows, which the columns fill, and any
multiple of 8 columns, so that few rows of x are little work. Codes of weights are widened in registers, from which a
wgmma takes its left side, unless x has codes of their type; each column's sums are multiplied by its scale, and each
row's by that of x.
"""

from typing import Any, Protocol, cast, runtime_checkable

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.experimental.pallas.mosaic_gpu import WGMMAAccumulatorRef as ACC

from pallas_kernels.gpu_ring import buffer_of
from pallas_kernels.kernel_types import Ref, Refs
from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.matmul.mosaic_gpu.finish import finish
from pallas_kernels.matmul.mosaic_gpu.kernel_sizes import KernelSizes
from pallas_kernels.matmul.mosaic_gpu.memory_warpgroup import Work

MATRIX = plgpu.Layout.WGMMA_TRANSPOSED
"""Two columns of a row in each pair of registers, as they lie in memory; a product's sums have two rows."""


@runtime_checkable
class StoredTile(Protocol):
    """Of the tile of columns whose sums a warpgroup has."""

    @property
    def columns(self) -> int: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def splits(self) -> int: ...
    @property
    def out_dtype(self) -> Any: ...


def multiply_steps(refs: Refs, work: Work, sizes: KernelSizes) -> list[jax.Array]:
    """The sums over the work's steps of each part, [columns, rows] in float32."""

    def sums(*accumulators: Ref) -> list[jax.Array]:
        @pl.loop(work.begin, work.end)
        def _(step: jax.Array) -> None:
            buffer = buffer_of(step, work.begin, sizes.depth)
            plgpu.barrier_wait(refs["filled"].at[buffer])
            rows = refs["rows"].at[buffer].transpose((1, 0))
            for part, accumulator in enumerate(accumulators):
                plgpu.wgmma(accumulator, _weights(refs, buffer, part, sizes), rows)
            plgpu.wgmma_wait(0)
            plgpu.barrier_arrive(refs["freed"].at[buffer])

        sums = (accumulator[...].astype(jnp.float32) for accumulator in accumulators)
        found: list[jax.Array] = [plgpu.layout_cast(y, MATRIX) for y in sums]
        if "scales" not in refs:
            return found
        scales = refs["scales"].at[refs["layer"][0]]
        found = [y * _by_column(scales.at[part, work.tile], sizes) for part, y in enumerate(found)]
        if "row_scales" not in refs:
            return found
        of_rows = plgpu.load(refs["row_scales"], layout=MATRIX.reduce(0), optimized=False)
        return [y * lax.broadcast_in_dim(of_rows, y.shape, [1]) for y in found]

    tile = ACC((sizes.columns, sizes.num_rows), sizes.sum_dtype)
    return pl.run_scoped(sums, *[tile] * sizes.num_parts)


def _weights(refs: Refs, buffer: jax.Array, part: int, sizes: KernelSizes) -> Ref | jax.Array:
    """A step's weights in the type of the rows."""
    weights = refs["weights"].at[buffer, part]
    if not sizes.is_widened:
        return weights
    if "widened" not in refs:
        codes = plgpu.load(weights, layout=plgpu.Layout.WGMMA_UPCAST_2X)
        return cast(jax.Array, plgpu.layout_cast(codes.astype(sizes.dtype), plgpu.Layout.WGMMA))
    # The interpreter does not support operands in registers.
    refs["widened"][part] = weights[...].astype(sizes.dtype)
    plgpu.commit_smem()
    return refs["widened"].at[part]


def _by_column(ref: Ref, sizes: StoredTile) -> jax.Array:
    """[columns, rows]: a number for each column."""
    numbers = plgpu.load(ref, layout=MATRIX.reduce(1), optimized=False)
    return lax.broadcast_in_dim(numbers, (sizes.columns, sizes.num_rows), [0])


def store_tile(refs: Refs, work: Work, sums: list[jax.Array], sizes: StoredTile, spec: MatmulSpec) -> None:
    """Stores a tile of the result, or of a split's sums."""

    def columns_of(ref: Ref) -> Ref:
        return ref.at[:, work.tile].transpose((1, 0))

    if sizes.splits > 1:
        for part, found in enumerate(sums):
            columns_of(refs["y"].at[work.split, part])[...] = found
        return
    added: list[jax.Array] = []
    if "bias" in refs:
        added.append(_by_column(refs["bias"].at[work.tile], sizes))
    if "residual" in refs:
        added.append(plgpu.load(columns_of(refs["residual"]), layout=MATRIX, optimized=False))
    columns_of(refs["y"])[...] = finish(sums, added, spec).astype(sizes.out_dtype)
