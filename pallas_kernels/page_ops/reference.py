"""Device: the page operations one page or token at a time, from a copy of the pool as it was: the oracle."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def copy_pages(
    pool: Float[Array, "Lg P K page W2"], src: Int[Array, "C"], dst: Int[Array, "C"]
) -> Float[Array, "Lg P K page W2"]:
    return jax.lax.fori_loop(0, len(src), lambda i, new: new.at[:, dst[i]].set(pool[:, src[i]]), pool)


def move_rows(
    pool: Float[Array, "Lg P K page W2"], src_slots: Int[Array, "R"], dst_slots: Int[Array, "R"]
) -> Float[Array, "Lg P K page W2"]:
    page_size = pool.shape[3]

    def move(i, new):
        (src_page, src_offset), (dst_page, dst_offset) = (divmod(s[i], page_size) for s in (src_slots, dst_slots))
        return new.at[:, dst_page, :, dst_offset].set(pool[:, src_page, :, src_offset])

    return jax.lax.fori_loop(0, len(src_slots), move, pool)


def gather_pages(pool: Float[Array, "Lg P K page W2"], ids: Int[Array, "C"]) -> Float[Array, "Lg C K page W2"]:
    return jnp.stack([pool[:, ids[i]] for i in range(len(ids))], axis=1)


def scatter_pages(
    pool: Float[Array, "Lg P K page W2"], ids: Int[Array, "C"], pages: Float[Array, "Lg C K page W2"]
) -> Float[Array, "Lg P K page W2"]:
    return jax.lax.fori_loop(0, len(ids), lambda i, new: new.at[:, ids[i]].set(pages[:, i]), pool)
