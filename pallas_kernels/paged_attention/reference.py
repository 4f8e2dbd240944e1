"""Device: paged attention written out plainly: the oracle that every back end is compared with."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from pallas_kernels.paged_attention.config import BlockSizes
from pallas_kernels.paged_attention.meta import AttentionMeta, sequence_positions


def visible_positions(meta: AttentionMeta, kv_positions: Int[Array, "S C"], window: int | None) -> Bool[Array, "T C"]:
    """Whether each token sees the KV position that each column of its row's context holds."""
    key = kv_positions[meta.rows]
    query = meta.kv_positions[:, None]
    visible = (key >= 0) & (key <= query) & (key < meta.kv_lens[meta.rows][:, None])
    positions = sequence_positions(meta)
    node = key - (query - (jnp.arange(meta.rows.shape[0]) - meta.cu_q_lens[meta.rows])[:, None])
    if meta.tree is not None:
        num_bits = 32 * meta.tree.shape[1]
        bit = jnp.clip(node, 0, num_bits - 1)
        is_set = (jnp.take_along_axis(meta.tree, bit // 32, axis=1) >> (bit % 32)) & 1 == 1
        visible &= (node < 0) | (node >= num_bits) | (key == query) | is_set
    if window is not None:
        token = jnp.clip(meta.cu_q_lens[meta.rows][:, None] + node, 0, meta.rows.shape[0] - 1)
        key_position = jnp.where(node < 0, key, positions[token])
        visible &= key_position > positions[:, None] - window
    is_token = jnp.arange(meta.rows.shape[0]) < meta.cu_q_lens[meta.num_seqs]
    return visible & is_token[:, None]


def paged_attention(
    q: Float[Array, "T N H"],
    k: Float[Array, "T K H"] | None,
    v: Float[Array, "T K H"] | None,
    pool: Float[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    meta: AttentionMeta,
    *,
    scale: float,
    window: int | None,
    softcap: float | None,
    sinks: Float[Array, "N"] | None,
    k_scale: Float[Array, "Lg K"] | None,
    v_scale: Float[Array, "Lg K"] | None,
    block: BlockSizes | None,
) -> tuple[Float[Array, "T N H"], Float[Array, "Lg P K page W2"]]:
    """See `api.paged_attention`. Gathers every token's whole context: for small shapes only."""
    if k_scale is not None or v_scale is not None:
        raise NotImplementedError("scaled 8-bit pools are not served")
    if block is not None:
        raise NotImplementedError("it has no blocks: pass block=None")
    num_tokens, num_heads, head_dim = q.shape
    page_size = pool.shape[3]
    if k is not None and v is not None:
        padding = jnp.zeros((num_tokens, pool.shape[2], pool.shape[4] - 2 * head_dim), pool.dtype)
        kv = jnp.concatenate([k.astype(pool.dtype), v.astype(pool.dtype), padding], axis=-1)
        pool = pool.at[layer, meta.write_slots // page_size, :, meta.write_slots % page_size].set(kv)

    pages = jnp.moveaxis(pool[layer, meta.tables], 2, 3).astype(jnp.float32)  # [S, W, page, K, W2]
    context = pages.reshape(pages.shape[0], -1, *pages.shape[3:])
    first = meta.first_pages[:, None] * page_size
    visible = visible_positions(meta, first + jnp.arange(context.shape[1])[None], window)  # [T, C]
    context = context[meta.rows]  # [T, C, K, W2]
    keys = context[..., :head_dim]
    values = jnp.where(visible[..., None, None], context[..., head_dim : 2 * head_dim], 0)
    visible = visible[:, None, None]

    grouped = (pool.shape[2], num_heads // pool.shape[2])
    queries = q.astype(jnp.float32).reshape(num_tokens, *grouped, head_dim)
    scores = jnp.einsum("tkgh,tckh->tkgc", queries * scale, keys)
    if softcap is not None:
        scores = softcap * jnp.tanh(scores / softcap)
    scores = jnp.where(visible, scores, -jnp.inf)
    if sinks is not None:
        sink = jnp.broadcast_to(sinks.astype(jnp.float32).reshape(1, *grouped, 1), (*queries.shape[:3], 1))
        scores = jnp.concatenate([scores, sink], axis=-1)
    weights = jnp.where(visible, jax.nn.softmax(scores, axis=-1)[..., : context.shape[1]], 0)
    return jnp.einsum("tkgc,tckh->tkgh", weights, values).reshape(q.shape).astype(q.dtype), pool
