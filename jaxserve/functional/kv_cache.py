"""Device: `Cache`, the KV memory of a fixed batch: the engine's pool layout with pages in sequential order.

    pool[Lg, P, …]         P = 1 + G·B·W
    page 0: scratch        row b of KV group g: pages [1 + (g·B + b)·W, 1 + (g·B + b + 1)·W)

A row's positions are therefore consecutive in the pool. Windowed groups keep all positions here; only the engine's page
tables free the pages before a window.
"""

from dataclasses import replace
from typing import no_type_check

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int, Int32

from jaxserve.core.hardware.mesh import replicated
from jaxserve.models.attention_metadata import kind_meta
from jaxserve.models.model_settings import Settings
from pallas_kernels.paged_attention.batch_meta import AttentionMeta


@no_type_check  # JAX rebuilds it with leaves that are not arrays
@struct.dataclass
class Cache:
    """Keys and values of B rows, each with a capacity of `max_len` positions; a pytree, to be donated and carried."""

    pool: Float[Array, "Lg P K page W2"]
    lengths: Int32[Array, "B"]
    """Positions of each row. Lowering an entry discards the positions after it."""
    max_len: int = struct.field(pytree_node=False)


def init_cache(settings: Settings, batch_size: int, max_len: int) -> Cache:
    """An empty cache of `batch_size` rows, each with a capacity of `max_len` positions (prompt and output).

    Raises ValueError unless both are at least 1.
    """
    if batch_size < 1 or max_len < 1:
        raise ValueError(f"batch_size={batch_size} and max_len={max_len} must be at least 1")
    columns = -(-max_len // settings.page_size)
    num_groups = settings.groups.num_groups
    pool = settings.layout.allocate(1 + num_groups * batch_size * columns, settings.mesh).pool
    return Cache(pool, jnp.zeros(batch_size, jnp.int32, device=replicated(settings.mesh)), max_len)


def make_metas(
    settings: Settings,
    cache: Cache,
    starts: Int[Array, "B"],
    counts: Int[Array, "B"],
    is_kept: Bool[Array, "B"],
    num_tokens: int,
    *,
    is_decode: bool,
) -> tuple[AttentionMeta, ...]:
    """Attention metadata of each layer kind for tokens packed row by row: `counts[b]` of row b from `starts[b]` on.

    is_kept: rows whose keys and values are written. num_tokens: padded number of tokens. is_decode: every row has
    exactly one token.
    """
    batch_size, page_size = len(counts), settings.page_size
    columns = -(-cache.max_len // page_size)
    pages = 1 + jnp.arange(cache.pool.shape[1] - 1, dtype=jnp.int32).reshape(-1, batch_size, columns)  # [G, B, W]
    cu_q_lens = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(counts, dtype=jnp.int32)])
    batch = {"cu_q_lens": cu_q_lens, "kv_lens": starts + counts, "num_seqs": jnp.int32(batch_size)}
    batch["num_decodes"] = jnp.int32(batch_size if is_decode else 0)
    scratch = jnp.arange(num_tokens, dtype=jnp.int32) % page_size

    def meta_of(start: int, end: int) -> AttentionMeta:
        tables = pages[start:end]
        first_pages = jnp.zeros(tables.shape[:2], jnp.int32)
        meta = kind_meta(tables, first_pages, num_tokens=num_tokens, page_size=page_size, **batch)
        write_slots = jnp.where(is_kept[meta.rows][None], meta.write_slots, scratch[None])
        return replace(meta, write_slots=write_slots)

    return tuple(meta_of(start, end) for start, end in settings.config.group_ranges)
