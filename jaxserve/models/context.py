"""Device: `Context`, the static arguments of layers."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
from jax.sharding import Mesh

from pallas_kernels.page_layouts import ROWS, PageLayout
from pallas_kernels.paged_attention.api import paged_attention, plan
from pallas_kernels.paged_attention.batch_meta import AttentionMeta


@dataclass(frozen=True, slots=True)
class Context:
    """How layers run.

    attention: the attention op, `paged_attention` or another of the same signature. plan: computes, once per step, what
    the op needs for a kind of layers. page_layout: order of a page's axes in the KV pool. tile_rows: tokens of a tile
    (`each_tile`) in everything but attention; None: all tokens at once.
    """

    mesh: Mesh
    attention_backend: str
    attention: Callable[..., tuple[jax.Array, jax.Array]] = paged_attention
    plan: Callable[..., AttentionMeta] = plan
    page_layout: PageLayout = ROWS
    tile_rows: int | None = None
