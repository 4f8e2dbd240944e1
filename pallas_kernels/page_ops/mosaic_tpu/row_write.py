"""Device: the TPU kernel that writes a batch's new keys and values into one layer of a pool in ROWS, piece by piece.

For a scatter, XLA gives the pool the scatter's layout on some shapes and copies all of it there and back in every layer
(2 KV heads on v5e: 18 ms instead of 0.6 a step).

    rows, by head       · · a b│c d e f│g h · ·        tiles of 4; the tokens b … g go to one piece, from its row 5 on
        │ DMA, whole tiles
    new                 · · a b c d e f g h · ·
        │ as columns, from row piece_len on            only 32-bit data can be read from any row on:
    shifted   ? ? ? ? ? ? ? ? · · a b c d e f g h · · ? ? ? ? ? ? ? ?
                  └── piece_len rows from here ──┘     such that b stands in row 5
    piece               o o o o o b c d e f g o        merged with the old rows, read unless all are new
        │ DMA
    pool[layer, page, :, piece]
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Int, Num

from pallas_kernels.dispatch import interpretation
from pallas_kernels.kernel_types import Ref, Scalar
from pallas_kernels.page_layouts import NUM_LANES, tile_rows
from pallas_kernels.page_ops.aligned_pieces import Pieces, piece_len, plan_pieces
from pallas_kernels.page_ops.mosaic_tpu.piece_writes import PieceScalars, piece_scalars, ring_depth, write_pieces
from pallas_kernels.page_ops.mosaic_tpu.pool_tiles import column_dtype, from_columns, require_tiles, to_columns
from pallas_kernels.page_ops.token_write import TokenWrite


def write(pool: Num[Array, "Lg P K page W2"], tokens: TokenWrite) -> Num[Array, "Lg P K page W2"]:
    """See `api.write`."""
    require_tiles(pool)
    page_size = pool.shape[3]
    tile = tile_rows(pool.dtype)
    pieces = tokens.pieces or plan_pieces(tokens.slots, tokens.begin, tokens.end, piece_len(page_size))
    if page_size % pieces.piece_len or pieces.piece_len % tile:
        raise NotImplementedError(
            f"pieces of {pieces.piece_len} slots do not lie between tiles of {tile} and pages of {page_size}"
        )
    rows = tokens.packed(pool, padding=-len(tokens.slots) % tile)
    return _write_rows(pool, tokens.layer, jnp.swapaxes(rows, 0, 1), tokens.slots, pieces)


def _write_rows(
    pool: Num[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    rows: Num[Array, "K T2 W2"],
    slots: Int[Array, "T"],
    pieces: Pieces,
) -> Num[Array, "Lg P K page W2"]:
    """T2: tokens padded to whole tiles."""
    num_heads, num_tokens, num_lanes = rows.shape
    tile, length = tile_rows(pool.dtype), pieces.piece_len
    num_new = min(length + tile, num_tokens)  # whole tiles that hold any `length` consecutive rows
    item_bytes = num_heads * (num_new + length) * num_lanes * pool.dtype.itemsize
    depth = ring_depth(item_bytes)
    shifted = (num_lanes // NUM_LANES, num_heads, length + num_new + length, NUM_LANES)
    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(
        partial(_kernel, tile=tile),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=5,
            grid=(1,),
            in_specs=[anywhere, anywhere],
            out_specs=anywhere,
            scratch_shapes=[
                pltpu.VMEM((depth, num_heads, num_new, num_lanes), pool.dtype),
                pltpu.VMEM((depth, num_heads, length, num_lanes), pool.dtype),
                pltpu.VMEM(shifted, column_dtype(pool.dtype)),
                pltpu.SemaphoreType.DMA((3, depth)),
            ],
        ),
        out_shape=jax.ShapeDtypeStruct(pool.shape, pool.dtype),
        input_output_aliases={6: 0},
        interpret=interpretation(),
        name="page_ops_write",
    )(
        *piece_scalars(layer, slots, pieces),
        rows,
        pool,
    )


def _kernel(*refs: Ref, tile: int) -> None:
    scalars, (rows, _, pool, new, merged, shifted, semaphores) = PieceScalars(*refs[:5]), refs[5:]
    length, num_new = merged.shape[2], new.shape[2]

    def first_new(token: jax.Array) -> jax.Array:
        """The first row of `new`: that of the token's tile, or an earlier one so that `new` ends within the rows."""
        return pl.multiple_of(jnp.minimum(token - lax.rem(token, tile), rows.shape[1] - num_new), tile)

    def tokens_at(token: jax.Array) -> Ref:
        return rows.at[:, pl.ds(first_new(token), num_new)]

    def piece_at(layer: jax.Array, page: jax.Array, start: jax.Array) -> Ref:
        return pool.at[layer, page, :, pl.ds(start, length)]

    def merge(item: Scalar, buffer: jax.Array, token: jax.Array, row: jax.Array) -> None:
        for c, column in enumerate(to_columns(new[buffer])):
            shifted[c, :, length : length + num_new] = column
        start = length + token - first_new(token) - row
        columns = [shifted[c, :, pl.ds(start, length)] for c in range(shifted.shape[0])]
        at = lax.broadcasted_iota(jnp.int32, merged.shape[1:], 1)
        is_new = (at >= row) & (at < row + scalars.counts[item])
        merged[buffer] = jnp.where(is_new, from_columns(columns, merged.dtype), merged[buffer])

    write_pieces(
        scalars,
        new,
        merged,
        semaphores,
        piece_len=length,
        page_size=pool.shape[3],
        tokens_at=tokens_at,
        piece_at=piece_at,
        merge=merge,
    )
