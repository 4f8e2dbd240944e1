"""Device: the XLA path for rows with one query token: all at once where they are few, else in queues."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Num

from pallas_kernels.paged_attention.attention_spec import AttentionSpec
from pallas_kernels.paged_attention.batch_meta import AttentionMeta
from pallas_kernels.paged_attention.block_sizes import BlockSizes
from pallas_kernels.paged_attention.xla.group_sums import Sums, as_operand, attend, no_sums, with_group
from pallas_kernels.paged_attention.xla.page_groups import PagedRows, num_groups
from pallas_kernels.paged_attention.xla.row_queues import queue_order, queues_of


def decode_rows(
    q: Float[Array, "T K G H"],
    pool: Num[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    meta: AttentionMeta,
    spec: AttentionSpec,
    *,
    num_decodes: Int[Array, ""],
    factor: float | Float[Array, "K"],
    sinks: Float[Array, "K G"] | None,
    sizes: BlockSizes,
) -> Float[Array, "T K G H"]:
    """Attention of tokens [0, num_decodes), where token t is the last of row t; zeros for other tokens."""
    num_tokens, num_rows = len(q), min(len(q), len(meta.kv_lens))
    ordered = meta.plan.rows[:num_rows]  # all that decode: there are no more than tokens
    queries = jnp.expand_dims(q.at[ordered].get(mode="clip"), 3)
    end = jnp.where(ordered < num_decodes, meta.kv_lens[ordered], 0)
    begin = jnp.zeros_like(end) if spec.window is None else jnp.maximum(end - spec.window, 0)
    rows = PagedRows(pool, spec.layout, layer, meta.tables, meta.first_pages, ordered)
    options: dict[str, Any] = {
        "factor": factor,
        "softcap": spec.softcap,
        "num_pages": sizes.pages(spec.layout.page_size(pool)),
    }
    if num_rows <= sizes.rows:
        o = attend(queries, rows, begin, end, _between(begin, end), sinks=sinks, **options)
    else:
        o = _attend_in_queues(queries, rows, begin, end, sizes.rows, sinks=sinks, **options)
    o = jnp.where((end > 0)[:, None, None, None], o.squeeze(3), 0)
    o = o.at[meta.plan.places[:num_rows]].get(mode="fill", fill_value=0)
    return jnp.pad(o, ((0, num_tokens - num_rows), (0, 0), (0, 0), (0, 0)))


def _between(begin: Int[Array, "B"], end: Int[Array, "B"]) -> Callable[[Int[Array, "B C"]], Bool[Array, "B 1 C"]]:
    return lambda positions: ((positions >= begin[:, None]) & (positions < end[:, None]))[:, None]


def _attend_in_queues(
    q: Float[Array, "S K G 1 H"],
    rows: PagedRows,
    begin: Int[Array, "S"],
    end: Int[Array, "S"],
    num_queues: int,
    *,
    factor: float | Float[Array, "K"],
    softcap: float | None,
    sinks: Float[Array, "K G"] | None,
    num_pages: int,
) -> Float[Array, "S K G 1 H"]:
    """`attend` of ordered rows, of which each queue computes some, one after the other."""
    num_positions = num_pages * rows.layout.page_size(rows.pool)
    queues = queues_of(num_groups(begin, end, num_positions), num_queues)
    queries, first_group = as_operand(q, rows.pool.dtype), begin // num_positions
    before = no_sums(q[:num_queues], sinks)
    num_turns, all_queues = len(queues.order), jnp.arange(num_queues)

    def step(i: jax.Array, state: tuple[Sums, Sums]) -> tuple[Sums, Sums]:
        sums, found = state
        turn = queues.turns(i)
        row, start = jnp.asarray(queues.order)[turn, all_queues], queues.starts[turn, all_queues]
        is_new = start == i
        sums = Sums(*(jnp.where(_along(is_new, a), a, b) for a, b in zip(before, sums, strict=True)))
        own = rows._replace(numbers=rows.numbers[row])
        visible = _between(begin[row], end[row])
        group = first_group[row] + i - start
        sums = with_group(sums, queries[row], own, group, visible, factor=factor, softcap=softcap, num_pages=num_pages)
        is_turn = jnp.arange(num_turns)[:, None] == turn[None]
        return sums, Sums(*(jnp.where(_along(is_turn, a), a[None], b) for a, b in zip(sums, found, strict=True)))

    found = Sums(*(jnp.zeros((num_turns, *x.shape), x.dtype) for x in before))
    _, found = jax.lax.fori_loop(0, queues.num_steps, step, (before, found))
    o = found.mean.reshape(-1, *q.shape[1:])
    return o[queue_order(len(q), num_queues).reshape(-1)[: len(q)]]  # the order is its own inverse


def _along(mask: Bool[Array, "*queues"], x: Array) -> Bool[Array, "..."]:
    """The mask with an axis for each of x but that of its queues."""
    return jnp.expand_dims(mask, tuple(range(mask.ndim, mask.ndim + x.ndim - 1)))
