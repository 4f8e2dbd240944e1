"""Device: the TPU kernel of sums · bᵀ: of a tile of tokens, and a group of rank blocks at a time.

    sums of a group's items [tile, 2 · 64]  ·  a column block of each item, twice [2 · 64, W2]  ──▶  outputs [tile, W2]

The sums are zero where a token has another adapter. For matrices of bfloat16 they are multiplied in two parts, that is,
with 16 significant bits.
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

MAX_TERMS = 2
"""Numbers of bfloat16 whose sum stands for one of float32."""


def expand_groups(
    sums: Float[Array, "parts R tokens"],
    num_tokens: int,
    pool: Float[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    pages: Int[Array, "A B n"],
    groups: AdapterGroups,
    region: BlockRegion,
    parts: tuple[slice, ...],
    site_name: str,
) -> Float[Array, "T O2"]:
    """The outputs of all parts side by side, each in whole column blocks. tokens: whole tiles. parts: their
    column blocks, counted from the region's first."""
    num_parts, num_ranks, _ = sums.shape
    return pl.pallas_call(
        partial(
            _kernel,
            region=region,
            parts=parts,
            max_blocks=pages.shape[1],
            num_pages=pages.shape[2],
        ),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=4,
            grid=(len(groups.first_groups) - 1,),
            in_specs=[
                sums_of_tile(num_parts, num_ranks),
                PLACES_OF_TILE,
                ANYWHERE,
            ],
            out_specs=rows_of_tile(num_tokens, region.num_columns),
            scratch_shapes=[
                pltpu.VMEM((num_parts, MAX_TERMS * GROUP, RANKS, TILE), jnp.float32),
                pltpu.VMEM((GROUP, RANKS, region.page_shape[2]), jnp.int32),
                pltpu.VMEM((min(num_tokens, TILE), MAX_TERMS * GROUP * RANKS), pool.dtype),
                *region.scratch(pool.dtype),
            ],
        ),
        out_shape=jax.ShapeDtypeStruct((num_tokens, region.num_columns), jnp.float32),
        interpret=interpretation(),
        compiler_params=COMPILER_PARAMS,
        name=f"lora_expand_{site_name}",
    )(
        *(layer[None], groups.first_groups, groups.items, pages.reshape(-1)),
        *(sums, groups.places, pltpu.with_memory_space_constraint(pool, pltpu.HBM)),
    )


def _kernel(*refs: Ref, region: BlockRegion, parts: tuple[slice, ...], max_blocks: int, num_pages: int) -> None:
    scalars = GroupScalars(*refs[:4], max_blocks=max_blocks, num_pages=num_pages)
    sums_ref, places_ref, pool_ref, y_ref, lines_ref, is_item_ref, factors_ref, *buffers = refs[4:]
    stream = AdapterStream(region, scalars, pool_ref, *buffers)
    tile, width, num_tokens = pl.program_id(0), region.page_shape[2], y_ref.shape[0]
    num_terms = 1 if factors_ref.dtype == jnp.float32 else MAX_TERMS
    precision = lax.Precision.HIGHEST if factors_ref.dtype == jnp.float32 else None

    @pl.when(tile == 0)
    def _() -> None:
        stream.begin()

    def add_part(buffer: Scalar, size: int, is_item: jax.Array, columns: slice) -> None:
        def multiply(pair: Scalar, halves: tuple[int, ...], carry: None) -> None:
            blocks, found = stream.blocks(buffer, size, pair), list[jax.Array]()
            for half in halves:
                b = jnp.where(is_item, blocks[half], jnp.zeros_like(blocks[half]))  # elsewhere it may be NaN
                factors = factors_ref[:, : num_terms * size * RANKS]
                terms = jnp.concatenate([b] * num_terms)
                found.append(
                    lax.dot_general(
                        factors, terms, (((1,), (0,)), ((), ())), precision, preferred_element_type=jnp.float32
                    )
                )
            first = pl.multiple_of((2 * pair + halves[0] - region.offset) * width, width)
            y_ref[:, pl.ds(first, len(halves) * width)] += jnp.concatenate(found, axis=1)

        region.each_pair(columns, multiply, None)

    def add_group(group: Scalar, buffer: Scalar, size: int) -> None:
        def add_item(i: Scalar, carry: None) -> None:
            item = scalars.item(group, i)
            is_own = places_ref[...] == item.place
            for part in range(len(parts)):
                left = jnp.where(is_own, sums_ref[part, item.ranks], 0)
                for term in range(num_terms):
                    rounded = left.astype(factors_ref.dtype).astype(jnp.float32)
                    lines_ref[part, term * size + i] = rounded
                    left -= rounded
            is_item_ref[i] = jnp.full((RANKS, width), (item.place >= 0).astype(jnp.int32))

        lax.fori_loop(0, size, add_item, None)
        is_item = is_item_ref[:size].reshape(size * RANKS, width) > 0
        for part, columns in enumerate(parts):
            num_lines = num_terms * size * RANKS
            factors = lines_ref[part, : num_terms * size].reshape(num_lines, TILE).T[:num_tokens]
            factors_ref[:, :num_lines] = factors.astype(factors_ref.dtype)
            add_part(buffer, size, is_item, columns)

    y_ref[...] = jnp.zeros_like(y_ref)
    stream.each_group(tile, add_group)
