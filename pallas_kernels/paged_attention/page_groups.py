"""Device: the XLA path's inner loop: an online softmax over fixed groups of pages at absolute positions.

Group g holds positions [g·n, (g + 1)·n) whatever the table's width and whichever pages a row still keeps, so a row's
sums are formed in the same order in every bucket and batch. The trip count is dynamic: cost follows the context that is
there. Groups beyond a row's own range change no bit of its result. (Online softmax: Milakov and Gimelshein,
arXiv 1805.02867; over pages: vLLM, arXiv 2309.06180.)
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

HIDDEN = float(jnp.finfo(jnp.float32).min)
"""Score of what a query does not see; finite, so that differences of two such scores are numbers."""


class PagedRows(NamedTuple):
    """Where B rows lie in the pool."""

    pool: Float[Array, "Lg P K page W2"]
    layer: Int[Array, ""]
    tables: Int[Array, "B W"]
    first_pages: Int[Array, "B"]


def gather_group(
    rows: PagedRows, group: Int[Array, "B"], num_pages: int
) -> tuple[Float[Array, "B K C W2"], Int[Array, "B C"]]:
    """One page group of each row and the positions in it; -1 where the row's table has no page."""
    page_size = rows.pool.shape[3]
    page = group[:, None] * num_pages + jnp.arange(num_pages, dtype=jnp.int32)[None]
    column = page - rows.first_pages[:, None]
    width = rows.tables.shape[1]
    ids = jnp.take_along_axis(rows.tables, jnp.clip(column, 0, width - 1), axis=1)
    pages = rows.pool.at[rows.layer, ids].get(mode="promise_in_bounds")  # [B, n, K, page, W2]
    kv = jnp.swapaxes(pages, 1, 2).reshape(len(ids), pages.shape[2], -1, pages.shape[4])
    position = page[..., None] * page_size + jnp.arange(page_size, dtype=jnp.int32)[None, None]
    position = jnp.where(((column >= 0) & (column < width))[..., None], position, -1)
    return kv, position.reshape(len(ids), -1)


def attend(
    q: Float[Array, "B K G Q H"],
    rows: PagedRows,
    begin: Int[Array, "B"],
    end: Int[Array, "B"],
    visible: Callable[[Int[Array, "B C"]], Bool[Array, "B Q C"]],
    *,
    softcap: float | None,
    sinks: Float[Array, "K G"] | None,
    num_pages: int,
) -> Float[Array, "B K G Q H"]:
    """Attention of Q scaled float32 queries a row over the row's positions [begin, end), `num_pages` pages a step.

    `visible` says which of the given positions each query sees; a position that none sees is not read into any sum.
    Queries that see nothing give zeros.
    """
    num_positions = num_pages * rows.pool.shape[3]
    head_dim = q.shape[-1]
    first_group = begin // num_positions
    num_groups = jnp.max(jnp.where(end > begin, -(-end // num_positions) - first_group, 0))

    def step(i, state):
        highest, total, weighted = state
        kv, positions = gather_group(rows, first_group + i, num_pages)
        seen = visible(positions) & (positions >= 0)[:, None]
        # 0 · NaN is NaN: what lies at unseen positions is another request's, and must not enter the products at all.
        kv = jnp.where(seen.any(1)[:, None, :, None], kv.astype(jnp.float32), 0)
        seen = seen[:, None, None]
        scores = jnp.einsum("bkgqh,bkch->bkgqc", q, kv[..., :head_dim])
        if softcap is not None:
            scores = softcap * jnp.tanh(scores / softcap)
        scores = jnp.where(seen, scores, HIDDEN)
        new_highest = jnp.maximum(highest, scores.max(-1))
        decay = jnp.exp(highest - new_highest)
        weights = jnp.where(seen, jnp.exp(scores - new_highest[..., None]), 0)
        values = jnp.einsum("bkgqc,bkch->bkgqh", weights, kv[..., head_dim : 2 * head_dim])
        return new_highest, total * decay + weights.sum(-1), weighted * decay[..., None] + values

    nothing = jnp.zeros_like(q)
    highest, total = jnp.full_like(q[..., 0], HIDDEN), nothing[..., 0]
    if sinks is not None:
        highest, total = nothing[..., 0] + sinks[None, :, :, None], nothing[..., 0] + 1
    _, total, weighted = jax.lax.fori_loop(0, num_groups, step, (highest, total, nothing))
    return weighted / jnp.maximum(total, jnp.finfo(jnp.float32).tiny)[..., None]
