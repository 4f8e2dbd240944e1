"""Device: copies of whole pages by a TPU's DMA engines from HBM to HBM; one copy spans all layers of a page."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Int, Num

from pallas_kernels.dispatch import interpretation
from pallas_kernels.kernel_types import Copy, Ref, Scalar
from pallas_kernels.page_ops.mosaic_tpu.copy_pipeline import OnlyIf, pipeline
from pallas_kernels.page_ops.mosaic_tpu.pool_tiles import require_tiles

DEPTH = 8
"""Copies in flight."""
SKIPPED = -1
"""Id of a page that is not copied: padding then costs no copy, and no two copies have one destination."""


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


def _gather(ids: Ref, pool: Ref, pages: Ref, semaphores: Ref) -> None:
    def ends(i: Scalar) -> tuple[Ref, Ref]:
        return pool.at[:, ids[i]], pages.at[:, i]

    _copy_all(ids, ends, semaphores)


def _scatter(ids: Ref, _: Ref, pages: Ref, pool: Ref, semaphores: Ref) -> None:
    def ends(i: Scalar) -> tuple[Ref, Ref]:
        return pages.at[:, i], pool.at[:, ids[i]]

    _copy_all(ids, ends, semaphores)


def _copy_all(ids: Ref, ends: Callable[[Scalar], tuple[Ref, Ref]], semaphores: Ref) -> None:
    """Copies from the first of an item's `ends` to the second, for all ids but SKIPPED."""

    def write(i: Scalar) -> tuple[Copy, ...]:
        source, destination = ends(i)
        copy = pltpu.make_async_copy(source, destination, semaphores.at[lax.rem(i, DEPTH)])
        return (OnlyIf(ids[i] != SKIPPED, copy),)

    pipeline(ids.shape[0], DEPTH, 0, write=write)
