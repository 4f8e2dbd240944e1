"""Device: the memory warpgroup of a GPU attention kernel: stores the new token, then streams pages into the ring."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from pallas_kernels.gpu_ring import fill_ring
from pallas_kernels.kernel_types import Refs
from pallas_kernels.paged_attention.mosaic_gpu.kernel_sizes import KernelSizes, spans


class Item(NamedTuple):
    """A thread block's work: blocks begin <= b < end of a row's context, for a tile of its queries and a KV head."""

    number: jax.Array
    head: jax.Array
    tile: jax.Array
    row: jax.Array
    begin: jax.Array
    end: jax.Array
    whole_begin: jax.Array
    """Blocks [whole_begin, whole_end) are entirely visible to every line."""
    whole_end: jax.Array
    first_new: jax.Array
    """KV index of the row's first token in this batch."""
    kv_len: jax.Array
    first_page: jax.Array
    """Pages freed at the front of the row."""


def store_token(refs: Refs, item: Item, sizes: KernelSizes) -> None:
    """Copies the row's new key and value into its page; returns when they can be read there."""
    page, place = _divmod(refs["write_slots"][item.row], sizes.page_size)
    new, token = refs["new"].at[item.row, item.head], refs["token"]
    stored = refs["pool"].at[refs["layer"][0], page, item.head, place]
    for lanes in spans(sizes.packed_len):
        plgpu.copy_gmem_to_smem(new.at[lanes], token.at[lanes], refs["token_filled"])
    plgpu.barrier_wait(refs["token_filled"])
    for lanes in spans(sizes.packed_len):
        plgpu.copy_smem_to_gmem(token.at[lanes], stored.at[lanes])
    plgpu.wait_smem_to_gmem(0)


def stream_blocks(refs: Refs, item: Item, sizes: KernelSizes) -> None:
    """Fills the ring's buffers in turn, each after all compute warpgroups have released its previous block."""
    last_column = lax.div(item.kv_len - 1, jnp.int32(sizes.page_size)) - item.first_page

    def fill(block: jax.Array, buffer: jax.Array) -> None:
        for i in range(sizes.num_pieces):
            column, place = _divmod(block * sizes.positions + i * sizes.piece_len, sizes.page_size)
            # Outside the row's pages, another of its pages is copied; those positions are masked.
            page = refs["tables"][item.row, jnp.clip(column - item.first_page, 0, last_column)]
            rows = pl.ds(pl.multiple_of(place, sizes.piece_len), sizes.piece_len)
            for span, lanes in enumerate(spans(2 * sizes.head_dim)):
                plgpu.copy_gmem_to_smem(
                    refs["pool"].at[refs["layer"][0], page, item.head, rows, lanes],
                    refs["ring"].at[buffer, span, pl.ds(i * sizes.piece_len, sizes.piece_len)],
                    refs["filled"].at[buffer],
                )

    fill_ring(item.begin, item.end, sizes.depth, refs["freed"], fill)


def _divmod(x: jax.Array, divisor: int) -> tuple[jax.Array, jax.Array]:
    return lax.div(x, jnp.int32(divisor)), lax.rem(x, jnp.int32(divisor))
