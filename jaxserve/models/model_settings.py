"""Device: `Settings`, the static description of a model on a mesh: hashable, hence a static argument of `jit`."""

from dataclasses import dataclass, replace
from typing import Any

from jax.sharding import Mesh

from jaxserve.core.kv_groups import KVGroups
from jaxserve.kv.kv_state import ExtraArray
from jaxserve.kv.pool_layout import KVLayout
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.kv_heads import kv_layout
from jaxserve.models.packing import DENSE, Packing
from pallas_kernels.page_layouts import ROWS, PageLayout


@dataclass(frozen=True, slots=True)
class Settings:
    """A model without its weights.

    dtype: of weights and activations, as a numpy dtype; `layout` has that of KV. page_size: KV positions in a page.
    page_layout: order of a page's axes. attention_backend: back end of paged attention; `pure.forward` uses dense
    attention instead. extra: arrays whose pages have the ids of the KV pool. packing: of the matrices.
    """

    config: ModelConfig
    mesh: Mesh
    dtype: Any
    page_size: int
    attention_backend: str = "auto"
    page_layout: PageLayout = ROWS
    extra: tuple[ExtraArray, ...] = ()
    packing: Packing = DENSE

    @property
    def layout(self) -> KVLayout:
        """Shape, dtype and sharding of the KV pool and of `extra`."""
        pool = kv_layout(self.config, self.mesh, self.page_size, self.dtype, self.page_layout)
        return replace(pool, extra=(*pool.extra, *self.extra))

    @property
    def groups(self) -> KVGroups:
        """KV groups of the model's layers."""
        return self.config.kv_groups(self.page_size)
