"""Device: the TPU kernel that moves token rows from slot to slot in all layers: it reads all, then writes all.

Layers and heads are independent, so the kernel processes them block by block; a block is as large as VMEM allows and
one copy spans it. The rows of a block stay in VMEM between the two halves:

    for each block of layers and heads
        for each pair, in order of destination       pool ─ tile of the source ─→ tiles ─ one row ─→ rows[pair]
        for each tile that is a destination          pool ─ tile ─→ tiles ←─ its rows;  tiles ─→ pool
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Int, Num

from pallas_kernels.dispatch import interpretation
from pallas_kernels.kernel_types import Copy, Ref, Scalar
from pallas_kernels.page_layouts import NUM_LANES, PageLayout, tile_rows
from pallas_kernels.page_ops.aligned_pieces import group
from pallas_kernels.page_ops.mosaic_tpu.copy_pipeline import pipeline
from pallas_kernels.page_ops.mosaic_tpu.pool_tiles import column_dtype, from_columns, require_tiles, to_columns

DEPTH = 8
"""Tiles in flight."""
MAX_TILE_BYTES = 256 << 10
"""Of one tile in all layers and heads of a block; larger blocks only lengthen the kernel's program."""
MAX_ROWS_BYTES = 8 << 20
"""Of a block's rows in VMEM: half of the 16 MiB that a kernel has by default."""


def move_rows(
    pool: Num[Array, "Lg P K page W2"], src_slots: Int[Array, "R"], dst_slots: Int[Array, "R"], *, layout: PageLayout
) -> Num[Array, "Lg P K page W2"]:
    require_tiles(pool)
    page_size = layout.page_size(pool)
    num_layers, _, num_heads, _, num_lanes = pool.shape
    num_rows, tile = len(src_slots), tile_rows(pool.dtype)
    block = block_shape(num_layers, num_heads, num_rows, num_lanes)

    moves = plan_moves(src_slots, dst_slots, page_size, tile)
    num_columns, dtype = num_lanes // NUM_LANES, column_dtype(pool.dtype)
    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(
        partial(_kernel, block=block),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=len(moves),
            grid=(num_layers // block[0], num_heads // block[1]),
            in_specs=[anywhere],
            out_specs=anywhere,
            scratch_shapes=[
                pltpu.VMEM((DEPTH, *block, tile, num_lanes), pool.dtype),
                pltpu.VMEM((num_columns, *block, tile, NUM_LANES), dtype),
                pltpu.VMEM((num_columns, *block, num_rows + -num_rows % 8, NUM_LANES), dtype),
                pltpu.SemaphoreType.DMA((2, DEPTH)),
            ],
        ),
        out_shape=jax.ShapeDtypeStruct(pool.shape, pool.dtype),
        input_output_aliases={len(moves): 0},
        interpret=interpretation(),
        name="page_ops_move_rows",
    )(*moves, pool)


class Moves(NamedTuple):
    """Pairs sorted by destination, so that those of one tile follow each other; those into scratch are left out."""

    src: Ref
    dst: Ref
    num_moves: Ref
    first_rows: Ref
    """First pair of each destination tile."""
    counts: Ref
    num_tiles: Ref


def plan_moves(src_slots: Int[Array, "R"], dst_slots: Int[Array, "R"], page_size: int, tile: int) -> Moves:
    """tile: slots that are read and written together."""
    is_real = dst_slots >= page_size
    last = jnp.iinfo(jnp.int32).max
    dst, src = lax.sort((jnp.where(is_real, dst_slots, last), src_slots), num_keys=1)
    num_moves = jnp.sum(is_real, dtype=jnp.int32)
    starts = jnp.concatenate([jnp.ones(1, bool), dst[1:] // tile != dst[:-1] // tile])
    tiles = group(starts, 0, num_moves, tile)
    return Moves(
        src, dst, jnp.reshape(num_moves, 1), tiles.first_tokens, tiles.counts, jnp.reshape(tiles.num_pieces, 1)
    )


def block_shape(num_layers: int, num_heads: int, num_rows: int, num_lanes: int) -> tuple[int, int]:
    """(layers, heads) that one pass moves: a tile holds 32 bytes of each lane, a row in VMEM 4."""
    rows = f"{num_rows} rows of {num_lanes} lanes"
    return largest_block(num_layers, num_heads, 32 * num_lanes, 4 * num_rows * num_lanes, rows)


def largest_block(num_layers: int, num_heads: int, tile_bytes: int, rows_bytes: int, rows: str) -> tuple[int, int]:
    """The largest divisors of both that fit. tile_bytes, rows_bytes: of one head; rows: their name in the error."""

    def fits(layers: int, heads: int) -> bool:
        num_heads = layers * heads
        return num_heads * tile_bytes <= MAX_TILE_BYTES and num_heads * rows_bytes <= MAX_ROWS_BYTES

    heads = max((n for n in range(1, num_heads + 1) if num_heads % n == 0 and fits(1, n)), default=0)
    if heads == 0:
        raise NotImplementedError(f"{rows} need more than {MAX_ROWS_BYTES} bytes of VMEM")
    if heads < num_heads:
        return 1, heads
    return max(n for n in range(1, num_layers + 1) if num_layers % n == 0 and fits(n, heads)), heads


def _kernel(*refs: Ref, block: tuple[int, int]) -> None:
    moves = Moves(*refs[:6])
    _, pool, tiles, columns, rows, semaphores = refs[6:]
    page_size, tile = pool.shape[3], tiles.shape[3]
    layers = pl.ds(pl.program_id(0) * block[0], block[0])
    heads = pl.ds(pl.program_id(1) * block[1], block[1])
    every_column = range(rows.shape[0])

    def tile_of(slot: Scalar) -> Ref:
        start = pl.multiple_of(lax.rem(slot, page_size) - lax.rem(slot, tile), tile)
        return pool.at[layers, lax.div(slot, page_size), heads, pl.ds(start, tile)]

    def unpack(item: Scalar) -> None:
        for c, column in enumerate(to_columns(tiles[lax.rem(item, DEPTH)])):
            columns[c] = column

    def pick(item: Scalar) -> None:
        unpack(item)
        for c in every_column:
            rows[c, :, :, pl.ds(item, 1)] = columns[c, :, :, pl.ds(lax.rem(moves.src[item], tile), 1)]

    def merge(item: Scalar) -> None:
        unpack(item)

        def put(row: Scalar, carry: None) -> None:
            for c in every_column:
                columns[c, :, :, pl.ds(lax.rem(moves.dst[row], tile), 1)] = rows[c, :, :, pl.ds(row, 1)]

        first = moves.first_rows[item]
        lax.fori_loop(first, first + moves.counts[item], put, None)
        tiles[lax.rem(item, DEPTH)] = from_columns([columns[c] for c in every_column], tiles.dtype)

    read_then_write(moves, tiles, semaphores, tile_of, pick, merge)


def read_then_write(
    moves: Moves,
    tiles: Ref,
    semaphores: Ref,
    tile_of: Callable[[Scalar], Ref],
    pick: Callable[[Scalar], None],
    merge: Callable[[Scalar], None],
) -> None:
    """`pick` takes each pair's row from its source's tile; then `merge` puts each destination tile's rows into it.

    tiles: a ring of DEPTH buffers that holds the current item's tile. tile_of: the pool's tile of a slot.
    """

    def read(slot: Scalar, item: Scalar) -> tuple[Copy, ...]:
        buffer = lax.rem(item, DEPTH)
        return (pltpu.make_async_copy(tile_of(slot), tiles.at[buffer], semaphores.at[0, buffer]),)

    def write(item: Scalar) -> tuple[Copy, ...]:
        buffer = lax.rem(item, DEPTH)
        tile = tile_of(moves.dst[moves.first_rows[item]])
        return (pltpu.make_async_copy(tiles.at[buffer], tile, semaphores.at[1, buffer]),)

    def read_source(item: Scalar) -> tuple[Copy, ...]:
        return read(moves.src[item], item)

    def read_destination(item: Scalar) -> tuple[Copy, ...]:
        return read(moves.dst[moves.first_rows[item]], item)

    pipeline(moves.num_moves[0], DEPTH, DEPTH - 1, read=read_source, compute=pick)
    pipeline(
        moves.num_tiles[0],
        DEPTH,
        DEPTH // 2,
        read=read_destination,
        compute=merge,
        write=write,
    )
