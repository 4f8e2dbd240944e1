"""Device: the XLA path for rows with one query token: blocks of rows, the longest first."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Num

from pallas_kernels.paged_attention.attention_spec import AttentionSpec
from pallas_kernels.paged_attention.batch_meta import AttentionMeta
from pallas_kernels.paged_attention.block_sizes import BlockSizes
from pallas_kernels.paged_attention.xla.page_groups import PagedRows, attend


def decode_rows(
    q: Float[Array, "T K G H"],
    pool: Num[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    meta: AttentionMeta,
    spec: AttentionSpec,
    *,
    num_decodes: Int[Array, ""],
    factor: float | Float[Array, "K"],
    sinks: Float[Array, "K G"] | None,
    sizes: BlockSizes,
) -> Float[Array, "T K G H"]:
    """Attention of tokens [0, num_decodes), where token t is the last of row t; zeros for other tokens.

    A block costs as much as its longest row. The last block may overlap the one before; rows in both get equal results.
    """
    num_tokens, num_rows = len(q), min(len(q), len(meta.kv_lens))
    block = min(sizes.rows, num_rows)
    rows = meta.plan.rows[:num_rows]  # all that decode: there are no more than tokens
    queries = jnp.expand_dims(q.at[rows].get(mode="clip"), 3)
    ends = jnp.where(rows < num_decodes, meta.kv_lens[rows], 0)

    def attend_block(i: jax.Array, o: jax.Array) -> jax.Array:
        start = jnp.minimum(i * block, num_rows - block)

        def take(x: jax.Array) -> jax.Array:
            return jax.lax.dynamic_slice_in_dim(x, start, block)

        own, end = take(rows), take(ends)
        begin = jnp.zeros_like(end) if spec.window is None else jnp.maximum(end - spec.window, 0)
        out = attend(
            take(queries),
            PagedRows(pool, spec.layout, layer, meta.tables[own], meta.first_pages[own]),
            begin,
            end,
            lambda positions: ((positions >= begin[:, None]) & (positions < end[:, None]))[:, None],
            factor=factor,
            softcap=spec.softcap,
            sinks=sinks,
            num_pages=sizes.pages(spec.layout.page_size(pool)),
        )
        out = jnp.where((end > 0)[:, None, None, None, None], out, 0)
        return jax.lax.dynamic_update_slice_in_dim(o, out.squeeze(3), start, 0)

    o = jnp.zeros((num_rows, *q.shape[1:]), jnp.float32)
    o = jax.lax.fori_loop(0, -(-num_decodes // block), attend_block, o)
    o = o.at[meta.plan.places[:num_rows]].get(mode="fill", fill_value=0)
    return jnp.pad(o, ((0, num_tokens - num_rows), (0, 0), (0, 0), (0, 0)))
