"""Device: the pipeline of the TPU kernels that write pieces (`aligned_pieces`): read, merge and write each in turn.

new tokens ──DMA──▶ new[buffer] ──┐
pool ──DMA──▶ merged[buffer] ─────┴─ merge ─▶ merged[buffer] ──DMA──▶ pool
     (only a piece that keeps old tokens)
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Int

from pallas_kernels.kernel_types import Copy, Ref, Scalar
from pallas_kernels.page_ops.aligned_pieces import Pieces
from pallas_kernels.page_ops.mosaic_tpu.copy_pipeline import OnlyIf, pipeline

MAX_RING_BYTES = 8 << 20
"""Half of the 16 MiB of VMEM that a kernel has by default."""
MAX_DEPTH = 8
"""Pieces in flight. At 8 heads of 128 in bfloat16, 8 pieces are 2.6 MB: 1.6 µs of a v6e's bandwidth, one latency."""


class PieceScalars(NamedTuple):
    """The prefetched operands: arrays in the call, refs in the kernel."""

    layer: Int[Array, "1"]
    slots: Int[Array, "T"]
    first_tokens: Int[Array, "I"]
    counts: Int[Array, "I"]
    num_pieces: Int[Array, "1"]


def piece_scalars(layer: Int[Array, ""], slots: Int[Array, "T"], pieces: Pieces) -> PieceScalars:
    """The operands of a call."""
    num_pieces = jnp.reshape(pieces.num_pieces, 1)
    return PieceScalars(jnp.reshape(layer, 1), slots, pieces.first_tokens, pieces.counts, num_pieces)


def ring_depth(item_bytes: int) -> int:
    """Number of buffers in a ring of pieces, each of which needs `item_bytes` of VMEM."""
    return max(2, min(MAX_DEPTH, MAX_RING_BYTES // item_bytes))


def write_pieces(
    scalars: PieceScalars,
    new: Ref,
    merged: Ref,
    semaphores: Ref,
    *,
    piece_len: int,
    page_size: int,
    tokens_at: Callable[[jax.Array], Ref],
    piece_at: Callable[[jax.Array, jax.Array, jax.Array], Ref],
    merge: Callable[[Scalar, jax.Array, jax.Array, jax.Array], None],
) -> None:
    """Writes all pieces, in the body of a kernel.

    Args:
      new, merged: rings of buffers in VMEM: for aligned tokens that include the piece's new ones, and for the piece.
      semaphores: three for each buffer.
      tokens_at: first token of a piece → the tokens to read into `new`.
      piece_at: layer, page and first slot in the page → the piece in the pool.
      merge: piece, its buffer, its first token, and that token's offset in the piece: adds the new tokens to `merged`.
    """
    depth = merged.shape[0]

    def place(item: Scalar) -> tuple[jax.Array, jax.Array, jax.Array, Ref]:
        """(the item's buffer, its first token, that token's offset in the piece, the piece)."""
        token = scalars.first_tokens[item]
        slot = scalars.slots[token]
        offset = lax.rem(slot, piece_len)
        start = pl.multiple_of(lax.rem(slot, page_size) - offset, piece_len)
        piece = piece_at(scalars.layer[0], lax.div(slot, page_size), start)
        return lax.rem(item, depth), token, offset, piece

    def read(item: Scalar) -> tuple[Copy, ...]:
        buffer, token, _, piece = place(item)
        around = tokens_at(token)
        is_partly_kept = scalars.counts[item] < piece_len
        return (
            pltpu.make_async_copy(around, new.at[buffer], semaphores.at[0, buffer]),
            OnlyIf(is_partly_kept, pltpu.make_async_copy(piece, merged.at[buffer], semaphores.at[1, buffer])),
        )

    def compute(item: Scalar) -> None:
        buffer, token, offset, _ = place(item)
        merge(item, buffer, token, offset)

    def write(item: Scalar) -> tuple[Copy, ...]:
        buffer, _, _, piece = place(item)
        return (pltpu.make_async_copy(merged.at[buffer], piece, semaphores.at[2, buffer]),)

    pipeline(scalars.num_pieces[0], depth, depth // 2, read=read, compute=compute, write=write)
