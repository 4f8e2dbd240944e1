"""Device: paged attention in plain XLA: the fast path on CPUs, and on devices without a kernel of their own.

Computed in float32, except operands of products that are exact in bfloat16 (`group_sums.as_operand`).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Num

from pallas_kernels.page_ops.api import write
from pallas_kernels.paged_attention.attention_spec import AttentionSpec, ModelSizes
from pallas_kernels.paged_attention.batch_meta import AttentionMeta
from pallas_kernels.paged_attention.block_rules import xla_block_sizes
from pallas_kernels.paged_attention.xla.decode import decode_rows
from pallas_kernels.paged_attention.xla.prefill import prefill_tiles
from pallas_kernels.paged_attention.xla.row_order import RowOrder, row_order
from pallas_kernels.paged_attention.xla.short_rows import short_rows


def decode_and_prefill(
    q: Float[Array, "T K G H"],
    pool: Num[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    meta: AttentionMeta,
    spec: AttentionSpec,
    **options: Any,
) -> Float[Array, "T K G H"]:
    """Rows of one token and longer rows apart, or all rows together where all are short."""
    if meta.plan is None:
        meta = replace(meta, plan=_order(meta, spec))
    if _is_decode(meta):
        return decode_rows(q, pool, layer, meta, spec, num_decodes=meta.num_seqs, **options)
    if spec.max_query_len is not None:
        return short_rows(q, pool, layer, meta, spec, max_query_len=spec.max_query_len, **options)
    o = decode_rows(q, pool, layer, meta, spec, num_decodes=meta.num_decodes, **options)
    return prefill_tiles(q, o, pool, layer, meta, spec, **options)


def plan(meta: AttentionMeta, spec: AttentionSpec, model: ModelSizes) -> AttentionMeta:
    """See `api.plan`."""
    return replace(meta, plan=_order(meta, spec))


def _order(meta: AttentionMeta, spec: AttentionSpec) -> RowOrder:
    """Of the rows that are handled in blocks."""
    are_all_short = _is_decode(meta) or spec.max_query_len is not None
    return row_order(meta.kv_lens, meta.num_seqs if are_all_short else meta.num_decodes)


def _is_decode(meta: AttentionMeta) -> bool:
    """Whether each row has one token."""
    return len(meta.rows) == len(meta.kv_lens)


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
    attend_rows: Callable[..., jax.Array] = decode_and_prefill,
) -> tuple[Float[Array, "T N H"], Num[Array, "Lg P K page W2"]]:
    """See `api.paged_attention`. attend_rows: attention of tokens whose keys and values are in the pool.

    Numbers of an 8-bit pool are multiplied as stored; its scales multiply scores and outputs.
    """
    num_tokens, num_heads, head_dim = q.shape
    num_kv_heads, page_size = pool.shape[2], spec.layout.page_size(pool)
    most_decodes = len(meta.kv_lens) if _is_decode(meta) or spec.max_query_len is None else 0
    sizes = spec.block or xla_block_sizes(page_size, num_kv_heads, head_dim, most_decodes)
    k_scale, v_scale = (None if scales is None else scales[layer] for scales in (k_scale, v_scale))
    if k is not None and v is not None:
        tokens = (meta.write_slots, 0, meta.cu_q_lens[meta.num_seqs])
        layout = spec.layout
        pool = write(pool, layer, k, v, *tokens, k_scale=k_scale, v_scale=v_scale, layout=layout, backend="xla")

    grouped = (num_kv_heads, num_heads // num_kv_heads)
    queries = q.reshape(num_tokens, *grouped, head_dim)
    sink_logits = None if sinks is None else sinks.astype(jnp.float32).reshape(grouped)
    factor = spec.scale if k_scale is None else spec.scale * k_scale.astype(jnp.float32)
    o = attend_rows(queries, pool, layer, meta, spec, factor=factor, sinks=sink_logits, sizes=sizes)
    if v_scale is not None:
        o = o * v_scale.astype(jnp.float32)[None, :, None, None]
    return jax.lax.reshape(o, q.shape).astype(q.dtype), pool
