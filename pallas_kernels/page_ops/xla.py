"""Device: the page operations as one gather or scatter each; in place when the pool is donated.

The gathered part passes an optimization barrier, so that all reads come before all writes.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Num

from pallas_kernels.page_layouts import PageLayout
from pallas_kernels.page_ops.token_write import TokenWrite

IN_BOUNDS = "promise_in_bounds"


def copy_pages(
    pool: Num[Array, "Lg P K page W2"], src: Int[Array, "C"], dst: Int[Array, "C"]
) -> Num[Array, "Lg P K page W2"]:
    return scatter_pages(pool, dst, jax.lax.optimization_barrier(gather_pages(pool, src)))


def move_rows(
    pool: Num[Array, "Lg P K page W2"], src_slots: Int[Array, "R"], dst_slots: Int[Array, "R"], *, layout: PageLayout
) -> Num[Array, "Lg P K page W2"]:
    page_size = layout.page_size(pool)
    src, dst = ((slice(None), *layout.at(s // page_size, s % page_size)) for s in (src_slots, dst_slots))
    rows = jax.lax.optimization_barrier(pool.at[src].get(mode=IN_BOUNDS))
    return pool.at[dst].set(rows, mode=IN_BOUNDS)


def gather_pages(pool: Num[Array, "Lg P K page W2"], ids: Int[Array, "C"]) -> Num[Array, "Lg C K page W2"]:
    return pool.at[:, ids].get(mode=IN_BOUNDS)


def scatter_pages(
    pool: Num[Array, "Lg P K page W2"], ids: Int[Array, "C"], pages: Num[Array, "Lg C K page W2"]
) -> Num[Array, "Lg P K page W2"]:
    return pool.at[:, ids].set(pages, mode=IN_BOUNDS)


def write(pool: Num[Array, "Lg P K page W2"], tokens: TokenWrite) -> Num[Array, "Lg P K page W2"]:
    """Tokens outside begin <= t < end are written to the scratch page."""
    layout, packed = tokens.layout, tokens.packed(pool)
    page_size = layout.page_size(pool)
    token = jnp.arange(len(tokens.slots), dtype=jnp.int32)
    slots = jnp.where(tokens.is_written(), tokens.slots, token % page_size)
    return pool.at[(tokens.layer, *layout.at(slots // page_size, slots % page_size))].set(packed, mode=IN_BOUNDS)
