"""Device: the page operations as one gather or scatter each; in place when the pool is donated.

Between gather and scatter stands the copied part alone, so that everything is read before anything is written.
"""

import jax
from jaxtyping import Array, Float, Int

IN_BOUNDS = "promise_in_bounds"


def copy_pages(
    pool: Float[Array, "Lg P K page W2"], src: Int[Array, "C"], dst: Int[Array, "C"]
) -> Float[Array, "Lg P K page W2"]:
    return scatter_pages(pool, dst, jax.lax.optimization_barrier(gather_pages(pool, src)))


def move_rows(
    pool: Float[Array, "Lg P K page W2"], src_slots: Int[Array, "R"], dst_slots: Int[Array, "R"]
) -> Float[Array, "Lg P K page W2"]:
    page_size = pool.shape[3]
    rows = pool.at[:, src_slots // page_size, :, src_slots % page_size].get(mode=IN_BOUNDS)
    rows = jax.lax.optimization_barrier(rows)
    return pool.at[:, dst_slots // page_size, :, dst_slots % page_size].set(rows, mode=IN_BOUNDS)


def gather_pages(pool: Float[Array, "Lg P K page W2"], ids: Int[Array, "C"]) -> Float[Array, "Lg C K page W2"]:
    return pool.at[:, ids].get(mode=IN_BOUNDS)


def scatter_pages(
    pool: Float[Array, "Lg P K page W2"], ids: Int[Array, "C"], pages: Float[Array, "Lg C K page W2"]
) -> Float[Array, "Lg P K page W2"]:
    return pool.at[:, ids].set(pages, mode=IN_BOUNDS)
