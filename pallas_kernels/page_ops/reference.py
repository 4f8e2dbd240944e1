"""Device: the page operations one page or token at a time, from a copy of the pool as it was: the oracle."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Num

from pallas_kernels.page_layouts import PageLayout
from pallas_kernels.page_ops.pack_rows import pack_rows
from pallas_kernels.page_ops.write_pieces import Pieces


def copy_pages(
    pool: Num[Array, "Lg P K page W2"], src: Int[Array, "C"], dst: Int[Array, "C"]
) -> Num[Array, "Lg P K page W2"]:
    return jax.lax.fori_loop(0, len(src), lambda i, new: new.at[:, dst[i]].set(pool[:, src[i]]), pool)


def move_rows(
    pool: Num[Array, "Lg P K page W2"], src_slots: Int[Array, "R"], dst_slots: Int[Array, "R"], *, layout: PageLayout
) -> Num[Array, "Lg P K page W2"]:
    page_size = layout.page_size(pool)

    def move(i, new):
        (src_page, src_offset), (dst_page, dst_offset) = (divmod(s[i], page_size) for s in (src_slots, dst_slots))
        every_layer = slice(None)
        moved = pool[(every_layer, *layout.at(src_page, src_offset))]
        return new.at[(every_layer, *layout.at(dst_page, dst_offset))].set(moved)

    return jax.lax.fori_loop(0, len(src_slots), move, pool)


def gather_pages(pool: Num[Array, "Lg P K page W2"], ids: Int[Array, "C"]) -> Num[Array, "Lg C K page W2"]:
    return jnp.stack([pool[:, ids[i]] for i in range(len(ids))], axis=1)


def scatter_pages(
    pool: Num[Array, "Lg P K page W2"], ids: Int[Array, "C"], pages: Num[Array, "Lg C K page W2"]
) -> Num[Array, "Lg P K page W2"]:
    return jax.lax.fori_loop(0, len(ids), lambda i, new: new.at[:, ids[i]].set(pages[:, i]), pool)


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
    del pieces  # the plan of a kernel; a token at a time needs none
    page_size, packed_len = layout.page_size(pool), pool.shape[layout.packed_axis]
    packed = pack_rows(k, v, packed_len, pool.dtype, k_scale=k_scale, v_scale=v_scale, layout=layout)

    def put(token, new):
        return new.at[(layer, *layout.at(*divmod(slots[token], page_size)))].set(packed[token])

    return jax.lax.fori_loop(begin, end, put, pool)
