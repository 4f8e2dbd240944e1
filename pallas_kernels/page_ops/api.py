"""Device: whole pages and token rows of the KV pool moved about, in all layers at once; the one way in.

Pages and slots are int32 and must lie in the pool; a slot is page · page_size + offset. Lists are padded to a bucket's
length with pairs whose destination is in page 0 (scratch). Every read happens before any write, so destinations may be
sources too; destinations other than scratch must differ. Donate the pool and it is updated in place.
"""

from jaxtyping import Array, Float, Int

from pallas_kernels.dispatch import Implementation, dispatch
from pallas_kernels.page_ops import reference, xla


def _table(name: str) -> tuple[Implementation, ...]:
    return (
        Implementation("xla", getattr(xla, name)),
        Implementation("reference", getattr(reference, name), is_automatic=False),
    )


COPY_PAGES, MOVE_ROWS, GATHER_PAGES, SCATTER_PAGES = map(
    _table, ("copy_pages", "move_rows", "gather_pages", "scatter_pages")
)


def copy_pages(
    pool: Float[Array, "Lg P K page W2"],
    src: Int[Array, "C"],
    dst: Int[Array, "C"],
    *,
    backend: str = "auto",
) -> Float[Array, "Lg P K page W2"]:
    """Copies page src[i] to page dst[i] (copy on write of a shared page)."""
    return dispatch("copy_pages", COPY_PAGES, backend, pool, src, dst)


def move_rows(
    pool: Float[Array, "Lg P K page W2"],
    src_slots: Int[Array, "R"],
    dst_slots: Int[Array, "R"],
    *,
    backend: str = "auto",
) -> Float[Array, "Lg P K page W2"]:
    """Copies keys and values from slot to slot (an accepted path of a draft tree is made whole)."""
    return dispatch("move_rows", MOVE_ROWS, backend, pool, src_slots, dst_slots)


def gather_pages(
    pool: Float[Array, "Lg P K page W2"], ids: Int[Array, "C"], *, backend: str = "auto"
) -> Float[Array, "Lg C K page W2"]:
    """The pages `ids` side by side, to be sent to host memory."""
    return dispatch("gather_pages", GATHER_PAGES, backend, pool, ids)


def scatter_pages(
    pool: Float[Array, "Lg P K page W2"],
    ids: Int[Array, "C"],
    pages: Float[Array, "Lg C K page W2"],
    *,
    backend: str = "auto",
) -> Float[Array, "Lg P K page W2"]:
    """Puts pages that `gather_pages` gave back into the pool, at `ids`."""
    return dispatch("scatter_pages", SCATTER_PAGES, backend, pool, ids, pages)
