"""Device: the XLA path's inner loop: an online softmax over groups of pages.

The number of steps is dynamic: the cost is that of the actual context. Groups beyond a row's own range change no bit of
its result. (Online softmax: Milakov and Gimelshein, arXiv 1805.02867; over pages: vLLM, arXiv 2309.06180.)
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from pallas_kernels.paged_attention.softmax_constants import HIDDEN
from pallas_kernels.paged_attention.xla.page_groups import PagedRows, gather, num_groups, page_group

MANY_QUERIES = 32
"""Number of queries of one KV head from which scores are computed from bfloat16 without conversion."""


class Sums(NamedTuple):
    """Of an online softmax, of each query: its highest score, the sum of weights, and that of weighted values."""

    highest: Float[Array, "*rows K G Q"]
    total: Float[Array, "*rows K G Q"]
    weighted: Float[Array, "*rows K G Q H"]

    @property
    def mean(self) -> Float[Array, "*rows K G Q H"]:
        """Zeros of queries that have attended to nothing."""
        return self.weighted / jnp.maximum(self.total, np.finfo(np.float32).tiny)[..., None]


def no_sums(q: Float[Array, "B K G Q H"], sinks: Float[Array, "K G"] | None) -> Sums:
    """Those of queries before the first group."""
    nothing = jnp.zeros_like(q, jnp.float32)
    if sinks is None:
        return Sums(jnp.full_like(nothing[..., 0], HIDDEN), nothing[..., 0], nothing)
    return Sums(nothing[..., 0] + sinks[None, :, :, None], nothing[..., 0] + 1, nothing)


def attend(
    q: Float[Array, "B K G Q H"],
    rows: PagedRows,
    begin: Int[Array, "B"],
    end: Int[Array, "B"],
    visible: Callable[[Int[Array, "B C"]], Bool[Array, "B Q C"]],
    *,
    factor: float | Float[Array, "K"],
    softcap: float | None,
    sinks: Float[Array, "K G"] | None,
    num_pages: int,
) -> Float[Array, "B K G Q H"]:
    """Attention, in float32, of Q queries a row over the row's positions [begin, end), `num_pages` pages a step.

    `visible` returns which of the given positions each query attends to; other positions enter no sum. Queries that
    attend to nothing give zeros. `factor` multiplies the scores of all heads, or of each.
    """
    num_positions = num_pages * rows.layout.page_size(rows.pool)
    queries = as_operand(q, rows.pool.dtype)
    first_group = begin // num_positions

    def step(i: jax.Array, sums: Sums) -> Sums:
        group = first_group + i
        return with_group(sums, queries, rows, group, visible, factor=factor, softcap=softcap, num_pages=num_pages)

    return jax.lax.fori_loop(0, jnp.max(num_groups(begin, end, num_positions)), step, no_sums(q, sinks)).mean


def as_operand(q: Float[Array, "B K G Q H"], pool_dtype: jnp.dtype) -> Float[Array, "B K G Q H"]:
    """Queries in the type in which they and keys are multiplied.

    Products of bfloat16 queries and keys are exact in both types, and bfloat16 holds 8-bit keys. XLA on CPU computes
    them twice as fast from bfloat16 where many queries share the keys (192 × 128: 66 µs, not 132), and slower where
    few do.
    """
    is_exact = q.dtype == jnp.bfloat16 and (pool_dtype == jnp.bfloat16 or pool_dtype.itemsize == 1)
    is_narrow = is_exact and q.shape[2] * q.shape[3] >= MANY_QUERIES
    return q.astype(jnp.bfloat16 if is_narrow else jnp.float32)


def with_group(
    sums: Sums,
    queries: Float[Array, "B K G Q H"],
    rows: PagedRows,
    group: Int[Array, "B"],
    visible: Callable[[Int[Array, "B C"]], Bool[Array, "B Q C"]],
    *,
    factor: float | Float[Array, "K"],
    softcap: float | None,
    num_pages: int,
) -> Sums:
    """`sums` and those of one group of pages of each row; `attend` describes the arguments."""
    head_dim = queries.shape[-1]
    value_start = rows.layout.value_start(head_dim, rows.pool.dtype)
    by_head = factor[None, :, None, None, None] if isinstance(factor, jax.Array) else factor
    ids, positions = page_group(rows, group, num_pages)
    seen = visible(positions) & (positions >= 0)[:, None]
    # Computed once: fused into the loops below, they are computed anew for each number of a key or value (on CPU
    # attention of SmolLM2's 30 layers at 64 rows of 40 to 400 positions takes 51 ms instead of 58).
    ids, seen, is_used = jax.lax.optimization_barrier((ids, seen, seen.any(1)))
    # Unseen positions may hold other requests' numbers: scores there are replaced, but 0 · NaN of a value is NaN.
    keys = gather(rows, ids, 0, head_dim).astype(queries.dtype)
    values = gather(rows, ids, value_start, head_dim).astype(jnp.float32)
    values = jnp.where(is_used[:, None, :, None], values, 0)
    seen = seen[:, None, None]
    scores = _product("bkgqh,bkch->bkgqc", queries, keys) * by_head
    if softcap is not None:
        scores = softcap * jnp.tanh(scores / softcap)
    scores = jnp.where(seen, scores, HIDDEN)
    highest = jnp.maximum(sums.highest, scores.max(-1))
    decay = jnp.exp(sums.highest - highest)
    weights = jax.lax.optimization_barrier(jnp.where(seen, jnp.exp(scores - highest[..., None]), 0))
    found = _product("bkgqc,bkch->bkgqh", weights, values)
    return Sums(highest, sums.total * decay + weights.sum(-1), sums.weighted * decay[..., None] + found)


def _product(subscripts: str, a: jax.Array, b: jax.Array) -> jax.Array:
    # float32 means float32 products too: GPUs and TPUs would round the operands otherwise.
    precision = jax.lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
    return jnp.einsum(subscripts, a, b, precision=precision, preferred_element_type=jnp.float32)
