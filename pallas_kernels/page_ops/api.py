"""Device: writes of tokens into the KV pool, and copies of pages and rows in all its layers: the ops' entry points.

Pages and slots are int32 and must lie in the pool; a slot is page · page_size + offset. Lists are padded to a bucket's
length with pairs whose destination is in page 0 (scratch). Every read happens before any write, so destinations may be
sources too; destinations other than scratch must differ. Donate the pool and it is updated in place.
"""

from types import ModuleType

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Num

from pallas_kernels.dispatch import Implementation, dispatch, imported_on_demand
from pallas_kernels.page_layouts import ROWS, PageLayout
from pallas_kernels.page_ops import reference, xla
from pallas_kernels.page_ops.aligned_pieces import Pieces
from pallas_kernels.page_ops.mosaic_tpu import lane_moves, lane_write, page_moves, row_moves, row_write
from pallas_kernels.page_ops.pack_tokens import check_scales
from pallas_kernels.page_ops.token_write import TokenWrite

GPU = "pallas_kernels.page_ops.mosaic_gpu"


def _table(name: str, mosaic_tpu: ModuleType) -> tuple[Implementation, ...]:
    return (
        Implementation("mosaic_tpu", getattr(mosaic_tpu, name), platforms=("tpu",)),
        Implementation("mosaic_gpu", imported_on_demand(GPU, name), platforms=("gpu",)),
        Implementation("xla", getattr(xla, name)),
        Implementation("reference", getattr(reference, name), is_automatic=False),
    )


# By the pool's layout, where kernels are made for one.
WRITE = {"rows": _table("write", row_write), "lanes": _table("write", lane_write)}
MOVE_ROWS = {"rows": _table("move_rows", row_moves), "lanes": _table("move_rows", lane_moves)}
COPY_PAGES = _table("copy_pages", page_moves)
GATHER_PAGES = _table("gather_pages", page_moves)
SCATTER_PAGES = _table("scatter_pages", page_moves)


def write(
    pool: Num[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    k: Float[Array, "T K H"],
    v: Float[Array, "T K H"],
    slots: Int[Array, "T"],
    begin: Int[Array, ""] | int,
    end: Int[Array, ""] | int,
    *,
    k_scale: Float[Array, "K"] | None = None,
    v_scale: Float[Array, "K"] | None = None,
    pieces: Pieces | None = None,
    layout: PageLayout = ROWS,
    backend: str = "auto",
) -> Num[Array, "Lg P K page W2"]:
    """Stores keys and values of tokens begin <= t < end at their slots in pool[layer], as `pack_tokens` packs them.

    These tokens form runs whose slots ascend by one (the rows of a batch). No two runs may share a piece, that is, an
    aligned stretch of `aligned_pieces.piece_len(page_size, layout)` slots; rows that write only to pages of their own
    never do. The scratch page may be written too.

    Args:
      layer: index in the pool's first axis.
      begin, end: 0 <= begin <= end <= T. They may be computed in the same program.
      k_scale, v_scale: factors of this layer's keys and values in an 8-bit pool.
      pieces: the result of `plan_pieces` for these slots, begin and end, or for those of another KV group of the
        batch; computed once a step, it serves all layers. None: computed here. Only mosaic_tpu reads it.

    Raises:
      ValueError: shapes do not match, or scales are given for a pool that is not 8-bit.
      NotImplementedError: no back end serves these arguments; the message lists each one's reason.
    """
    num_tokens, num_heads, head_dim = k.shape
    packed_len = pool.shape[layout.packed_axis]
    if num_heads != pool.shape[2] or layout.value_start(head_dim, pool.dtype) + head_dim > packed_len:
        found = f"{pool.shape[2]} heads and {packed_len} {layout.packed_unit}"
        raise ValueError(f"k has shape {k.shape}, but the pool has {found}")
    if v.shape != k.shape or slots.shape != (num_tokens,):
        raise ValueError(f"k has shape {k.shape}, but v {v.shape} and slots {slots.shape}")
    check_scales(pool.dtype, k_scale, v_scale)
    begin, end = jnp.asarray(begin, jnp.int32), jnp.asarray(end, jnp.int32)
    tokens = TokenWrite(layer, k, v, slots, begin, end, k_scale, v_scale, pieces, layout)
    return dispatch("write", WRITE[layout.name], backend, pool, tokens)


def copy_pages(
    pool: Num[Array, "Lg P K page W2"],
    src: Int[Array, "C"],
    dst: Int[Array, "C"],
    *,
    backend: str = "auto",
) -> Num[Array, "Lg P K page W2"]:
    """Copies page src[i] to page dst[i] (copy on write of a shared page)."""
    return dispatch("copy_pages", COPY_PAGES, backend, pool, src, dst)


def move_rows(
    pool: Num[Array, "Lg P K page W2"],
    src_slots: Int[Array, "R"],
    dst_slots: Int[Array, "R"],
    *,
    layout: PageLayout = ROWS,
    backend: str = "auto",
) -> Num[Array, "Lg P K page W2"]:
    """Copies keys and values from slot to slot (after a draft tree: makes its accepted path contiguous)."""
    return dispatch("move_rows", MOVE_ROWS[layout.name], backend, pool, src_slots, dst_slots, layout=layout)


def gather_pages(
    pool: Num[Array, "Lg P K page W2"], ids: Int[Array, "C"], *, backend: str = "auto"
) -> Num[Array, "Lg C K page W2"]:
    """The pages `ids`, contiguous, for a transfer to host memory."""
    return dispatch("gather_pages", GATHER_PAGES, backend, pool, ids)


def scatter_pages(
    pool: Num[Array, "Lg P K page W2"],
    ids: Int[Array, "C"],
    pages: Num[Array, "Lg C K page W2"],
    *,
    backend: str = "auto",
) -> Num[Array, "Lg P K page W2"]:
    """Writes pages that `gather_pages` returned into the pool, at `ids`."""
    return dispatch("scatter_pages", SCATTER_PAGES, backend, pool, ids, pages)
