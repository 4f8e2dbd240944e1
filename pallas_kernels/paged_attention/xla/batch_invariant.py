"""Device: batch-invariant paged attention: a token's bits depend on its row's text and on nothing else of the batch.

Not on its neighbours, the bucket, the table's width, or how many of the row's tokens are computed at once. The price:
a row that decodes takes a tile of several queries. Plain XLA on every platform: the kernels for TPU and GPU decode with
other blocks than they use for chunks, and those for GPU divide long contexts by what else there is to do.
"""

from typing import Any

from jaxtyping import Array, Float, Int, Num

from pallas_kernels.dispatch import target_platform
from pallas_kernels.page_layouts import PageLayout
from pallas_kernels.paged_attention.batch_meta import AttentionMeta
from pallas_kernels.paged_attention.block_config import BlockSizes
from pallas_kernels.paged_attention.xla import backend as xla
from pallas_kernels.paged_attention.xla.position_tiles import position_tiles


def paged_attention(
    q: Float[Array, "T N H"],
    k: Float[Array, "T K H"] | None,
    v: Float[Array, "T K H"] | None,
    pool: Num[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    meta: AttentionMeta,
    *,
    layout: PageLayout,
    block: BlockSizes | None,
    **options: Any,
) -> tuple[Float[Array, "T N H"], Num[Array, "Lg P K page W2"]]:
    """See `api.paged_attention`. Keys and values are stored first, and read from the pool alone."""
    sizes = block or block_sizes(layout.page_size(pool))
    operands = (q, k, v, pool, layer, meta)
    return xla.paged_attention(*operands, layout=layout, block=sizes, attend_rows=position_tiles, **options)


def block_sizes(page_size: int) -> BlockSizes:
    """The same for all batches of an engine.

    More queries a tile read a prompt's context less often, and cost a row that decodes more; more tiles at a time fill
    a device better, and a processor's caches worse (`xla_blocks`).
    """
    rows = 8 if target_platform() == "cpu" else 64
    return BlockSizes(positions=max(128, page_size), rows=rows, queries=8)
