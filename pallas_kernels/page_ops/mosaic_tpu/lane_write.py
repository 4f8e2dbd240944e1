"""Device: the TPU kernel that writes a batch's new keys and values into one layer of a pool in LANES, piece by piece.

A piece is 128 slots of a page, the least that can be written: [K, 2·H', 128]. Its tokens come from two neighboring
tiles of 128 tokens, rotated so that each lies on its lane:

    columns, by head    · · · · · a b c│d e f g · · · ·        the tokens b … e go to one piece, from its lane 2 on
        │ DMA, two tiles
    rotated             a b c · · · · ·│· · · · d e f g        both by as many lanes
    piece               o o b c d e o o                        merged with the old lanes, read unless all are new
        │ DMA
    pool[layer, page, :, :, piece]
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Int, Num

from pallas_kernels.dispatch import interpretation
from pallas_kernels.kernel_types import Ref, Scalar
from pallas_kernels.page_layouts import NUM_LANES
from pallas_kernels.page_ops.aligned_pieces import Pieces, piece_len, plan_pieces
from pallas_kernels.page_ops.mosaic_tpu import piece_writes
from pallas_kernels.page_ops.mosaic_tpu.lane_insert import insert_columns
from pallas_kernels.page_ops.mosaic_tpu.piece_writes import PieceScalars, piece_scalars, ring_depth, write_pieces
from pallas_kernels.page_ops.mosaic_tpu.pool_tiles import require_tiles
from pallas_kernels.page_ops.token_write import TokenWrite


def write(pool: Num[Array, "Lg P K packed page"], tokens: TokenWrite) -> Num[Array, "Lg P K packed page"]:
    """See `api.write`."""
    require_tiles(pool)
    pieces = tokens.pieces
    if pieces is None:
        pieces = plan_pieces(tokens.slots, tokens.begin, tokens.end, piece_len(pool.shape[4], tokens.layout))
    if pieces.piece_len != NUM_LANES:
        raise NotImplementedError(f"pieces of {pieces.piece_len} slots are not the {NUM_LANES} lanes of a tile")
    padding = -len(tokens.slots) % NUM_LANES + NUM_LANES  # one more tile, so that every token's tile has a next one
    packed = tokens.packed(pool, padding)
    return _write_columns(pool, tokens.layer, jnp.moveaxis(packed, 0, 2), tokens.slots, pieces)


def _write_columns(
    pool: Num[Array, "Lg P K packed page"],
    layer: Int[Array, ""],
    columns: Num[Array, "K packed T2"],
    slots: Int[Array, "T"],
    pieces: Pieces,
) -> Num[Array, "Lg P K packed page"]:
    """T2: tokens padded to whole tiles, and one more."""
    num_heads, packed_len, _ = columns.shape
    head_bytes = 3 * packed_len * NUM_LANES * pool.dtype.itemsize
    most = max(1, piece_writes.MAX_RING_BYTES // (2 * head_bytes))
    heads = max(n for n in range(1, min(most, num_heads) + 1) if num_heads % n == 0)
    depth = ring_depth(heads * head_bytes)
    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(
        _kernel,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=5,
            grid=(num_heads // heads,),
            in_specs=[anywhere, anywhere],
            out_specs=anywhere,
            scratch_shapes=[
                pltpu.VMEM((depth, heads, packed_len, 2 * NUM_LANES), pool.dtype),
                pltpu.VMEM((depth, heads, packed_len, NUM_LANES), pool.dtype),
                pltpu.SemaphoreType.DMA((3, depth)),
            ],
        ),
        out_shape=jax.ShapeDtypeStruct(pool.shape, pool.dtype),
        input_output_aliases={6: 0},
        interpret=interpretation(),
        name="page_ops_lane_write",
    )(
        *piece_scalars(layer, slots, pieces),
        columns,
        pool,
    )


def _kernel(*refs: Ref) -> None:
    scalars, (columns, _, pool, new, merged, semaphores) = PieceScalars(*refs[:5]), refs[5:]
    num_heads = merged.shape[1]
    first_head: jax.Array = pl.program_id(0) * num_heads
    heads: Any = pl.ds(first_head, num_heads)

    def tokens_at(token: jax.Array) -> Ref:
        first = pl.multiple_of(token - lax.rem(token, NUM_LANES), NUM_LANES)
        return columns.at[heads, :, pl.ds(first, 2 * NUM_LANES)]

    def piece_at(layer: jax.Array, page: jax.Array, start: jax.Array) -> Ref:
        return pool.at[layer, page, heads, :, pl.ds(start, NUM_LANES)]

    def merge(item: Scalar, buffer: jax.Array, token: jax.Array, lane: jax.Array) -> None:
        def merge_head(head: Scalar, carry: Scalar) -> Scalar:
            tiles = [new[buffer, head, :, i * NUM_LANES : (i + 1) * NUM_LANES] for i in range(2)]
            old, place = merged[buffer, head], lax.rem(token, NUM_LANES)
            merged[buffer, head] = insert_columns(old, tiles, place, lane, scalars.counts[item])
            return carry

        lax.fori_loop(0, num_heads, merge_head, 0)

    write_pieces(
        scalars,
        new,
        merged,
        semaphores,
        piece_len=NUM_LANES,
        page_size=pool.shape[4],
        tokens_at=tokens_at,
        piece_at=piece_at,
        merge=merge,
    )
