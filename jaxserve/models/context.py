"""Device: `Context`, the static arguments of layers."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
from jax.sharding import Mesh

from jaxserve.models.row_tiles import RowTiles
from pallas_kernels.lora_matmul.adapter_layout import AdapterLayout
from pallas_kernels.page_layouts import ROWS, PageLayout
from pallas_kernels.paged_attention.api import paged_attention, plan
from pallas_kernels.paged_attention.batch_meta import AttentionMeta


@dataclass(frozen=True, slots=True)
class Context:
    """How layers run.

    attention: the attention op, `paged_attention` or another of the same signature. plan: computes, once per step, what
    the op needs for a kind of layers. page_layout: order of a page's axes in the KV pool. tiles: of tokens
    (`each_tile`), in everything but attention; None: all tokens at once. max_query_len: as in `AttentionSpec`.
    adapters: how they lie in the pool; None: there are none.
    """

    mesh: Mesh
    attention_backend: str
    attention: Callable[..., tuple[jax.Array, jax.Array]] = paged_attention
    plan: Callable[..., AttentionMeta] = plan
    page_layout: PageLayout = ROWS
    tiles: RowTiles | None = None
    max_query_len: int | None = None
    adapters: AdapterLayout | None = None
