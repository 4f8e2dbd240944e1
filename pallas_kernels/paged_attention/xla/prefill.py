"""Device: the XLA path for longer rows: tiles of queries of one row each; only existing tiles are computed."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Num

from pallas_kernels.paged_attention.attention_spec import AttentionSpec
from pallas_kernels.paged_attention.batch_meta import AttentionMeta, sequence_positions
from pallas_kernels.paged_attention.block_sizes import BlockSizes
from pallas_kernels.paged_attention.xla.group_sums import attend
from pallas_kernels.paged_attention.xla.page_groups import PagedRows


def visible_to_tile(
    meta: AttentionMeta,
    row: Int[Array, ""],
    tokens: Int[Array, "Q"],
    key: Int[Array, "C"],
    positions: Int[Array, "T"],
    window: int | None,
) -> Bool[Array, "Q C"]:
    """Which KV positions `key` of a row its `tokens` attend to; `positions`: sequence positions of all tokens."""
    query = meta.kv_positions[tokens][:, None]
    visible = key[None] <= query
    key_position = key
    if meta.tree is not None:
        first_token = meta.cu_q_lens[row]
        node = key - meta.kv_lens[row] + meta.cu_q_lens[row + 1] - first_token
        num_bits = 32 * meta.tree.shape[1]
        bit = jnp.clip(node, 0, num_bits - 1)
        is_set = (meta.tree[tokens][:, bit // 32] >> (bit % 32)[None]) & 1 == 1
        visible &= ((node < 0) | (node >= num_bits))[None] | (key[None] == query) | is_set
        key_position = jnp.where(node < 0, key, positions[jnp.clip(first_token + node, 0, len(positions) - 1)])
    if window is not None:
        visible &= key_position[None] > positions[tokens][:, None] - window
    return visible


def prefill_tiles(
    q: Float[Array, "T K G H"],
    o: Float[Array, "T K G H"],
    pool: Num[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    meta: AttentionMeta,
    spec: AttentionSpec,
    *,
    factor: float | Float[Array, "K"],
    sinks: Float[Array, "K G"] | None,
    sizes: BlockSizes,
) -> Float[Array, "T K G H"]:
    """`o` with the attention of the tokens of rows [num_decodes, num_seqs)."""
    tile_len = min(sizes.queries, q.shape[0])
    row_ids = jnp.arange(len(meta.kv_lens))
    is_long = (row_ids >= meta.num_decodes) & (row_ids < meta.num_seqs)
    num_tiles = jnp.where(is_long, -(-meta.q_lens // tile_len), 0)
    last_tile = jnp.cumsum(num_tiles)
    positions = sequence_positions(meta)

    def attend_tile(i: jax.Array, o: jax.Array) -> jax.Array:
        row = jnp.searchsorted(last_tile, i, side="right", method="compare_all")
        first_token = meta.cu_q_lens[row] + (i - last_tile[row] + num_tiles[row]) * tile_len
        # A tile at the end of the batch starts earlier, to be whole; `is_own` masks tokens of other tiles.
        start = jnp.minimum(first_token, len(q) - tile_len)
        tokens = start + jnp.arange(tile_len, dtype=jnp.int32)
        is_own = (tokens >= first_token) & (tokens < meta.cu_q_lens[row + 1])
        begin = jnp.zeros_like(row)
        if spec.window is not None:
            lowest = jnp.min(jnp.where(is_own, positions[tokens], jnp.iinfo(jnp.int32).max))
            begin = jnp.maximum(lowest - spec.window + 1, 0)
        end = jnp.max(jnp.where(is_own, meta.kv_positions[tokens], -1)) + 1

        def visible(key: Int[Array, "1 C"]) -> Bool[Array, "1 Q C"]:
            return (visible_to_tile(meta, row, tokens, key[0], positions, spec.window) & is_own[:, None])[None]

        tile = jax.lax.dynamic_slice_in_dim(q, start, tile_len)
        out = attend(
            jnp.moveaxis(tile, 0, 2)[None],
            PagedRows(pool, spec.layout, layer, meta.tables, meta.first_pages, row[None]),
            begin[None],
            end[None],
            visible,
            factor=factor,
            softcap=spec.softcap,
            sinks=sinks,
            num_pages=sizes.pages(spec.layout.page_size(pool)),
        )
        old = jax.lax.dynamic_slice_in_dim(o, start, tile_len)
        new = jnp.where(is_own[:, None, None, None], jnp.moveaxis(out[0], 2, 0), old)
        return jax.lax.dynamic_update_slice_in_dim(o, new, start, 0)

    return jax.lax.fori_loop(0, last_tile[-1], attend_tile, o)
