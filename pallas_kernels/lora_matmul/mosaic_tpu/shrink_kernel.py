"""Device: the TPU kernel of x · aᵀ: of a tile of tokens, which lie on lanes, and a group of rank blocks at a time.

a column block of each item [64, W2]  ·  its inputs of the tokens [tile, W2]ᵀ  ──▶  sums [64, tile]
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Float, Int

from pallas_kernels.dispatch import interpretation
from pallas_kernels.kernel_types import Ref, Scalar
from pallas_kernels.lora_matmul.adapter_layout import RANKS
from pallas_kernels.lora_matmul.mosaic_tpu.adapter_groups import GROUP, TILE, AdapterGroups
from pallas_kernels.lora_matmul.mosaic_tpu.adapter_stream import AdapterStream, GroupScalars
from pallas_kernels.lora_matmul.mosaic_tpu.block_region import BlockRegion
from pallas_kernels.lora_matmul.mosaic_tpu.tile_blocks import (
    ANYWHERE,
    COMPILER_PARAMS,
    PLACES_OF_TILE,
    rows_of_tile,
    sums_of_tile,
)


def shrink_groups(
    x: Float[Array, "T I2"],
    pool: Float[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    pages: Int[Array, "A B n"],
    groups: AdapterGroups,
    region: BlockRegion,
    num_parts: int,
    site_name: str,
) -> Float[Array, "parts R tokens"]:
    """I2: whole column blocks. tokens: whole tiles."""
    num_tokens, num_inputs = x.shape
    num_ranks = pages.shape[1] * RANKS
    return pl.pallas_call(
        partial(_kernel, region=region, num_parts=num_parts, max_blocks=pages.shape[1], num_pages=pages.shape[2]),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=4,
            grid=(len(groups.first_groups) - 1,),
            in_specs=[
                rows_of_tile(num_tokens, num_inputs),
                PLACES_OF_TILE,
                ANYWHERE,
            ],
            out_specs=sums_of_tile(num_parts, num_ranks),
            scratch_shapes=[
                pltpu.VMEM((num_parts, GROUP, RANKS, min(num_tokens, TILE)), jnp.float32),
                *region.scratch(pool.dtype),
            ],
        ),
        out_shape=jax.ShapeDtypeStruct((num_parts, num_ranks, groups.places.shape[1]), jnp.float32),
        interpret=interpretation(),
        compiler_params=COMPILER_PARAMS,
        name=f"lora_shrink_{site_name}",
    )(
        *(layer[None], groups.first_groups, groups.items, pages.reshape(-1)),
        *(x, groups.places, pltpu.with_memory_space_constraint(pool, pltpu.HBM)),
    )


def _kernel(*refs: Ref, region: BlockRegion, num_parts: int, max_blocks: int, num_pages: int) -> None:
    scalars = GroupScalars(*refs[:4], max_blocks=max_blocks, num_pages=num_pages)
    x_ref, places_ref, pool_ref, sums_ref, found_ref, *buffers = refs[4:]
    stream = AdapterStream(region, scalars, pool_ref, *buffers)
    tile, width, num_tokens = pl.program_id(0), region.page_shape[2], x_ref.shape[0]
    blocks_of_part = x_ref.shape[1] // width
    precision = lax.Precision.HIGHEST if x_ref.dtype == jnp.float32 else None

    @pl.when(tile == 0)
    def _() -> None:
        stream.begin()

    def products(buffer: Scalar, size: int, part: int) -> jax.Array:
        """[size, RANKS, tile]: of all tokens with each item."""
        first = part * blocks_of_part

        def multiply(pair: Scalar, halves: tuple[int, ...], sums: jax.Array) -> jax.Array:
            blocks = stream.blocks(buffer, size, pair)
            for half in halves:
                start = pl.multiple_of((2 * pair + half - region.offset - first) * width, width)
                inputs, a = x_ref[:, pl.ds(start, width)], blocks[half].astype(x_ref.dtype)
                sums += lax.dot_general(
                    a, inputs, (((1,), (1,)), ((), ())), precision, preferred_element_type=jnp.float32
                )
            return sums

        zeros = jnp.zeros((size * RANKS, num_tokens), jnp.float32)
        sums = region.each_pair(slice(first, first + blocks_of_part), multiply, zeros)
        return sums.reshape(size, RANKS, num_tokens)

    def add_group(group: Scalar, buffer: Scalar, size: int) -> None:
        for part in range(num_parts):
            found_ref[part, :size] = products(buffer, size, part)

        def keep_own(i: Scalar, carry: None) -> None:
            item = scalars.item(group, i)
            is_own = places_ref[:, :num_tokens] == item.place
            for part in range(num_parts):
                at = (part, item.ranks, slice(0, num_tokens))
                sums_ref[at] = jnp.where(is_own, found_ref[part, i], sums_ref[at])

        lax.fori_loop(0, size, keep_own, None)

    sums_ref[...] = jnp.zeros_like(sums_ref)
    stream.each_group(tile, add_group)
