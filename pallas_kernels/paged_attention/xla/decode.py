"""Device: the XLA path for rows with one query token: blocks of rows, one page group of each at a time."""

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
    num_rows = min(q.shape[0], meta.kv_lens.shape[0])
    block = min(sizes.rows, num_rows)
    kv_lens = jnp.where(jnp.arange(len(meta.kv_lens)) < num_decodes, meta.kv_lens, 0)

    def attend_block(i: jax.Array, o: jax.Array) -> jax.Array:
        start = jnp.minimum(i * block, num_rows - block)

        def take(x: jax.Array) -> jax.Array:
            return jax.lax.dynamic_slice_in_dim(x, start, block)

        end = take(kv_lens)
        begin = jnp.zeros_like(end) if spec.window is None else jnp.maximum(end - spec.window, 0)
        out = attend(
            jnp.expand_dims(take(q), 3),
            PagedRows(pool, spec.layout, layer, take(meta.tables), take(meta.first_pages)),
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

    return jax.lax.fori_loop(0, -(-num_decodes // block), attend_block, jnp.zeros_like(q, jnp.float32))
