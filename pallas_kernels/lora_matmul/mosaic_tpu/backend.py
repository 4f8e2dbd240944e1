"""Device: `shrink` and `expand` on TPUs by two Pallas kernels, which read adapters from the pool where they are.

x [T, I]  ──▶  sums [parts, R, T]  ──▶  [T, outputs of all parts side by side]  ──▶  those of each part
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, Int

from pallas_kernels.lora_matmul.adapter_layout import RANKS, Site
from pallas_kernels.lora_matmul.lora_batch import LoraBatch
from pallas_kernels.lora_matmul.mosaic_tpu.adapter_groups import AdapterGroups, plan_groups
from pallas_kernels.lora_matmul.mosaic_tpu.block_region import ROWS, BlockRegion
from pallas_kernels.lora_matmul.mosaic_tpu.expand_kernel import expand_groups
from pallas_kernels.lora_matmul.mosaic_tpu.shrink_kernel import shrink_groups
from pallas_kernels.page_layouts import NUM_LANES


def plan(batch: LoraBatch) -> LoraBatch:
    """See `api.plan`."""
    return replace(batch, plan=plan_groups(batch))


def shrink(
    x: Float[Array, "T I"],
    pool: Float[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    pages: Int[Array, "A B n"],
    batch: LoraBatch,
    site: Site,
) -> Float32[Array, "T parts R"]:
    """See `api.shrink`."""
    _check(pool)
    x = jnp.pad(x.astype(jnp.promote_types(x.dtype, pool.dtype)), ((0, 0), (0, -x.shape[1] % site.width)))
    num_blocks = x.shape[1] // site.width
    first = site.parts[0].first_a // RANKS
    region = BlockRegion(first, first + num_blocks * len(site.parts), pool.shape[2:])
    sums = shrink_groups(x, pool, layer, pages, _groups(batch), region, len(site.parts), site.name)
    return jnp.moveaxis(sums, 2, 0)[: len(x)]


def expand(
    sums: Float32[Array, "T parts R"],
    pool: Float[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    pages: Int[Array, "A B n"],
    batch: LoraBatch,
    site: Site,
) -> tuple[Float32[Array, "T _"], ...]:
    """See `api.expand`."""
    _check(pool)
    groups = _groups(batch)
    num_tokens, width = len(sums), site.width
    sums = jnp.moveaxis(sums, 0, 2)
    sums = jnp.pad(sums, ((0, 0), (0, 0), (0, groups.places.shape[1] - num_tokens)))
    first = site.parts[0].first_b // RANKS
    firsts = [part.first_b // RANKS - first for part in site.parts]
    parts = tuple(slice(at, at + -(-part.num_outputs // width)) for at, part in zip(firsts, site.parts, strict=True))
    region = BlockRegion(first, first + parts[-1].stop, pool.shape[2:])
    y = expand_groups(sums, num_tokens, pool, layer, pages, groups, region, parts, site.name)
    return tuple(y[:, at * width :][:, : part.num_outputs] for at, part in zip(firsts, site.parts, strict=True))


def _groups(batch: LoraBatch) -> AdapterGroups:
    return plan_groups(batch) if batch.plan is None else batch.plan


def _check(pool: jax.Array) -> None:
    page_size, width = pool.shape[3:]
    if pool.dtype not in (jnp.bfloat16, jnp.float32):
        raise NotImplementedError(f"it multiplies matrices of bfloat16 or float32, not {pool.dtype}")
    if page_size % ROWS or width % NUM_LANES:
        raise NotImplementedError(
            f"pages have {page_size} rows of {width} numbers, not whole tiles of {ROWS} and {NUM_LANES}"
        )
