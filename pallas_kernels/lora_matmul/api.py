"""Device: `lora_matmul`: what the adapters of a batch (LoRA, Hu et al., arXiv 2106.09685) add to one of the model's
products, each row by its own adapter.

    x [T, I]  ── shrink, a of each token's adapter ──▶  sums [T, parts, R]  ── expand, b ──▶  [T, out] of each part

Adapters lie in pages of the KV pool (`adapter_layout.py`), so a step reads those that it needs where they are. Of
several devices, where each has its part of the inputs, the sums are added, R numbers a token; where each has its part
of the outputs, nothing is exchanged (Sheng et al., "S-LoRA", section 6).
"""

from typing import cast

import jax
from jax import lax
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Float32, Int

from pallas_kernels.dispatch import Implementation, dispatch, dividing_axes, imported_on_demand
from pallas_kernels.lora_matmul import reference, xla
from pallas_kernels.lora_matmul.adapter_layout import Site
from pallas_kernels.lora_matmul.lora_batch import LoraBatch
from pallas_kernels.lora_matmul.mosaic_tpu import backend as mosaic_tpu

GPU = "pallas_kernels.lora_matmul.mosaic_gpu.backend"
SHRINK = (
    Implementation("mosaic_tpu", mosaic_tpu.shrink, platforms=("tpu",)),
    Implementation("mosaic_gpu", imported_on_demand(GPU, "shrink"), platforms=("gpu",)),
    Implementation("xla", xla.shrink),
    Implementation("reference", reference.shrink, is_automatic=False),
)
EXPAND = (
    Implementation("mosaic_tpu", mosaic_tpu.expand, platforms=("tpu",)),
    Implementation("mosaic_gpu", imported_on_demand(GPU, "expand"), platforms=("gpu",)),
    Implementation("xla", xla.expand),
    Implementation("reference", reference.expand, is_automatic=False),
)


def _no_plan(batch: LoraBatch) -> LoraBatch:
    return batch


PLANS = (
    Implementation("mosaic_tpu", mosaic_tpu.plan, platforms=("tpu",)),
    Implementation("mosaic_gpu", imported_on_demand(GPU, "plan"), platforms=("gpu",)),
    Implementation("xla", _no_plan),
    Implementation("reference", _no_plan, is_automatic=False),
)
WHOLE = PartitionSpec()


def plan(batch: LoraBatch, *, backend: str = "auto") -> LoraBatch:
    """`batch` with `batch.plan`: what the back end computes once a step, for all sites, layers and KV groups."""
    return dispatch("plan", PLANS, backend, batch)


def shrink(
    x: Float[Array, "T I"],
    pool: Float[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    pages: Int[Array, "A B n"],
    batch: LoraBatch,
    site: Site,
    *,
    backend: str = "auto",
) -> Float[Array, "T parts R"]:
    """x · aᵀ of each part by each token's adapter, in float32; zeros where it has none. R: of the highest rank.

    pages: of the site, in the layer's KV group, on one device.
    """
    return dispatch("shrink", SHRINK, backend, x, pool, layer, pages, batch, site)


def expand(
    sums: Float[Array, "T parts R"],
    pool: Float[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    pages: Int[Array, "A B n"],
    batch: LoraBatch,
    site: Site,
    *,
    backend: str = "auto",
) -> tuple[Float[Array, "T _"], ...]:
    """sums · bᵀ of each part by each token's adapter, in float32; zeros where it has none."""
    return dispatch("expand", EXPAND, backend, sums, pool, layer, pages, batch, site)


def lora_matmul(
    x: Float[Array, "T I"],
    pool: Float[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    group: Int[Array, ""],
    batch: LoraBatch,
    site: Site,
    *,
    backend: str = "auto",
) -> tuple[Float32[Array, "T _"], ...]:
    """What the adapters add to the outputs of each part of a site, [T, outputs of all devices].

    Their matrices are finite: numbers that are not may reach tokens that have another adapter.

    x, pool: divided over the mesh in scope as the layer's are: the pool by its KV heads, x by its inputs where
    `site.divides_inputs`. layer: index in the pool's first axis. group: the layer's KV group.

    Raises:
      NotImplementedError: no back end serves the arguments; the message lists each one's reason.
    """
    pages = batch.tables[:, :, group, site.pages]
    mesh = jax.sharding.get_abstract_mesh()
    axes = tuple(name for name in dividing_axes() if mesh.shape[name] > 1)

    def on_device(
        x: jax.Array, pool: jax.Array, layer: jax.Array, pages: jax.Array, batch: LoraBatch
    ) -> tuple[jax.Array, ...]:
        sums = shrink(x, pool, layer, pages, batch, site, backend=backend)
        if site.divides_inputs and axes:
            sums = cast(jax.Array, lax.psum(sums, axes))
        return expand(sums, pool, layer, pages, batch, site, backend=backend)

    if not axes:
        return on_device(x, pool, layer, pages, batch)
    of_x, of_outputs = (PartitionSpec(None, axes), WHOLE) if site.divides_inputs else (WHOLE, PartitionSpec(None, axes))
    in_specs = (of_x, PartitionSpec(None, None, axes), WHOLE, WHOLE, WHOLE)
    run = jax.shard_map(on_device, in_specs=in_specs, out_specs=(of_outputs,) * len(site.parts), check_vma=False)
    return run(x, pool, layer, pages, batch)
