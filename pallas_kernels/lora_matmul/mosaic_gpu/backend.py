"""Device: `shrink` and `expand` on Hopper GPUs by two Pallas kernels, which read adapters from the pool where they are.

    x [T, I] ──▶ kernel ──▶ sums of parts of the inputs ──▶ XLA ──▶ sums [T, parts, R] ──▶ kernel ──▶ [T, chunks, W2]

The host waits for nothing: thread blocks without work end at once.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, Int

from pallas_kernels.dispatch import require_hopper
from pallas_kernels.lora_matmul.adapter_layout import RANKS, Site
from pallas_kernels.lora_matmul.lora_batch import LoraBatch
from pallas_kernels.lora_matmul.mosaic_gpu.column_runs import column_runs
from pallas_kernels.lora_matmul.mosaic_gpu.expand_thread_block import THREADS, expand_groups
from pallas_kernels.lora_matmul.mosaic_gpu.shrink_thread_block import CHUNKS, shrink_groups
from pallas_kernels.lora_matmul.mosaic_gpu.token_groups import TokenGroups, group_tokens

MAX_WIDTH = 512
"""A thread block's 64 rows and as many inputs are then 128 KiB."""


def plan(batch: LoraBatch) -> LoraBatch:
    """See `api.plan`."""
    require_hopper()
    return replace(batch, plan=group_tokens(batch))


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
    if x.dtype != pool.dtype:
        raise NotImplementedError(f"inputs of {x.dtype} are not served with a pool of {pool.dtype}")
    chunks = jnp.pad(x, ((0, 0), (0, -x.shape[1] % (CHUNKS * site.width)))).reshape(len(x), -1, site.width)
    sums = shrink_groups(chunks, pool, layer, pages, _groups(batch), site)
    sums = sums.reshape(*sums.shape[:-1], CHUNKS, RANKS).sum((3, 4))
    has_block = (pages[..., 0] > 0)[batch.places]
    return jnp.where(has_block[:, None, :, None], sums, 0).reshape(*sums.shape[:2], -1)


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
    of_groups = jnp.moveaxis(sums.at[groups.tokens].get(mode="clip"), 1, 3)
    y = expand_groups(of_groups, len(sums), pool, layer, pages, groups, site)
    runs = column_runs(site)
    by_part = (y[:, begin:end].reshape(len(y), -1) for begin, end in zip(runs.begins, runs.ends, strict=True))
    return tuple(of_part[:, : part.num_outputs] for of_part, part in zip(by_part, site.parts, strict=True))


def _groups(batch: LoraBatch) -> TokenGroups:
    return group_tokens(batch) if batch.plan is None else batch.plan


def _check(pool: jax.Array) -> None:
    """Raises NotImplementedError for a pool that the kernels do not serve."""
    require_hopper()
    _, _, num_kv_heads, page_size, width = pool.shape
    if pool.dtype not in (jnp.bfloat16, jnp.float16):
        raise NotImplementedError(f"it multiplies matrices of bfloat16 or float16, not {pool.dtype}")
    if width % THREADS or width > MAX_WIDTH:
        raise NotImplementedError(f"rows have {width} numbers; multiples of {THREADS} up to {MAX_WIDTH} are served")
    if num_kv_heads * page_size % RANKS:
        raise NotImplementedError(f"pages of {num_kv_heads * page_size} rows are no whole tiles of {RANKS}")
