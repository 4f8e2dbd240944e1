"""Device: the XLA path's groups of pages at absolute positions: which pages of a row they are, and what these hold.

Group g holds positions [g·n, (g + 1)·n), independent of the table's width and of the pages that a row has freed, so a
row's sums are formed in the same order in every bucket and batch.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Num

from pallas_kernels.page_layouts import PageLayout


class PagedRows(NamedTuple):
    """The pool, the tables of all rows, and the numbers of B rows among them."""

    pool: Num[Array, "Lg P K page W2"]
    layout: PageLayout
    layer: Int[Array, ""]
    tables: Int[Array, "S W"]
    first_pages: Int[Array, "S"]
    numbers: Int[Array, "B"]


def page_group(rows: PagedRows, group: Int[Array, "B"], num_pages: int) -> tuple[Int[Array, "B n"], Int[Array, "B C"]]:
    """The pages of one group of each row, and the positions in them; -1 where the row's table has no page."""
    page_size = rows.layout.page_size(rows.pool)
    page = group[:, None] * num_pages + jnp.arange(num_pages, dtype=jnp.int32)[None]
    column = page - rows.first_pages[rows.numbers][:, None]
    width = rows.tables.shape[1]
    ids = rows.tables[rows.numbers[:, None], jnp.clip(column, 0, width - 1)]
    position = page[..., None] * page_size + jnp.arange(page_size, dtype=jnp.int32)[None, None]
    position = jnp.where(((column >= 0) & (column < width))[..., None], position, -1)
    return ids, position.reshape(len(ids), -1)


def gather(rows: PagedRows, ids: Int[Array, "B n"], start: int, size: int) -> Num[Array, "B K C size"]:
    """Numbers [start, start + size) of packed tokens, in whole pages, position after position.

    Keys and values are gathered separately: halves of one gather are copied once more, so that 64 rows × 256 positions
    of SmolLM2's 30 layers took 88 ms instead of 56.
    """
    layout, sizes = rows.layout, [1, 1, *rows.pool.shape[2:]]
    sizes[layout.packed_axis] = size
    corner = jnp.stack([jnp.broadcast_to(rows.layer, ids.shape), ids, jnp.full_like(ids, start)], axis=-1)
    pages = jax.lax.gather(
        rows.pool,
        corner,
        jax.lax.GatherDimensionNumbers(
            offset_dims=(2, 3, 4), collapsed_slice_dims=(0, 1), start_index_map=(0, 1, layout.packed_axis)
        ),
        tuple(sizes),
        mode=jax.lax.GatherScatterMode.PROMISE_IN_BOUNDS,
    )
    return jnp.swapaxes(layout.by_position(pages), 1, 2).reshape(len(ids), sizes[2], -1, size)


def num_groups(begin: Int[Array, "B"], end: Int[Array, "B"], num_positions: int) -> Int[Array, "B"]:
    """Of positions [begin, end); 0 where there are none."""
    return jnp.where(end > begin, -(-end // num_positions) - begin // num_positions, 0)
