"""Device: the memory warpgroup of a GPU attention kernel: it stores the new token, then streams pages into the ring."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from pallas_kernels.paged_attention.mosaic_gpu.kernel_sizes import Shape, spans


class Item(NamedTuple):
    """What a thread block does: blocks begin <= b < end of a row's context, for a tile of its queries and a KV head."""

    index: jax.Array
    head: jax.Array
    tile: jax.Array
    row: jax.Array
    begin: jax.Array
    end: jax.Array
    whole_begin: jax.Array
    """Blocks [whole_begin, whole_end) are seen whole by every line."""
    whole_end: jax.Array
    first_new: jax.Array
    """KV index of the row's first token in this batch."""
    kv_len: jax.Array
    first_page: jax.Array
    """Pages that the row has freed at its front."""


def slot_of(item: Item, block: jax.Array, shape: Shape) -> jax.Array:
    """Place in the ring."""
    return lax.rem(block - item.begin, jnp.int32(shape.depth))


def store_token(refs: dict[str, Any], item: Item, shape: Shape) -> None:
    """Copies the row's new key and value into its page, and returns when they can be read there."""
    page, place = _divmod(refs["write_slots"][item.row], shape.page_size)
    new, token = refs["new"].at[item.row, item.head], refs["token"]
    stored = refs["pool"].at[refs["layer"][0], page, item.head, place]
    for lanes in spans(shape.packed_len):
        plgpu.copy_gmem_to_smem(new.at[lanes], token.at[lanes], refs["token_filled"])
    plgpu.barrier_wait(refs["token_filled"])
    for lanes in spans(shape.packed_len):
        plgpu.copy_smem_to_gmem(token.at[lanes], stored.at[lanes])
    plgpu.wait_smem_to_gmem(0)


def stream_blocks(refs: dict[str, Any], item: Item, shape: Shape) -> None:
    """Fills the ring's places in turn, each when all compute warpgroups are done with what it held."""
    last_column = lax.div(item.kv_len - 1, jnp.int32(shape.page_size)) - item.first_page

    @pl.loop(item.begin, item.end)
    def _(block):
        slot = slot_of(item, block, shape)

        @pl.when(block - item.begin >= shape.depth)
        def _():
            plgpu.barrier_wait(refs["freed"].at[slot])

        for i in range(shape.num_pieces):
            column, place = _divmod(block * shape.positions + i * shape.piece_len, shape.page_size)
            # Where the row has no page, before its first or after its last, another of its pages comes; nobody sees it.
            page = refs["tables"][item.row, jnp.clip(column - item.first_page, 0, last_column)]
            rows = pl.ds(pl.multiple_of(place, shape.piece_len), shape.piece_len)
            for span, lanes in enumerate(spans(2 * shape.head_dim)):
                plgpu.copy_gmem_to_smem(
                    refs["pool"].at[refs["layer"][0], page, item.head, rows, lanes],
                    refs["ring"].at[slot, span, pl.ds(i * shape.piece_len, shape.piece_len)],
                    refs["filled"].at[slot],
                )

    @pl.loop(jnp.maximum(item.end - shape.depth, item.begin), item.end)
    def _(block):
        plgpu.barrier_wait(refs["freed"].at[slot_of(item, block, shape)])  # no phase of a barrier stays unseen


def _divmod(x: jax.Array, divisor: int) -> tuple[jax.Array, jax.Array]:
    return lax.div(x, jnp.int32(divisor)), lax.rem(x, jnp.int32(divisor))
