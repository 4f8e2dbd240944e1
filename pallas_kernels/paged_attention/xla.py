"""Device: paged attention in plain XLA: the fast path on CPUs, and on any device without a kernel of its own.

Inside, everything is float32 but operands of products that are exact in bfloat16 (`page_groups.attend`).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from pallas_kernels.paged_attention.config import BlockSizes, default_block_sizes
from pallas_kernels.paged_attention.meta import AttentionMeta
from pallas_kernels.paged_attention.xla_decode import decode_rows
from pallas_kernels.paged_attention.xla_prefill import prefill_tiles


def write_kv(
    k: Float[Array, "T K H"],
    v: Float[Array, "T K H"],
    pool: Float[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    slots: Int[Array, "T"],
) -> Float[Array, "Lg P K page W2"]:
    """Stores each token's key and value, side by side and padded with zeros, at its slot."""
    page_size, lanes = pool.shape[3:]
    kv = jnp.concatenate([k, v], axis=-1).astype(pool.dtype)
    kv = jnp.pad(kv, ((0, 0), (0, 0), (0, lanes - kv.shape[-1])))
    at = pool.at[layer, slots // page_size, :, slots % page_size]
    return at.set(kv, mode="promise_in_bounds")


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
    """See `api.paged_attention`. One token a row in all rows (T == S) compiles the decode part alone."""
    if k_scale is not None or v_scale is not None or pool.dtype.itemsize < 2:
        raise NotImplementedError(f"8-bit pools and their scales are not served (pool is {pool.dtype})")
    num_tokens, num_heads, head_dim = q.shape
    num_kv_heads, page_size = pool.shape[2:4]
    sizes = block or default_block_sizes(page_size, num_kv_heads, head_dim)
    if k is not None and v is not None:
        pool = write_kv(k, v, pool, layer, meta.write_slots)

    grouped = (num_kv_heads, num_heads // num_kv_heads)
    queries = q.reshape(num_tokens, *grouped, head_dim)
    sink_logits = None if sinks is None else sinks.astype(jnp.float32).reshape(grouped)
    num_rows = meta.kv_lens.shape[0]
    arguments = (pool, layer, meta)
    options = {"scale": scale, "window": window, "softcap": softcap, "sinks": sink_logits, "sizes": sizes}
    if num_tokens == num_rows:
        o = decode_rows(queries, *arguments, num_decodes=meta.num_seqs, **options)
    else:
        o = decode_rows(queries, *arguments, num_decodes=meta.num_decodes, **options)
        o = prefill_tiles(queries, o, *arguments, **options)
    return jax.lax.reshape(o, q.shape).astype(q.dtype), pool
