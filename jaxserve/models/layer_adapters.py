"""Device: adapters (LoRA, Hu et al., arXiv 2106.09685) in the layers: the sites that they add to, and what they add."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32

from jaxserve.core.hardware.mesh import AnyMesh, num_shards
from jaxserve.kv.pool_layout import KVLayout
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.context import Context
from jaxserve.models.kv_heads import num_kv_heads_on
from pallas_kernels.lora_matmul.adapter_layout import AdapterLayout, SiteShape
from pallas_kernels.lora_matmul.api import lora_matmul
from pallas_kernels.lora_matmul.lora_batch import LoraBatch

Added = Mapping[str, Callable[[jax.Array], jax.Array]]
"""By site: [T, in] -> [T, *out], what adapters add to its product; sites that are missing get nothing."""
NOTHING: Added = MappingProxyType({})


def adapter_layout(
    config: ModelConfig, mesh: AnyMesh, kv: KVLayout, *, max_rank: int, num_places: int
) -> AdapterLayout:
    """How adapters of a model lie in pages of its pool."""
    num_heads, rows, width = kv.shape(1)[2:]
    rows_per_page = num_heads // num_shards(mesh, "kv_heads") * rows
    return AdapterLayout(adapter_sites(config, mesh), rows_per_page, width, max_rank, num_places)


def adapter_sites(config: ModelConfig, mesh: AnyMesh) -> tuple[SiteShape, ...]:
    """The sites of a layer, with their sizes on one device; all layers have the same."""
    d, h = config.d_model, config.head_dim
    f = config.common(lambda kind: kind.mlp.width) // num_shards(mesh, "mlp")
    q = config.num_heads * h // num_shards(mesh, "heads")
    kv = num_kv_heads_on(config, mesh) * h // num_shards(mesh, "kv_heads")
    return (
        SiteShape("qkv", (("q", d, q), ("k", d, kv), ("v", d, kv)), divides_inputs=False),
        SiteShape("o", (("o", q, d),), divides_inputs=True),
        SiteShape("gate_up", (("gate", d, f), ("up", d, f)), divides_inputs=False),
        SiteShape("down", (("down", f, d),), divides_inputs=True),
    )


class LayerAdapters(NamedTuple):
    """The adapters of a batch, and the KV group in whose pages a layer's matrices lie."""

    batch: LoraBatch
    group: Int32[Array, ""]


def added_by(
    ctx: Context,
    adapters: LayerAdapters,
    places: Int32[Array, "T"] | None,
    pool: Float[Array, "Lg P K page W2"],
    layer: Int32[Array, ""],
) -> Added:
    """What adapters add to a layer's products. places: of the tokens that are multiplied. layer: its index in the KV
    group."""
    batch, group = adapters
    if ctx.tiles is not None:  # a tile has tokens of any rows; only XLA adds in an order that no batch changes
        batch = replace(batch, places=places, spans=None, plan=None)
    backend = "auto" if ctx.tiles is None else "xla"
    layout, num_heads = ctx.adapters, pool.shape[2]
    assert layout is not None

    def added(name: str, x: jax.Array) -> jax.Array:
        with jax.named_scope("adapters"):
            parts = lora_matmul(x, pool, layer, group, batch, layout.sites[name], backend=backend)
        if name == "qkv":  # rows of a KV head: its queries, its key, its value
            return jnp.concatenate([part.reshape(len(x), num_heads, -1) for part in parts], axis=2)
        return parts[0] if len(parts) == 1 else jnp.stack(parts, axis=1)

    return {name: partial(added, name) for name in layout.sites}
