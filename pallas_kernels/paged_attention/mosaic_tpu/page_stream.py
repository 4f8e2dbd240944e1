"""Device: what both TPU kernels do: bring blocks of pages from the pool into VMEM, and fold them into online softmaxes.

    pool[layer, page]  ──DMA──▶  kv_buf[slot, K, block]  ──▶  softmax of each head

How a block lies there depends on the pool's layout (`mosaic_tpu_shapes`).

Scores live in base 2 (a factor of log2 e is folded into the scale), since the hardware raises 2 to a power.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from pallas_kernels.dispatch import interpretation
from pallas_kernels.page_layouts import NUM_LANES
from pallas_kernels.paged_attention.attention_spec import AttentionSpec
from pallas_kernels.paged_attention.mosaic_tpu.block_layouts import Dims, Shape

VMEM_BYTES = 48 * 2**20
"""What a kernel may use: the blocks by rule need up to 20 MiB; the smallest memory, a 7x core's, is 64 MiB."""
LOG2_E = math.log2(math.e)
HIDDEN = float(jnp.finfo(jnp.float32).min)
"""Score of what a query does not see."""
LOWEST = -1e30
"""Highest score so far of a query that has seen nothing. Far above HIDDEN: 2 ** (HIDDEN - LOWEST) is 0."""


class Span(NamedTuple):
    """Positions [begin, end) of one row that a query, or a tile of them, may see."""

    row: jax.Array
    begin: jax.Array
    end: jax.Array


class PageStream:
    """Blocks of pages on their way through VMEM, in the order in which they are used, item (row or tile) after item.

        items         | item 0: 2 blocks | item 1 | item 2: 3 blocks …
        kv_buf slot      0         1         2        3    0    1         (depth 4)
                         └ in use  └──── in flight ───┘

    `begin` starts the first `depth` blocks. From then on `wait` says in which slot the next block has arrived, and
    `release` lets the stream fill that slot again, with the first block of all that has not been started.
    """

    PAGES_AT_ONCE = 4

    def __init__(
        self,
        shape: Shape,
        pool: Any,
        kv_buf: Any,
        sems: Any,
        cursor: Any,
        *,
        layer: jax.Array,
        tables: Any,
        first_pages: Any,
        span_of: Callable[[Any], Span],
        num_items: jax.Array,
    ):
        """cursor: int32[4] in SMEM: the item and block to start next (block -1: its first), blocks started, used."""
        self.shape, self.pool, self.kv_buf, self.sems, self.cursor = shape, pool, kv_buf, sems, cursor
        self.layer, self.tables, self.first_pages = layer, tables, first_pages
        self.span_of, self.num_items = span_of, num_items
        self.depth = kv_buf.shape[0]

    def first_block(self, span: Span) -> jax.Array:
        return span.begin // self.shape.positions

    def last_block(self, span: Span) -> jax.Array:
        return (span.end - 1) // self.shape.positions

    def page_id(self, row: jax.Array, page: jax.Array) -> jax.Array:
        """Where the pool holds the page-th page of a row."""
        return self.tables[row * self.shape.width + page - self.first_pages[row]]

    def begin(self) -> None:
        self.cursor[0], self.cursor[1], self.cursor[2], self.cursor[3] = 0, -1, 0, 0
        jax.lax.fori_loop(0, self.depth, lambda i, carry: (self._start_next(), carry)[1], 0)

    def wait(self, span: Span, block: jax.Array) -> jax.Array:
        """The slot of this item's block, which must be the next in order."""
        slot = self.cursor[3] % self.depth
        self._each_page(span, block, slot, lambda copy: copy.wait())
        return slot

    def wait_whole(self) -> jax.Array:
        """The slot of the next block, all of whose pages are the item's: one wait for the sum of their bytes."""
        slot = self.cursor[3] % self.depth
        whole = self.kv_buf.at[slot]
        pltpu.make_async_copy(whole, whole, self.sems.at[slot]).wait()
        return slot

    def release(self) -> None:
        """The block last waited for is no longer needed."""
        self.cursor[3] += 1
        self._start_next()

    def _start_next(self) -> None:
        item = self.cursor[0]

        @pl.when(item < self.num_items)
        def _():
            span = self.span_of(item)
            block = jnp.where(self.cursor[1] < 0, self.first_block(span), self.cursor[1])
            self._each_page(span, block, self.cursor[2] % self.depth, lambda copy: copy.start())
            is_last = block == self.last_block(span)
            self.cursor[0] = jnp.where(is_last, item + 1, item)
            self.cursor[1] = jnp.where(is_last, -1, block + 1)
            self.cursor[2] += 1

    def _each_page(self, span: Span, block: jax.Array, slot: jax.Array, act: Callable[[Any], None]) -> None:
        shape = self.shape
        first_page = block * shape.pages
        first = jnp.maximum(span.begin // shape.page_size, first_page)
        last = jnp.minimum((span.end - 1) // shape.page_size, first_page + shape.pages - 1)
        num_pages = min(self.PAGES_AT_ONCE, shape.pages)

        def visit(i, carry):
            pages = [first + i * num_pages + j for j in range(num_pages)]
            # Looked up for all before the first copy: loads of scalars take long, and wait for no branch here.
            ids = [self.page_id(span.row, jnp.minimum(page, last)) for page in pages]
            for page, page_id in zip(pages, ids, strict=True):

                @pl.when(page <= last)
                def _(page=page, page_id=page_id):
                    at = pl.multiple_of((page - first_page) * shape.page_size, shape.page_size)
                    target = self.kv_buf.at[shape.tokens((slot,), pl.ds(at, shape.page_size))]
                    act(pltpu.make_async_copy(self.pool.at[self.layer, page_id], target, self.sems.at[slot]))

            return carry

        jax.lax.fori_loop(0, (last - first + num_pages) // num_pages, visit, 0)


class Softmax(NamedTuple):
    """Refs of the online softmaxes of all KV heads: R queries each."""

    highest: Any
    """[K, R, 128], the same in all lanes."""
    total: Any
    """[K, R, 128]; a query's sum is that of its lanes."""
    weighted: Any
    """[K, R, value_lanes]"""


def softmax_buffers(shape: Shape, num_queries: int) -> list[Any]:
    """VMEM for a `Softmax` of so many queries a KV head."""
    widths = (NUM_LANES, NUM_LANES, shape.value_lanes)
    return [pltpu.VMEM((shape.num_kv_heads, num_queries, width), jnp.float32) for width in widths]


def outputs(softmax: Softmax, head: Any, shape: Shape, v_scale: Any, sink: jax.Array | float = 0.0) -> jax.Array:
    """[R, H] of a head when all positions are folded in. `sink` [R, 1] is what sinks add to the sums."""
    total = jnp.sum(softmax.total[head], axis=1, keepdims=True) + sink
    o = softmax.weighted[head] / jnp.maximum(total, jnp.finfo(jnp.float32).tiny)
    return (o if v_scale is None else o * v_scale[head])[:, shape.output_lanes]


def scores(
    spec: AttentionSpec, q: jax.Array, k: jax.Array, k_scale: jax.Array | None, dims: Dims, precision: Any
) -> jax.Array:
    """[R, C] scores in base 2 of queries [R, lanes] and keys, whose axis dims[1] is that of the lanes."""
    x = jax.lax.dot_general(q, k, (dims, ((), ())), precision=precision, preferred_element_type=jnp.float32)
    factor = spec.scale * LOG2_E if spec.softcap is None else spec.scale / spec.softcap
    x = x * (factor if k_scale is None else factor * k_scale)
    return x if spec.softcap is None else (spec.softcap * LOG2_E) * jnp.tanh(x)


def as_operand(x: jax.Array, dtype: Any) -> jax.Array:
    """Stored keys or values for a product with operands of `dtype`.

    The matrix unit takes float8 as it is beside bfloat16; conversion is emulated (v6e, page 128: 2086 bundles per 512
    positions of 8 heads, 527 without it).
    """
    is_float8 = x.dtype.itemsize == 1 and jnp.issubdtype(x.dtype, jnp.floating)
    return x if is_float8 and dtype == jnp.bfloat16 else x.astype(dtype)


def fold(
    softmax: Softmax,
    heads: Sequence[Any],
    xs: Sequence[jax.Array],
    values: Sequence[jax.Array],
    precision: Any,
    dims: Dims,
):
    """Adds positions with scores `xs` [R, C] and values, whose axis dims[1] is C, of each head to its softmax.

    The heads advance step by step together, so that one's products hide the others' latencies.
    (Online softmax: Milakov and Gimelshein, arXiv 1805.02867.)
    """
    before = [softmax.highest[head] for head in heads]
    highest = [jnp.maximum(b, jnp.max(x, axis=1, keepdims=True)) for b, x in zip(before, xs, strict=True)]
    weights = [jnp.exp2(x - over_lanes(h, x.shape[1])) for x, h in zip(xs, highest, strict=True)]
    dtype = (
        values[0].dtype if values[0].dtype.itemsize > 1 else jnp.bfloat16
    )  # the product's other operand may be float8
    found = [
        jax.lax.dot_general(
            w.astype(dtype), v, (dims, ((), ())), precision=precision, preferred_element_type=jnp.float32
        )
        for w, v in zip(weights, values, strict=True)
    ]
    for head, b, h, w, f in zip(heads, before, highest, weights, found, strict=True):
        decay = jnp.exp2(b - h)
        softmax.highest[head] = h
        softmax.total[head] = decay * softmax.total[head] + sum_by_lane(w)
        softmax.weighted[head] = over_lanes(decay, f.shape[1]) * softmax.weighted[head] + f


def over_lanes(x: jax.Array, num_lanes: int) -> jax.Array:
    """[R, num_lanes] of [R, 128] whose lanes are alike: registers are used again, where a broadcast would move data."""
    if num_lanes <= NUM_LANES:
        return x[:, :num_lanes]
    return jnp.concatenate([x] * -(-num_lanes // NUM_LANES), axis=1)[:, :num_lanes]


def sum_by_lane(x: jax.Array) -> jax.Array:
    """[R, 128] whose lanes add up to x's: whole registers are added, lanes once a row at its end."""
    num_lanes = x.shape[1]
    if num_lanes < NUM_LANES:
        return jnp.pad(x, ((0, 0), (0, NUM_LANES - num_lanes)))
    return sum(x[:, i : i + NUM_LANES] for i in range(NUM_LANES, num_lanes, NUM_LANES)) + x[:, :NUM_LANES]


def each_group(num_kv_heads: int, visit: Callable[[list[Any]], None], size: int = 8) -> None:
    """Visits all KV heads, up to `size` of them at once.

    Interpreted two at once: no latency is there to hide, and a program takes longer to compile the longer it is.
    """
    size = min(size, 2) if interpretation() else size
    size = next(n for n in range(min(size, num_kv_heads), 0, -1) if num_kv_heads % n == 0)
    if size == num_kv_heads:
        visit(list(range(size)))
        return

    def group(i, carry):
        visit([i * size + j for j in range(size)])
        return carry

    jax.lax.fori_loop(0, num_kv_heads // size, group, 0)
