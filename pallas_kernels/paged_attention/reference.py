"""Device: paged attention by its plain formula: the reference that every back end is compared with."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Num

from pallas_kernels.page_ops.pack_tokens import pack_tokens
from pallas_kernels.paged_attention.attention_spec import AttentionSpec
from pallas_kernels.paged_attention.batch_meta import AttentionMeta, sequence_positions


def visible_positions(meta: AttentionMeta, kv_positions: Int[Array, "S C"], window: int | None) -> Bool[Array, "T C"]:
    """Whether each token attends to the KV position in each column of its row's context."""
    key = kv_positions[meta.rows]
    query = meta.kv_positions[:, None]
    visible = (key >= 0) & (key <= query) & (key < meta.kv_lens[meta.rows][:, None])
    positions = sequence_positions(meta)
    node = key - (query - (jnp.arange(meta.rows.shape[0], dtype=jnp.int32) - meta.cu_q_lens[meta.rows])[:, None])
    if meta.tree is not None:
        num_bits = 32 * meta.tree.shape[1]
        bit = jnp.clip(node, 0, num_bits - 1)
        is_set = (jnp.take_along_axis(meta.tree, bit // 32, axis=1) >> (bit % 32)) & 1 == 1
        visible &= (node < 0) | (node >= num_bits) | (key == query) | is_set
    if window is not None:
        token = jnp.clip(meta.cu_q_lens[meta.rows][:, None] + node, 0, meta.rows.shape[0] - 1)
        key_position = jnp.where(node < 0, key, positions[token])
        visible &= key_position > positions[:, None] - window
    is_token = jnp.arange(meta.rows.shape[0], dtype=jnp.int32) < meta.cu_q_lens[meta.num_seqs]
    return visible & is_token[:, None]


def paged_attention(
    q: Float[Array, "T N H"],
    k: Float[Array, "T K H"] | None,
    v: Float[Array, "T K H"] | None,
    pool: Num[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    meta: AttentionMeta,
    spec: AttentionSpec,
    *,
    sinks: Float[Array, "N"] | None,
    k_scale: Float[Array, "Lg K"] | None,
    v_scale: Float[Array, "Lg K"] | None,
) -> tuple[Float[Array, "T N H"], Num[Array, "Lg P K page W2"]]:
    """See `api.paged_attention`. Each token gathers the whole context of its row.

    Computed in float64 where `q` is (under `jax.enable_x64`; the pool keeps its type), else in float32.
    """
    if spec.block is not None:
        raise NotImplementedError("it has no blocks: pass block=None")
    layout, head_dim = spec.layout, q.shape[2]
    num_kv_heads, page_size = pool.shape[2], layout.page_size(pool)
    packed_len, value_start = (f(head_dim, pool.dtype) for f in (layout.packed_len, layout.value_start))
    k_scale, v_scale = (None if scales is None else scales[layer] for scales in (k_scale, v_scale))
    if k is not None and v is not None:
        packed = pack_tokens(k, v, packed_len, pool.dtype, k_scale=k_scale, v_scale=v_scale, layout=layout)
        pool = pool.at[(layer, *layout.at(*jnp.divmod(meta.write_slots, page_size)))].set(packed)

    real = jnp.float64 if q.dtype == jnp.float64 else jnp.float32
    columns = jnp.arange(meta.tables.shape[1] * page_size, dtype=jnp.int32)[None]
    visible = visible_positions(meta, meta.first_pages[:, None] * page_size + columns, spec.window)

    def attend(token: tuple[jax.Array, jax.Array, jax.Array]) -> Float[Array, "N H"]:
        q, row, visible = token
        pages = jnp.moveaxis(layout.by_position(pool[layer, meta.tables[row]]), 1, 2)  # [W, page, K, packed]
        context = pages.reshape(-1, num_kv_heads, packed_len).astype(real)
        keys, values = context[..., :head_dim], context[..., value_start : value_start + head_dim]
        if k_scale is not None:
            keys = keys * k_scale.astype(real)[None, :, None]
        if v_scale is not None:
            values = values * v_scale.astype(real)[None, :, None]
        values = jnp.where(visible[:, None, None], values, 0)
        queries = q.astype(real).reshape(num_kv_heads, -1, head_dim)
        scores = jnp.einsum("kgh,ckh->kgc", queries * spec.scale, keys, precision="highest")
        if spec.softcap is not None:
            scores = spec.softcap * jnp.tanh(scores / spec.softcap)
        scores = jnp.where(visible, scores, -jnp.inf)
        if sinks is not None:
            scores = jnp.concatenate([scores, sinks.astype(real).reshape(num_kv_heads, -1, 1)], axis=-1)
        weights = jnp.where(visible, jax.nn.softmax(scores, axis=-1)[..., : len(visible)], 0)
        return jnp.einsum("kgc,ckh->kgh", weights, values, precision="highest").reshape(q.shape)

    return jax.lax.map(attend, (q, meta.rows, visible)).astype(q.dtype), pool
