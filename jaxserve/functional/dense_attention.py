"""Device: dense, differentiable attention within whole texts, without a KV cache.

The paged op has no reverse-mode gradient: the length of its loops depends on data. This op has the same signature and
replaces it in the layers when a batch is B whole texts of T tokens each. Scores are computed for one block of queries
at a time, and again for the gradient, so memory grows with T, not with its square.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from pallas_kernels.paged_attention.attention_spec import AttentionSpec
from pallas_kernels.paged_attention.batch_meta import AttentionMeta

BLOCK = 128  # queries of each text whose scores exist at once


def whole_text_attention(
    num_texts: int,
    q: Float[Array, "T N H"],
    k: Float[Array, "T K H"],
    v: Float[Array, "T K H"],
    pool: Float[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    meta: AttentionMeta,
    spec: AttentionSpec,
    *,
    sinks: Float[Array, "N"] | None = None,
) -> tuple[Float[Array, "T N H"], Float[Array, "Lg P K page W2"]]:
    """Causal attention within each of `num_texts` equally long texts; parameters as of `paged_attention`.

    Pool, layer and metadata have no effect, nor have the spec's layout and back end; the pool is returned unchanged.
    """
    num_heads, head_dim = q.shape[1:]
    num_kv_heads, num_tokens = k.shape[1], q.shape[0] // num_texts
    block = min(BLOCK, num_tokens)
    num_blocks = -(-num_tokens // block)
    grouped = (num_kv_heads, num_heads // num_kv_heads)
    queries = q.reshape(num_texts, num_tokens, *grouped, head_dim)
    queries = jnp.pad(queries, ((0, 0), (0, num_blocks * block - num_tokens), (0, 0), (0, 0), (0, 0)))
    blocks = jnp.moveaxis(queries.reshape(num_texts, num_blocks, block, *grouped, head_dim), 1, 0)
    attend = partial(
        _attend,
        keys=k.reshape(num_texts, num_tokens, num_kv_heads, head_dim).astype(jnp.float32),
        values=v.reshape(num_texts, num_tokens, num_kv_heads, head_dim).astype(jnp.float32),
        spec=spec,
        sinks=None if sinks is None else sinks.astype(jnp.float32).reshape(grouped),
        precision=lax.Precision.HIGHEST if q.dtype == jnp.float32 else None,
    )
    starts = jnp.arange(num_blocks, dtype=jnp.int32) * block

    @jax.checkpoint
    def attend_block(args: tuple[jax.Array, jax.Array]) -> jax.Array:
        return attend(*args)

    o = lax.map(attend_block, (blocks, starts))  # [blocks, B, block, K, G, H]
    o = jnp.moveaxis(o, 0, 1).reshape(num_texts, -1, num_heads, head_dim)[:, :num_tokens]
    return o.reshape(q.shape).astype(q.dtype), pool


def _attend(
    queries: Float[Array, "B Q K G H"],
    start: Int[Array, ""],
    *,
    keys: Float[Array, "B T K H"],
    values: Float[Array, "B T K H"],
    spec: AttentionSpec,
    sinks: Float[Array, "K G"] | None,
    precision: lax.Precision | None,
) -> Float[Array, "B Q K G H"]:
    """Attention of the queries at positions [start, start + Q) of each text."""
    query = start + jnp.arange(queries.shape[1], dtype=jnp.int32)[:, None]
    key = jnp.arange(keys.shape[1], dtype=jnp.int32)[None]
    is_seen = key <= query
    if spec.window is not None:
        is_seen &= key > query - spec.window
    scores = jnp.einsum("bqkgh,btkh->bkgqt", queries.astype(jnp.float32) * spec.scale, keys, precision=precision)
    if spec.softcap is not None:
        scores = spec.softcap * jnp.tanh(scores / spec.softcap)
    scores = jnp.where(is_seen[None, None, None], scores, float(np.finfo(np.float32).min))
    if sinks is not None:
        sink = jnp.broadcast_to(sinks[None, :, :, None, None], (*scores.shape[:-1], 1))
        scores = jnp.concatenate([scores, sink], axis=-1)
    weights = jax.nn.softmax(scores, axis=-1)[..., : keys.shape[1]]
    return jnp.einsum("bkgqt,btkh->bqkgh", weights, values, precision=precision)
