"""Device: the number of KV heads on a mesh, and the KV pool layout that follows from it."""

from typing import Any

from jaxserve.core.errors import ConfigError
from jaxserve.core.hardware.mesh import AnyMesh, num_shards
from jaxserve.kv.pool_layout import KVLayout
from jaxserve.models.config.model_config import ModelConfig
from pallas_kernels.page_layouts import ROWS, PageLayout


def num_kv_heads_on(config: ModelConfig, mesh: AnyMesh) -> int:
    """KV heads over the whole mesh: heads are repeated where there are more devices than heads."""
    size = num_shards(mesh, "kv_heads")
    if not _divides(config, size):
        possible = [n for n in range(1, config.num_heads + 1) if _divides(config, n)]
        width = config.common(lambda kind: kind.mlp.width)
        raise ConfigError(
            f"tensor_parallel_size={size} does not divide this model's {config.num_heads} query heads, "
            f"{config.num_kv_heads} KV heads and MLP width {width}; possible: {', '.join(map(str, possible))}",
            param="tensor_parallel_size",
        )
    return max(config.num_kv_heads, size)


def _divides(config: ModelConfig, size: int) -> bool:
    widths = (config.num_heads, *(kind.mlp.width for kind in config.kinds))
    heads = config.num_kv_heads
    return all(width % size == 0 for width in widths) and (heads % size == 0 or size % heads == 0)


def kv_layout(config: ModelConfig, mesh: AnyMesh, page_size: int, dtype: Any, pages: PageLayout = ROWS) -> KVLayout:
    """The layout of a model's KV pool."""
    return KVLayout(config.layers_per_group, num_kv_heads_on(config, mesh), config.head_dim, page_size, dtype, pages)
