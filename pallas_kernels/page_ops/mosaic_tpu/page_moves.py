"""Device: whole pages moved by the TPU's DMA engines from HBM to HBM: one copy spans all layers of a page."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Int, Num

from pallas_kernels.dispatch import interpretation
from pallas_kernels.page_ops.mosaic_tpu.copy_pipeline import OnlyIf, pipeline
from pallas_kernels.page_ops.mosaic_tpu.pool_tiles import require_tiles

DEPTH = 8
"""Copies in flight."""
SKIPPED = -1
"""The id of a page that is left alone: padding then costs no copy, and no two copies go to one place."""


def copy_pages(
    pool: Num[Array, "Lg P K page W2"], src: Int[Array, "C"], dst: Int[Array, "C"]
) -> Num[Array, "Lg P K page W2"]:
    require_tiles(pool)
    return scatter_pages(pool, dst, gather_pages(pool, jnp.where(dst == 0, SKIPPED, src)))


def gather_pages(pool: Num[Array, "Lg P K page W2"], ids: Int[Array, "C"]) -> Num[Array, "Lg C K page W2"]:
    require_tiles(pool)
    num_layers, _, *page = pool.shape
    return _call(_gather, (num_layers, len(ids), *page), ids, pool)


def scatter_pages(
    pool: Num[Array, "Lg P K page W2"], ids: Int[Array, "C"], pages: Num[Array, "Lg C K page W2"]
) -> Num[Array, "Lg P K page W2"]:
    require_tiles(pool)
    return _call(_scatter, pool.shape, jnp.where(ids == 0, SKIPPED, ids), pool, pages)


def _call(kernel: Any, shape: tuple[int, ...], ids: Int[Array, "C"], pool: Any, *pages: Any) -> Num[Array, "..."]:
    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(
        kernel,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(1,),
            in_specs=[anywhere] * (1 + len(pages)),
            out_specs=anywhere,
            scratch_shapes=[pltpu.SemaphoreType.DMA((DEPTH,))],
        ),
        out_shape=jax.ShapeDtypeStruct(shape, pool.dtype),
        input_output_aliases={1: 0} if pages else {},
        interpret=interpretation(),
        name=f"page_ops{kernel.__name__}",
    )(ids, pool, *pages)


def _gather(ids, pool, pages, semaphores):
    _copy_all(ids, lambda i: (pool.at[:, ids[i]], pages.at[:, i]), semaphores)


def _scatter(ids, _, pages, pool, semaphores):
    _copy_all(ids, lambda i: (pages.at[:, i], pool.at[:, ids[i]]), semaphores)


def _copy_all(ids, ends, semaphores):
    def write(i):
        source, destination = ends(i)
        copy = pltpu.make_async_copy(source, destination, semaphores.at[lax.rem(i, DEPTH)])
        return (OnlyIf(ids[i] != SKIPPED, copy),)

    pipeline(ids.shape[0], DEPTH, 0, write=write)
