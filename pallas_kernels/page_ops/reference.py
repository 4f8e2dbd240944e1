"""Device: the page operations, one page or token at a time, read from the unchanged pool: the reference."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Num

from pallas_kernels.page_layouts import PageLayout
from pallas_kernels.page_ops.token_write import TokenWrite


def copy_pages(
    pool: Num[Array, "Lg P K page W2"], src: Int[Array, "C"], dst: Int[Array, "C"]
) -> Num[Array, "Lg P K page W2"]:
    def copy(i: jax.Array, new: jax.Array) -> jax.Array:
        return new.at[:, dst[i]].set(pool[:, src[i]])

    return jax.lax.fori_loop(0, len(src), copy, pool)


def move_rows(
    pool: Num[Array, "Lg P K page W2"], src_slots: Int[Array, "R"], dst_slots: Int[Array, "R"], *, layout: PageLayout
) -> Num[Array, "Lg P K page W2"]:
    page_size = layout.page_size(pool)

    def move(i: jax.Array, new: jax.Array) -> jax.Array:
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
    def put(i: jax.Array, new: jax.Array) -> jax.Array:
        return new.at[:, ids[i]].set(pages[:, i])

    return jax.lax.fori_loop(0, len(ids), put, pool)


def write(pool: Num[Array, "Lg P K page W2"], tokens: TokenWrite) -> Num[Array, "Lg P K page W2"]:
    layout, packed = tokens.layout, tokens.packed(pool)
    page_size = layout.page_size(pool)

    def put(token: jax.Array, new: jax.Array) -> jax.Array:
        at = (tokens.layer, *layout.at(*divmod(tokens.slots[token], page_size)))
        return new.at[at].set(packed[token])

    return jax.lax.fori_loop(tokens.begin, tokens.end, put, pool)
