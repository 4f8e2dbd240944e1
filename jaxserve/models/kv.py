"""Device: the pool layout that a model needs on a mesh."""

from typing import Any

from jax.sharding import Mesh

from jaxserve.core.sharding import TENSOR, kv_heads_on
from jaxserve.kv.layout import KVLayout
from jaxserve.models.config import ModelConfig


def kv_layout(config: ModelConfig, mesh: Mesh, page_size: int, dtype: Any) -> KVLayout:
    """KV heads are repeated where the mesh has more devices than heads."""
    heads = kv_heads_on(config.num_heads, config.num_kv_heads, mesh.shape[TENSOR])
    return KVLayout(config.layers_per_group, heads, config.head_dim, page_size, dtype)
