"""Device: `Settings`, what is static in every pure function: hashable, so that it can be a static argument of `jit`."""

from dataclasses import dataclass
from typing import Any

from jax.sharding import Mesh

from jaxserve.kv.pool_layout import KVLayout
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.kv_heads import kv_layout
from pallas_kernels.page_layouts import ROWS, PageLayout


@dataclass(frozen=True, slots=True)
class Settings:
    """A model without its weights.

    dtype: of weights, activations and KV, as numpy spells types. page_size: KV positions in a page of a `Cache`.
    attention_backend: the kernels' back end of `prefill` and `decode` (`forward` has its own attention).
    page_layout: of a `Cache`.
    """

    config: ModelConfig
    mesh: Mesh
    dtype: Any
    page_size: int
    attention_backend: str = "auto"
    page_layout: PageLayout = ROWS

    @property
    def layout(self) -> KVLayout:
        return kv_layout(self.config, self.mesh, self.page_size, self.dtype, self.page_layout)
