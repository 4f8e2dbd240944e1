"""Device: the TPU kernel that moves tokens from slot to slot in all layers of a pool in LANES: reads, then writes.

Like `row_moves`, with tiles of 128 slots. The tokens of a block stay in VMEM as columns, 128 of them in a tile:

    pool ─ tile of the source ─→ tiles ─ rotated, one lane ─→ waiting[pair]
    pool ─ tile ─→ tiles ←─ rotated, one lane ─ waiting[pair];  tiles ─→ pool
"""

from functools import partial

import jax
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Int, Num

from pallas_kernels.dispatch import interpretation
from pallas_kernels.kernel_types import Ref, Scalar
from pallas_kernels.page_layouts import NUM_LANES, PageLayout
from pallas_kernels.page_ops.mosaic_tpu.lane_insert import insert_columns
from pallas_kernels.page_ops.mosaic_tpu.pool_tiles import require_tiles
from pallas_kernels.page_ops.mosaic_tpu.row_moves import DEPTH, Moves, largest_block, plan_moves, read_then_write


def move_rows(
    pool: Num[Array, "Lg P K packed page"],
    src_slots: Int[Array, "R"],
    dst_slots: Int[Array, "R"],
    *,
    layout: PageLayout,
) -> Num[Array, "Lg P K packed page"]:
    require_tiles(pool)
    num_layers, _, num_heads, packed_len, _ = pool.shape
    num_waiting = -(-len(src_slots) // NUM_LANES)
    tile_bytes = packed_len * NUM_LANES * pool.dtype.itemsize
    rows = f"{len(src_slots)} tokens of {packed_len} numbers"
    block = largest_block(num_layers, num_heads, tile_bytes, num_waiting * tile_bytes, rows)
    moves = plan_moves(src_slots, dst_slots, layout.page_size(pool), NUM_LANES)
    tile = (*block, packed_len, NUM_LANES)
    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(
        partial(_kernel, block=block),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=len(moves),
            grid=(num_layers // block[0], num_heads // block[1]),
            in_specs=[anywhere],
            out_specs=anywhere,
            scratch_shapes=[
                pltpu.VMEM((DEPTH, *tile), pool.dtype),
                pltpu.VMEM((num_waiting, *tile), pool.dtype),
                pltpu.SemaphoreType.DMA((2, DEPTH)),
            ],
        ),
        out_shape=jax.ShapeDtypeStruct(pool.shape, pool.dtype),
        input_output_aliases={len(moves): 0},
        interpret=interpretation(),
        name="page_ops_move_lanes",
    )(*moves, pool)


def _kernel(*refs: Ref, block: tuple[int, int]) -> None:
    moves = Moves(*refs[:6])
    _, pool, tiles, waiting, semaphores = refs[6:]
    page_size = pool.shape[4]
    layers = pl.ds(pl.program_id(0) * block[0], block[0])
    heads = pl.ds(pl.program_id(1) * block[1], block[1])

    def tile_of(slot: Scalar) -> Ref:
        start = pl.multiple_of(lax.rem(slot, page_size) - lax.rem(slot, NUM_LANES), NUM_LANES)
        return pool.at[layers, lax.div(slot, page_size), heads, :, pl.ds(start, NUM_LANES)]

    def move(target: Ref, at: tuple[Scalar, Scalar], source: Ref, lane: Scalar, to_lane: Scalar) -> None:
        """One lane of source[at[1]] into target[at[0]], in all layers and heads of the block."""

        def move_head(i: Scalar, carry: None) -> None:
            head = (lax.div(i, block[1]), lax.rem(i, block[1]))
            old, new = target[(at[0], *head)], source[(at[1], *head)]
            target[(at[0], *head)] = insert_columns(old, [new], lane, to_lane, 1)

        lax.fori_loop(0, block[0] * block[1], move_head, None)

    def pick(item: Scalar) -> None:
        at = (lax.div(item, NUM_LANES), lax.rem(item, DEPTH))
        move(waiting, at, tiles, lax.rem(moves.src[item], NUM_LANES), lax.rem(item, NUM_LANES))

    def merge(item: Scalar) -> None:
        def put(pair: Scalar, carry: None) -> None:
            at = (lax.rem(item, DEPTH), lax.div(pair, NUM_LANES))
            move(tiles, at, waiting, lax.rem(pair, NUM_LANES), lax.rem(moves.dst[pair], NUM_LANES))

        first = moves.first_rows[item]
        lax.fori_loop(first, first + moves.counts[item], put, None)

    read_then_write(moves, tiles, semaphores, tile_of, pick, merge)
