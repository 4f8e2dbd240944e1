"""Device: `shrink` and `expand` on TPUs by two Pallas kernels, which read adapters from the pool where they are.

x [T, I]  ──▶  sums [parts, R, T]  ──▶  [T, outputs of all parts side by side]  ──▶  those of each part
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, Int

from pallas_kernels.lora_matmul.adapter_layout import RANKS, Part, Site
from pallas_kernels.lora_matmul.lora_batch import LoraBatch
from pallas_kernels.lora_matmul.mosaic_tpu.adapter_groups import TILE, AdapterGroups, plan_groups
from pallas_kernels.lora_matmul.mosaic_tpu.block_region import ROWS, BlockRegion
from pallas_kernels.lora_matmul.mosaic_tpu.expand_kernel import expand_groups
from pallas_kernels.lora_matmul.mosaic_tpu.shrink_kernel import shrink_groups
from pallas_kernels.lora_matmul.mosaic_tpu.tile_blocks import VMEM_BYTES
from pallas_kernels.page_layouts import NUM_LANES

MIN_ROWS = 8
"""Of tokens; Mosaic does not compile products of fewer."""
SMEM_BYTES = 2**19
"""For the lists of rank blocks and of pages, of a core's 1 MiB."""
SPARE_BYTES = 4 * 2**20
"""Of the kernels' vector memory, for sums and factors."""


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
    groups = _groups(batch)
    _check(pool, pages, groups)
    num_tokens = len(x)
    padding = (0, max(0, MIN_ROWS - num_tokens)), (0, -x.shape[1] % site.width)
    x = jnp.pad(x.astype(jnp.promote_types(x.dtype, pool.dtype)), padding)
    num_blocks = x.shape[1] // site.width
    first = site.parts[0].first_a // RANKS
    region = BlockRegion(first, first + num_blocks * len(site.parts), pool.shape[2:])
    if not _fits(region, pool, x.shape[1] * x.dtype.itemsize):
        raise NotImplementedError(f"{TILE} tokens of {x.shape[1]} inputs do not fit into vector memory")
    sums = shrink_groups(x, pool, layer, pages, groups, region, len(site.parts), site.name)
    return jnp.moveaxis(sums, 2, 0)[:num_tokens]


def expand(
    sums: Float32[Array, "T parts R"],
    pool: Float[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    pages: Int[Array, "A B n"],
    batch: LoraBatch,
    site: Site,
) -> tuple[Float32[Array, "T _"], ...]:
    """See `api.expand`."""
    groups = _groups(batch)
    _check(pool, pages, groups)
    num_tokens, parts = len(sums), site.parts
    of_parts = jnp.pad(jnp.moveaxis(sums, 0, 2), ((0, 0), (0, 0), (0, groups.places.shape[1] - num_tokens)))

    def regions(calls: list[slice]) -> list[BlockRegion]:
        return [_region_of_outputs(parts[call], pool, site.width) for call in calls]

    def fit(calls: list[slice]) -> bool:
        return all(_fits(region, pool, region.num_columns * 4) for region in regions(calls))

    calls = [slice(0, len(parts))]
    if not fit(calls):
        calls = [slice(i, i + 1) for i in range(len(parts))]
    if not fit(calls):
        most = max(part.num_outputs for part in parts)
        raise NotImplementedError(f"{TILE} tokens of {most} outputs do not fit into vector memory")
    added = list[jax.Array]()
    for call, region in zip(calls, regions(calls), strict=True):
        firsts = [part.first_b // RANKS - region.first for part in parts[call]]
        counts = [-(-part.num_outputs // site.width) for part in parts[call]]
        columns = tuple(slice(at, at + count) for at, count in zip(firsts, counts, strict=True))
        num_rows = max(num_tokens, MIN_ROWS)
        y = expand_groups(of_parts[call], num_rows, pool, layer, pages, groups, region, columns, site.name)
        for at, part in zip(firsts, parts[call], strict=True):
            added.append(y[:num_tokens, at * site.width :][:, : part.num_outputs])
    return tuple(added)


def _groups(batch: LoraBatch) -> AdapterGroups:
    return plan_groups(batch) if batch.plan is None else batch.plan


def _region_of_outputs(parts: tuple[Part, ...], pool: jax.Array, width: int) -> BlockRegion:
    end = parts[-1].first_b // RANKS + -(-parts[-1].num_outputs // width)
    return BlockRegion(parts[0].first_b // RANKS, end, pool.shape[2:])


def _fits(region: BlockRegion, pool: jax.Array, token_bytes: int) -> bool:
    """token_bytes: of a token's inputs or outputs, which Pallas has in vector memory twice."""
    return region.num_bytes(pool.dtype) + 2 * TILE * token_bytes + SPARE_BYTES <= VMEM_BYTES


def _check(pool: jax.Array, pages: jax.Array, groups: AdapterGroups) -> None:
    page_size, width = pool.shape[3:]
    if pool.dtype not in (jnp.bfloat16, jnp.float32):
        raise NotImplementedError(f"it multiplies matrices of bfloat16 or float32, not {pool.dtype}")
    if page_size % ROWS or width % NUM_LANES:
        raise NotImplementedError(
            f"pages have {page_size} rows of {width} numbers, not whole tiles of {ROWS} and {NUM_LANES}"
        )
    if 4 * (pages.size + groups.items.size) > SMEM_BYTES:
        raise NotImplementedError(
            f"the lists of {pages.size} pages and {groups.items.size} rank blocks do not fit into scalar memory"
        )
