"""Device: the GPU kernel of `expand`: a thread block for each group of tokens and run of output columns.

It adds the rank blocks in turn: of each rank a row of b times a number for each token, in float32 by the CUDA cores, of
which a thread has some columns of all tokens. A wgmma would multiply at least 16 ranks, and sums in 16 bits.

    copies: rows of b → shared memory         warpgroup: sums in registers → shared memory → y, rows of tokens
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array, Float, Float32, Int

from pallas_kernels.dispatch import gpu_interpretation
from pallas_kernels.kernel_types import Ref, Refs, Scalar
from pallas_kernels.lora_matmul.adapter_layout import RANKS, Site
from pallas_kernels.lora_matmul.mosaic_gpu.adapter_rows import adapter_arrays, copy_rows, has_block
from pallas_kernels.lora_matmul.mosaic_gpu.column_runs import ColumnRuns, column_runs
from pallas_kernels.lora_matmul.mosaic_gpu.token_groups import TOKENS, TokenGroups

THREADS, LANES = 128, 32
"""Of a warpgroup, and of a warp."""
MAX_DEPTH = 4
"""Rank blocks in shared memory."""
MAX_SLICE = 256
"""Numbers of a row in one copy."""


def expand_groups(
    sums: Float32[Array, "groups parts R 8"],
    num_tokens: int,
    pool: Float[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    pages: Int[Array, "A B n"],
    groups: TokenGroups,
    site: Site,
) -> Float32[Array, "T chunks W2"]:
    """The outputs of all parts, each from the beginning of a chunk on. sums: of each group's tokens, by rank."""
    runs, width = column_runs(site), math.gcd(site.width, MAX_SLICE)
    slices, depth = site.width // width, min(pages.shape[1], MAX_DEPTH)
    num_slices = runs.length * slices
    arrays: dict[str, Any] = {"sums": sums} | adapter_arrays(pool, layer, pages, groups)
    scratch = {
        "rows": plgpu.SMEM((depth, num_slices, RANKS, width), pool.dtype),
        "outputs": plgpu.SMEM((num_slices, TOKENS, width), jnp.float32),
        "filled": plgpu.Barrier(num_arrivals=num_slices, num_barriers=depth),
    }
    names = (*arrays, "y", *scratch)

    def lora_expand(*refs: Ref) -> None:
        _thread_block(dict(zip(names, refs, strict=True)), runs, slices, site.parts[0].first_b)

    y = plgpu.kernel(
        lora_expand,
        out_type=jax.ShapeDtypeStruct((num_tokens, runs.ends[-1] * slices, width), jnp.float32),
        scratch_types=tuple(scratch.values()),
        grid=(runs.run_ends[-1], len(groups.places)),
        grid_names=("run", "group"),
        interpret=gpu_interpretation(),
    )(*arrays.values())
    return y.reshape(num_tokens, runs.ends[-1], site.width)


def _thread_block(refs: Refs, runs: ColumnRuns, slices: int, first_b: int) -> None:
    """slices: of a chunk."""
    run, group = (lax.axis_index(name) for name in ("run", "group"))
    tokens = [refs["tokens"][group, i] for i in range(TOKENS)]

    @pl.when(tokens[0] >= 0)
    def _() -> None:
        part, first, end = runs.locate(run)
        # Behind the part's end its last chunk again, which is not stored.
        rows = [first_b + jnp.minimum(first + i, end - 1) * RANKS for i in range(runs.length) for _ in range(slices)]
        for i, of_slice in enumerate(_add_blocks(refs, group, part, rows, slices)):
            refs["outputs"][i] = of_slice
        plgpu.commit_smem()
        for i in range(len(rows)):
            for nth, token in enumerate(tokens):

                @pl.when((token >= 0) & (first + i // slices < end))
                def _(i: int = i, nth: int = nth, token: jax.Array = token) -> None:
                    stored = refs["y"].at[pl.ds(token, 1), first * slices + i]
                    plgpu.copy_smem_to_gmem(refs["outputs"].at[i, pl.ds(nth, 1)], stored)

        plgpu.wait_smem_to_gmem(0)


def _add_blocks(
    refs: Refs, group: jax.Array, part: jax.Array, rows: Sequence[jax.Array], slices: int
) -> list[jax.Array]:
    """[tokens, columns] of each slice of chunks, of which a rank block's rows begin at `rows`; 0 without an adapter."""
    place, max_blocks, (depth, _, _, width) = refs["places"][group], refs["pages"].shape[1], refs["rows"].shape
    num_blocks = sum((has_block(refs, place, block).astype(jnp.int32) for block in range(max_blocks)), jnp.int32(0))
    layout, by_rank = _same_columns(width), refs["sums"].at[group, part]

    def copy(block: Scalar) -> None:
        buffer = lax.rem(block, jnp.int32(depth))
        for i, row in enumerate(rows):
            destination, column = refs["rows"].at[buffer, i], i % slices * width
            copy_rows(refs, place, block, row, destination, refs["filled"].at[buffer], unit=RANKS, column=column)

    def add_block(block: jax.Array, sums: list[jax.Array]) -> list[jax.Array]:
        buffer = lax.rem(block, jnp.int32(depth))
        plgpu.barrier_wait(refs["filled"].at[buffer])

        # Not unrolled: the compiler would take four times as long.
        def add_rank(rank: Scalar, sums: list[jax.Array]) -> list[jax.Array]:
            factors = plgpu.load(by_rank.at[block * RANKS + rank], layout=layout.reduce(1), optimized=False)
            return [y + _products(refs["rows"].at[buffer, i, rank], factors, layout) for i, y in enumerate(sums)]

        sums = lax.fori_loop(0, RANKS, add_rank, sums)
        if max_blocks > depth:

            @pl.when(block + depth < num_blocks)
            def _() -> None:
                plgpu.commit_smem()  # all threads have read the buffer
                copy(block + depth)

        return sums

    for block in range(depth):
        pl.when(block < num_blocks)(partial(copy, jnp.int32(block)))
    zeros = cast(jax.Array, plgpu.layout_cast(jnp.zeros((TOKENS, width), jnp.float32), layout))
    return lax.fori_loop(0, num_blocks, add_block, [zeros] * len(rows))


def _products(row: Ref, factors: jax.Array, layout: Any) -> jax.Array:
    """[tokens, columns]: a row times each token's factor."""
    columns = plgpu.load(row, layout=layout.reduce(0), optimized=False).astype(jnp.float32)
    shape = (len(factors), len(columns))
    return lax.broadcast_in_dim(columns, shape, [1]) * lax.broadcast_in_dim(factors, shape, [0])


def _same_columns(width: int) -> Any:
    """A layout of [tokens, columns]: a thread has the same columns of all tokens, up to four of them adjacent."""
    adjacent = math.gcd(width // THREADS, 4)
    tiling = plgpu.Tiling(((1, THREADS * adjacent), (LANES * adjacent,), (adjacent,)))
    return plgpu.Layout.TILED(tiling, warp_dims=(-3,), lane_dims=(-2,), vector_dim=-1)
