"""Device: batch-invariant paged attention: a token's bits depend on its row's text only.

They do not depend on other rows, the bucket, the table's width, or the number of the row's tokens computed at once. The
cost: a row that decodes takes a tile of several queries. Plain XLA on every platform: the TPU and GPU kernels use
different blocks for decoding and for chunks, and the GPU kernels divide long contexts according to the whole batch.
"""

from dataclasses import replace
from typing import Any

from jaxtyping import Array, Float, Int, Num

from pallas_kernels.paged_attention.attention_spec import AttentionSpec
from pallas_kernels.paged_attention.batch_meta import AttentionMeta
from pallas_kernels.paged_attention.block_rules import invariant_block_sizes
from pallas_kernels.paged_attention.xla import backend as xla
from pallas_kernels.paged_attention.xla.position_tiles import position_tiles


def paged_attention(
    q: Float[Array, "T N H"],
    k: Float[Array, "T K H"] | None,
    v: Float[Array, "T K H"] | None,
    pool: Num[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    meta: AttentionMeta,
    spec: AttentionSpec,
    **options: Any,
) -> tuple[Float[Array, "T N H"], Num[Array, "Lg P K page W2"]]:
    """See `api.paged_attention`. Keys and values are stored first, and only read from the pool."""
    spec = replace(spec, block=spec.block or invariant_block_sizes(spec.layout.page_size(pool)))
    return xla.paged_attention(q, k, v, pool, layer, meta, spec, attend_rows=position_tiles, **options)
