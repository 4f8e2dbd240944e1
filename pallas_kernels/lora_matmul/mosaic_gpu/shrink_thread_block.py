"""Device: the GPU kernel of `shrink`: a thread block for each group of tokens, rank block, and 8 chunks of inputs.

A chunk of inputs is one row of a page wide, and of each chunk a rank block has a row for each of 8 ranks. So 64 rows of
pages, 8 chunks, are the left side of a wgmma as they lie in memory, and 8 chunks of 8 tokens its right side:

                          token 0              token 1                     of the product of chunk i's rows with chunk
                          chunks 0 1 2 … 7     chunks 0 1 2 … 7   …        j's inputs, only those of i = j are used:
    chunk 0, 8 ranks             x                    x                    1/8 of the work of a tensor core that waits
    chunk 1, 8 ranks               x                    x                  for memory
    …

What a thread block finds for each token and row is stored, and added over all chunks afterwards, in a fixed order.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.experimental.pallas.mosaic_gpu import WGMMAAccumulatorRef as ACC
from jaxtyping import Array, Float, Float32, Int

from pallas_kernels.dispatch import gpu_interpretation
from pallas_kernels.gpu_ring import tiled
from pallas_kernels.kernel_types import Ref, Refs
from pallas_kernels.lora_matmul.adapter_layout import RANKS, Site
from pallas_kernels.lora_matmul.mosaic_gpu.adapter_rows import adapter_arrays, copy_rows, has_block
from pallas_kernels.lora_matmul.mosaic_gpu.token_groups import TOKENS, TokenGroups

CHUNKS = 8
ROWS = CHUNKS * RANKS
SWIZZLED = 64
"""Inputs of 16 bits in the widest swizzle."""


def shrink_groups(
    x: Float[Array, "T chunks W2"],
    pool: Float[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    pages: Int[Array, "A B n"],
    groups: TokenGroups,
    site: Site,
) -> Float32[Array, "T parts B steps 64"]:
    """Of each token the sums of 8 chunks of inputs by (chunk, rank); undefined where its adapter has no rank block.

    x: a multiple of 8 chunks; 0 behind the site's inputs.
    """
    num_tokens, _, width = x.shape
    num_chunks = -(-site.parts[0].num_inputs // width)
    num_parts, num_steps = len(site.parts), -(-num_chunks // CHUNKS)
    shape = (num_tokens, num_parts, pages.shape[1], num_steps, ROWS)
    arrays: dict[str, Any] = {"x": x} | adapter_arrays(pool, layer, pages, groups)
    unit = math.gcd(ROWS, arrays["pool"].shape[2], *(part.first_a for part in site.parts))
    scratch = {
        "rows": tiled((ROWS, width), pool.dtype, unit=SWIZZLED),
        "inputs": tiled((TOKENS * CHUNKS, width), pool.dtype, unit=SWIZZLED),
        "filled": plgpu.Barrier(num_arrivals=ROWS // unit + TOKENS),
    }
    names = (*arrays, "sums", *scratch)

    def lora_shrink(*refs: Ref) -> None:
        _thread_block(dict(zip(names, refs, strict=True)), num_chunks, num_steps, unit)

    return plgpu.kernel(
        lora_shrink,
        out_type=jax.ShapeDtypeStruct(shape, jnp.float32),
        scratch_types=tuple(scratch.values()),
        grid=(num_parts * num_steps, shape[2], len(groups.places)),
        grid_names=("step", "block", "group"),
        interpret=gpu_interpretation(),
    )(*arrays.values())


def _thread_block(refs: Refs, num_chunks: int, num_steps: int, unit: int) -> None:
    step, block, group = (lax.axis_index(name) for name in ("step", "block", "group"))
    part, step = lax.div(step, jnp.int32(num_steps)), lax.rem(step, jnp.int32(num_steps))
    place = refs["places"][group]

    @pl.when(has_block(refs, place, block))
    def _() -> None:
        tokens = [refs["tokens"][group, i] for i in range(TOKENS)]
        num_rows = num_chunks * RANKS
        for start in range(0, ROWS, unit):
            # Behind the last chunk its rows again: any finite numbers, which are multiplied by inputs of 0.
            own = jnp.minimum(step * ROWS + start, (num_rows - 1) // unit * unit)
            destination = refs["rows"].at[pl.ds(start, unit)]
            copy_rows(refs, place, block, part * num_rows + own, destination, refs["filled"], unit=unit)
        chunks = pl.ds(pl.multiple_of(step * CHUNKS, CHUNKS), CHUNKS)
        for i, token in enumerate(tokens):
            # The first token again where there is none.
            source = refs["x"].at[jnp.where(token < 0, tokens[0], token), chunks]
            plgpu.copy_gmem_to_smem(source, refs["inputs"].at[pl.ds(i * CHUNKS, CHUNKS)], refs["filled"])
        plgpu.barrier_wait(refs["filled"])
        for token, sums in zip(tokens, _sums_of_tokens(refs), strict=True):

            @pl.when(token >= 0)
            def _(token: jax.Array = token, sums: jax.Array = sums) -> None:
                refs["sums"][token, part, block, step] = sums


def _sums_of_tokens(refs: Refs) -> list[jax.Array]:
    """Of each token the products of rows, [64], with its inputs in the same chunk."""

    def product(accumulator: Ref) -> jax.Array:
        plgpu.wgmma(accumulator, refs["rows"], refs["inputs"].transpose((1, 0)))
        plgpu.wgmma_wait(0)
        return accumulator[...]

    found: jax.Array = pl.run_scoped(product, ACC((ROWS, TOKENS * CHUNKS), jnp.float32))
    shape = (ROWS, CHUNKS)
    row, chunk = (plgpu.broadcasted_iota(jnp.int32, shape, axis, layout=plgpu.Layout.WGMMA) for axis in (0, 1))
    is_own = lax.div(row, jnp.int32(RANKS)) == chunk
    of_tokens = [found[:, i * CHUNKS : (i + 1) * CHUNKS] for i in range(TOKENS)]
    return [jnp.sum(jnp.where(is_own, of_token, 0.0), axis=1) for of_token in of_tokens]
