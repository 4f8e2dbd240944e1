"""Device: the XLA path for rows of few query tokens, such as drafts: blocks of rows, the longest first."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Num

from pallas_kernels.paged_attention.attention_spec import AttentionSpec
from pallas_kernels.paged_attention.batch_meta import AttentionMeta, sequence_positions
from pallas_kernels.paged_attention.block_sizes import BlockSizes
from pallas_kernels.paged_attention.xla.group_sums import attend
from pallas_kernels.paged_attention.xla.page_groups import PagedRows
from pallas_kernels.paged_attention.xla.prefill import visible_to_tile


def short_rows(
    q: Float[Array, "T K G H"],
    pool: Num[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    meta: AttentionMeta,
    spec: AttentionSpec,
    *,
    max_query_len: int,
    factor: float | Float[Array, "K"],
    sinks: Float[Array, "K G"] | None,
    sizes: BlockSizes,
) -> Float[Array, "T K G H"]:
    """Attention of rows of at most `max_query_len` tokens; zeros for padding.

    A row's keys and values are read once for all its tokens. The last block may overlap the one before; rows in both
    get equal results.
    """
    num_tokens, num_rows = len(q), len(meta.kv_lens)
    block = min(sizes.rows, num_rows)
    positions = sequence_positions(meta)
    node = jnp.arange(max_query_len, dtype=jnp.int32)[None]

    def attend_block(i: jax.Array, o: jax.Array) -> jax.Array:
        rows = jax.lax.dynamic_slice_in_dim(meta.plan.rows, jnp.minimum(i * block, num_rows - block), block)
        tokens = meta.cu_q_lens[rows][:, None] + node
        is_own = (tokens < meta.cu_q_lens[rows + 1][:, None]) & (rows < meta.num_seqs)[:, None]
        tokens = jnp.minimum(tokens, num_tokens - 1)
        end = jnp.max(jnp.where(is_own, meta.kv_positions[tokens], -1), axis=1) + 1
        begin = jnp.zeros_like(end)
        if spec.window is not None:
            lowest = jnp.min(jnp.where(is_own, positions[tokens], jnp.iinfo(jnp.int32).max), axis=1)
            begin = jnp.maximum(lowest - (spec.window - 1), 0)

        def visible(key: Int[Array, "B C"]) -> Bool[Array, "B Q C"]:
            of_row = partial(visible_to_tile, meta, positions=positions, window=spec.window)
            return jax.vmap(of_row)(rows, tokens, key) & is_own[:, :, None]

        out = attend(
            jnp.moveaxis(q[tokens], 1, 3),
            PagedRows(pool, spec.layout, layer, meta.tables, meta.first_pages, rows),
            begin,
            end,
            visible,
            factor=factor,
            softcap=spec.softcap,
            sinks=sinks,
            num_pages=sizes.pages(spec.layout.page_size(pool)),
        )
        return o.at[jnp.where(is_own, tokens, num_tokens)].set(jnp.moveaxis(out, 3, 1), mode="drop")

    return jax.lax.fori_loop(0, -(-meta.num_seqs // block), attend_block, jnp.zeros_like(q, jnp.float32))
