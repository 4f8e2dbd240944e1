"""Device: what both kernels read of an adapter: rows of its rank blocks, from the pages where they lie."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array, Float, Int

from pallas_kernels.kernel_types import Ref, Refs, Scalar
from pallas_kernels.lora_matmul.mosaic_gpu.token_groups import TokenGroups


def adapter_arrays(
    pool: Float[Array, "Lg P K page W2"], layer: Int[Array, ""], pages: Int[Array, "A B n"], groups: TokenGroups
) -> dict[str, Any]:
    """Arguments of a kernel that reads adapters."""
    num_layers, num_pages, _, _, width = pool.shape
    return {
        "pool": pool.reshape(num_layers, num_pages, -1, width),
        "layer": layer.reshape(1),
        "pages": pages,
        "places": groups.places,
        "tokens": groups.tokens,
    }


def has_block(refs: Refs, place: Scalar, block: Scalar) -> jax.Array:
    return refs["pages"][place, block, 0] > 0


def copy_rows(
    refs: Refs,
    place: Scalar,
    block: Scalar,
    first: Scalar,
    destination: Ref,
    barrier: Ref,
    *,
    unit: int,
    column: int = 0,
) -> None:
    """Begins to copy rows of a rank block, as many as `destination` has, which lie in one page; of each as many numbers
    as `destination` has, from `column` on.

    unit: divides `first` and the rows of a page.
    """
    num_rows, num_columns = destination.shape
    rows_per_page = jnp.int32(refs["pool"].shape[2])
    page, row = lax.div(first, rows_per_page), lax.rem(first, rows_per_page)
    source = refs["pool"].at[refs["layer"][0], refs["pages"][place, block, page]]
    rows = pl.ds(pl.multiple_of(row, unit), num_rows)
    plgpu.copy_gmem_to_smem(source.at[rows, pl.ds(column, num_columns)], destination, barrier)
