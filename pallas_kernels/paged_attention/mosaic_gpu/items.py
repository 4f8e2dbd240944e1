"""Device: the work of a GPU's thread blocks for a batch: tiles of query lines, and the blocks of context of each.

    row 0, one token          tile 0   [ 4 lines of its query heads | unused ]        blocks 0..7 → items 0, 1
    row 1, 40 tokens, G = 4   tile 1   [ tokens 0..31, 128 lines ]                    blocks 0..2 → item 2
                              tile 2   [ tokens 32..39, 32 lines | unused ]           blocks 0..3 → item 3

An item is a run of blocks of one tile, processed by one thread block per KV head. Long contexts are divided so that all
multiprocessors have work, as in split-K decoding (Flash-Decoding, Dao et al. 2023); the outputs of a tile's items are
combined afterwards. Everything here depends on the batch only, so it is computed once a step.
"""

from dataclasses import dataclass
from typing import no_type_check

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from pallas_kernels.paged_attention.batch_meta import AttentionMeta, sequence_positions, tree_columns

NUM_FIELDS = 7


@jax.tree_util.register_dataclass
@no_type_check  # jax rebuilds it with leaves that are not arrays
@dataclass(frozen=True)
class Tiles:
    """Query tokens that are processed together, of one row each. Tiles without tokens have no items."""

    row: Int[Array, "tiles"]
    first_token: Int[Array, "tiles"]
    num_tokens: Int[Array, "tiles"]


@jax.tree_util.register_dataclass
@no_type_check
@dataclass(frozen=True)
class Items:
    """Runs of blocks. Block b holds the row's positions [b·positions, (b + 1)·positions)."""

    fields: Int[Array, "7 items"]
    """By row: tile, row, begin, end, first block that is entirely visible to all lines, end of those blocks, first KV
    index of the row's tokens in this batch. Items with begin == end are empty."""
    first: Int[Array, "tiles"]
    """First item of each tile."""
    count: Int[Array, "tiles"]


@jax.tree_util.register_dataclass
@no_type_check
@dataclass(frozen=True)
class Lines:
    """Positions visible to each line of a tile; none for unused lines."""

    last: Int[Array, "tiles lines"]
    """KV index of the line's own token, the last visible one; -1: unused line."""
    first: Int[Array, "tiles lines"] | None
    """First KV index within its window; None: there is no window."""
    words: Int[Array, "tiles words lines"] | None
    """Ancestor bits of draft trees."""


def decode_tiles(meta: AttentionMeta, num_tiles: int) -> Tiles:
    """A tile for each of the first rows, with one token where it is a decode row and none elsewhere."""
    row = jnp.arange(num_tiles, dtype=jnp.int32)
    is_decode = row < (meta.num_decodes if len(meta.rows) > len(meta.kv_lens) else meta.num_seqs)
    return Tiles(row, row, is_decode.astype(jnp.int32))


def longer_tiles(meta: AttentionMeta, tile_tokens: int) -> Tiles:
    """Tiles of up to `tile_tokens` tokens for all rows that are not decode rows."""
    num_rows = len(meta.kv_lens)
    row = jnp.arange(num_rows, dtype=jnp.int32)
    is_longer = (row >= meta.num_decodes) & (row < meta.num_seqs)
    num_tokens = jnp.where(is_longer, meta.q_lens, 0)
    ends = jnp.cumsum(-(-num_tokens // tile_tokens), dtype=jnp.int32)
    tile = jnp.arange(len(meta.rows) // tile_tokens + num_rows, dtype=jnp.int32)
    owner = jnp.searchsorted(ends, tile, side="right", method="compare_all").astype(jnp.int32)
    is_tile = owner < num_rows
    owner = jnp.minimum(owner, num_rows - 1)
    nth = tile - (ends[owner] - -(-num_tokens[owner] // tile_tokens))
    left = num_tokens[owner] - nth * tile_tokens
    return Tiles(
        owner,
        meta.cu_q_lens[owner] + nth * tile_tokens,
        jnp.where(is_tile, jnp.minimum(left, tile_tokens), 0),
    )


def tile_of_token(meta: AttentionMeta, tiles: Tiles, tile_tokens: int) -> tuple[Int[Array, "T"], Int[Array, "T"]]:
    """The tile that holds each token, and the token's index in it; arbitrary for tokens of no tile."""
    token = jnp.arange(len(meta.rows), dtype=jnp.int32)
    begins = jnp.where(tiles.num_tokens > 0, tiles.first_token, len(meta.rows))
    tile = jnp.searchsorted(begins, token, side="right", method="compare_all").astype(jnp.int32) - 1
    tile = jnp.maximum(tile, 0)
    return tile, jnp.clip(token - tiles.first_token[tile], 0, tile_tokens - 1)


def plan_items(
    meta: AttentionMeta, tiles: Tiles, positions: int, window: int | None, num_items: int, min_blocks: int
) -> Items:
    """Divides each tile's blocks among items: one for each tile and, over all, at most `num_items`.

    num_items: at least the number of tiles; items beyond that divide tiles into parts of at least `min_blocks` blocks.
    """
    num_tiles = len(tiles.row)
    kv_len, q_len = meta.kv_lens[tiles.row], meta.q_lens[tiles.row]
    first_new = kv_len - q_len
    first = first_new + tiles.first_token - meta.cu_q_lens[tiles.row]
    last = first + jnp.maximum(tiles.num_tokens, 1) - 1
    if meta.tree is None:
        lowest, all_see_from, all_see_to = first, last, first + 1
    else:  # a node's depth is at most its index, and a row's first node is its root
        lowest, all_see_from, all_see_to = first_new, last, first_new
    begin = jnp.zeros_like(first)
    whole_begin = begin
    if window is not None:
        begin = jnp.maximum(lowest - window + 1, 0) // positions
        whole_begin = -(-jnp.maximum(all_see_from - window + 1, 0) // positions)
    end = last // positions + 1
    whole_end = jnp.maximum(all_see_to // positions, whole_begin)

    num_blocks = jnp.where(tiles.num_tokens > 0, end - begin, 0)
    if num_items == num_tiles:
        part = jnp.maximum(num_blocks, 1)
    else:
        even = -(-jnp.sum(num_blocks, dtype=jnp.int32) // (num_items - num_tiles))
        num_parts = -(-num_blocks // jnp.maximum(even, min_blocks))
        part = jnp.maximum(-(-num_blocks // jnp.maximum(num_parts, 1)), 1)
    count = -(-num_blocks // part)
    ends = jnp.cumsum(count, dtype=jnp.int32)
    item = jnp.arange(num_items, dtype=jnp.int32)
    tile = jnp.searchsorted(ends, item, side="right", method="compare_all").astype(jnp.int32)
    is_item = tile < num_tiles
    tile = jnp.minimum(tile, num_tiles - 1)
    item_begin = begin[tile] + (item - (ends - count)[tile]) * part[tile]
    item_end = jnp.where(is_item, jnp.minimum(item_begin + part[tile], end[tile]), item_begin)
    columns = (tile, tiles.row[tile], item_begin, item_end, whole_begin[tile], whole_end[tile], first_new[tile])
    return Items(jnp.stack(columns), ends - count, count)


def plan_lines(meta: AttentionMeta, tiles: Tiles, group_size: int, num_lines: int, window: int | None) -> Lines:
    """Positions visible to `num_lines` lines of each tile, `group_size` lines a token."""
    nth = jnp.arange(num_lines, dtype=jnp.int32) // group_size
    is_used = nth[None] < tiles.num_tokens[:, None]
    token = jnp.clip(tiles.first_token[:, None] + nth[None], 0, len(meta.rows) - 1)
    first = None
    if window is not None:
        first = jnp.maximum(sequence_positions(meta)[token] - window + 1, 0)
    words = None
    if meta.tree is not None:
        words = jnp.moveaxis(tree_columns(meta, window)[:, :-1][token], 2, 1)
    return Lines(jnp.where(is_used, meta.kv_positions[token], -1), first, words)
