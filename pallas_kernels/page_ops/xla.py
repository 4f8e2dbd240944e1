"""Device: the page operations as one gather or scatter each; in place when the pool is donated.

Between gather and scatter stands the copied part alone, so that everything is read before anything is written.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Num

from pallas_kernels.page_layouts import PageLayout
from pallas_kernels.page_ops.pack_rows import pack_rows
from pallas_kernels.page_ops.write_pieces import Pieces

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


def write(
    pool: Num[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    k: Float[Array, "T K H"],
    v: Float[Array, "T K H"],
    slots: Int[Array, "T"],
    begin: Int[Array, ""],
    end: Int[Array, ""],
    *,
    k_scale: Float[Array, "K"] | None,
    v_scale: Float[Array, "K"] | None,
    pieces: Pieces | None,
    layout: PageLayout,
) -> Num[Array, "Lg P K page W2"]:
    """The tokens outside begin <= t < end are written to the scratch page."""
    del pieces  # the plan of a kernel; a scatter needs none
    page_size, packed_len = layout.page_size(pool), pool.shape[layout.packed_axis]
    packed = pack_rows(k, v, packed_len, pool.dtype, k_scale=k_scale, v_scale=v_scale, layout=layout)
    token = jnp.arange(len(slots), dtype=jnp.int32)
    slots = jnp.where((token >= begin) & (token < end), slots, token % page_size)
    return pool.at[(layer, *layout.at(slots // page_size, slots % page_size))].set(packed, mode=IN_BOUNDS)
