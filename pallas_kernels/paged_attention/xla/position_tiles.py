"""Device: attention of the batch-invariant path: tiles of queries at fixed positions, all of one shape.

Tile n of a row holds its positions [n·Q, (n + 1)·Q), so a token has the same place in a tile of the same shape whether
it is decoded, or is part of a chunk or of a whole prompt; places of tokens outside this step are empty. With groups of
pages at absolute positions (`page_groups`) each of its sums adds the same products in the same order.
(Fixed sizes of splits, not fixed numbers of them: He, "Defeating nondeterminism in LLM inference", Thinking Machines,
2025.)
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Num

from pallas_kernels.paged_attention.attention_spec import AttentionSpec
from pallas_kernels.paged_attention.batch_meta import AttentionMeta, sequence_positions
from pallas_kernels.paged_attention.block_sizes import BlockSizes
from pallas_kernels.paged_attention.xla.group_sums import attend
from pallas_kernels.paged_attention.xla.page_groups import PagedRows
from pallas_kernels.paged_attention.xla.prefill import visible_to_tile


def position_tiles(
    q: Float[Array, "T K G H"],
    pool: Num[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    meta: AttentionMeta,
    spec: AttentionSpec,
    *,
    factor: float | Float[Array, "K"],
    sinks: Float[Array, "K G"] | None,
    sizes: BlockSizes,
) -> Float[Array, "T K G H"]:
    """Attention of all tokens, `sizes.rows` tiles of `sizes.queries` positions at a time; zeros for padding."""
    num_tokens, tile_len = len(q), sizes.queries
    starts = meta.kv_lens - meta.q_lens
    is_row = (jnp.arange(len(starts)) < meta.num_seqs) & (starts < meta.kv_lens)
    first_tile = starts // tile_len
    num_tiles = jnp.where(is_row, -(-meta.kv_lens // tile_len) - first_tile, 0)
    end_tile = jnp.cumsum(num_tiles)
    positions = sequence_positions(meta)

    def attend_tiles(i: jax.Array, o: jax.Array) -> jax.Array:
        tile = i * sizes.rows + jnp.arange(sizes.rows, dtype=jnp.int32)
        row = jnp.searchsorted(end_tile, tile, side="right", method="compare_all")
        row = jnp.minimum(row, len(starts) - 1)  # past the last tile
        number = first_tile[row] + tile - (end_tile[row] - num_tiles[row])
        query = number[:, None] * tile_len + jnp.arange(tile_len, dtype=jnp.int32)[None]
        start, end = starts[row][:, None], meta.kv_lens[row][:, None]
        is_own = (query >= start) & (query < end) & (tile < end_tile[-1])[:, None]
        tokens = jnp.where(is_own, meta.cu_q_lens[row][:, None] + query - start, 0)
        begin = jnp.zeros_like(tile)
        if spec.window is not None:
            begin = jnp.where(is_own, positions[tokens], jnp.iinfo(jnp.int32).max).min(1) - spec.window + 1

        def visible(key: Int[Array, "B C"]) -> Bool[Array, "B Q C"]:
            def of_tile(row: jax.Array, tokens: jax.Array, key: jax.Array) -> Bool[Array, "Q C"]:
                return visible_to_tile(meta, row, tokens, key, positions, spec.window)

            return jax.vmap(of_tile)(row, tokens, key) & is_own[:, :, None]

        out = attend(
            jnp.moveaxis(q[tokens], 1, 3),
            PagedRows(pool, spec.layout, layer, meta.tables, meta.first_pages, row),
            jnp.maximum(begin, 0),
            jnp.where(is_own, query + 1, 0).max(1),
            visible,
            factor=factor,
            softcap=spec.softcap,
            sinks=sinks,
            num_pages=sizes.pages(spec.layout.page_size(pool)),
        )
        return o.at[jnp.where(is_own, tokens, num_tokens)].set(jnp.moveaxis(out, 3, 1), mode="drop")

    num_blocks = -(-end_tile[-1] // sizes.rows)
    return jax.lax.fori_loop(0, num_blocks, attend_tiles, jnp.zeros_like(q, jnp.float32))
