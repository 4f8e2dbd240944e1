"""Device: shared by both TPU kernels: the stream of blocks of pages into VMEM, and their online softmaxes.

    pool[layer, page]  ──DMA──▶  kv_buf[buffer, K, block]  ──▶  softmax of each head

The layout of a block depends on the pool's (`block_layouts`).

Scores are in base 2 (a factor of log2 e is part of the scale), since the hardware computes powers of 2.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from pallas_kernels.dispatch import interpretation
from pallas_kernels.kernel_types import Copy, Ref, Scalar
from pallas_kernels.page_layouts import NUM_LANES
from pallas_kernels.paged_attention.attention_spec import AttentionSpec
from pallas_kernels.paged_attention.mosaic_tpu.block_layouts import BlockLayout, Dims
from pallas_kernels.paged_attention.softmax_constants import LOG2_E, LOWEST

VMEM_BYTES = 48 * 2**20
"""Limit of a kernel: blocks by rule need up to 20 MiB; the smallest memory, a TPU7x core's, has 64 MiB."""
COMPILER_PARAMS = pltpu.CompilerParams(
    dimension_semantics=("arbitrary",), disable_bounds_checks=True, vmem_limit_bytes=VMEM_BYTES
)


class Span(NamedTuple):
    """Positions [begin, end) of one row that a query, or a tile of queries, may attend to."""

    row: jax.Array
    begin: jax.Array
    end: jax.Array


def start_copy(copy: Copy) -> None:
    copy.start()


def wait_copy(copy: Copy) -> None:
    copy.wait()


class PageStream:
    """Blocks of pages streamed through VMEM in the order of their use, item (row or tile) after item.

        items              | item 0: 2 blocks | item 1 | item 2: 3 blocks …
        buffer of kv_buf        0         1         2        3    0    1         (depth 4)
                              └ in use  └──── in flight ───┘

    `begin` starts the first `depth` blocks. Then `wait` returns the buffer in which the next block has arrived, and
    `release` refills that buffer with the next block that has not been started.
    """

    PAGES_AT_ONCE = 4

    def __init__(
        self,
        blocks: BlockLayout,
        pool: Ref,
        kv_buf: Ref,
        sems: Ref,
        cursor: Ref,
        *,
        layer: jax.Array,
        tables: Ref,
        first_pages: Ref,
        span_of: Callable[[Scalar], Span],
        num_items: jax.Array,
    ):
        """cursor: int32[4] in SMEM: next item and block to start (block -1: its first), blocks started, blocks used."""
        self.blocks, self.pool, self.kv_buf, self.sems, self.cursor = blocks, pool, kv_buf, sems, cursor
        self.layer, self.tables, self.first_pages = layer, tables, first_pages
        self.span_of, self.num_items = span_of, num_items
        self.depth = kv_buf.shape[0]

    def first_block(self, span: Span) -> jax.Array:
        return span.begin // self.blocks.positions

    def last_block(self, span: Span) -> jax.Array:
        return (span.end - 1) // self.blocks.positions

    def page_id(self, row: jax.Array, page: jax.Array) -> jax.Array:
        """Page id of the page-th page of a row."""
        return self.tables[row * self.blocks.width + page - self.first_pages[row]]

    def begin(self) -> None:
        self.cursor[0], self.cursor[1], self.cursor[2], self.cursor[3] = 0, -1, 0, 0

        def start_one(_: Scalar, carry: Scalar) -> Scalar:
            self._start_next()
            return carry

        jax.lax.fori_loop(0, self.depth, start_one, 0)

    def wait(self, span: Span, block: jax.Array) -> jax.Array:
        """The buffer of this item's block, which must be the next in order."""
        buffer = self.cursor[3] % self.depth
        self._each_page(span, block, buffer, wait_copy)
        return buffer

    def wait_whole(self) -> jax.Array:
        """The buffer of the next block, all of whose pages belong to the item: one wait for the sum of their bytes."""
        buffer = self.cursor[3] % self.depth
        whole = self.kv_buf.at[buffer]
        pltpu.make_async_copy(whole, whole, self.sems.at[buffer]).wait()
        return buffer

    def release(self) -> None:
        """Frees the block that the last wait returned."""
        self.cursor[3] += 1
        self._start_next()

    def _start_next(self) -> None:
        item = self.cursor[0]

        @pl.when(item < self.num_items)
        def _() -> None:
            span = self.span_of(item)
            block = jnp.where(self.cursor[1] < 0, self.first_block(span), self.cursor[1])
            self._each_page(span, block, self.cursor[2] % self.depth, start_copy)
            is_last = block == self.last_block(span)
            self.cursor[0] = jnp.where(is_last, item + 1, item)
            self.cursor[1] = jnp.where(is_last, -1, block + 1)
            self.cursor[2] += 1

    def _each_page(self, span: Span, block: jax.Array, buffer: jax.Array, act: Callable[[Copy], None]) -> None:
        blocks = self.blocks
        first_page = block * blocks.pages
        first = jnp.maximum(span.begin // blocks.page_size, first_page)
        last = jnp.minimum((span.end - 1) // blocks.page_size, first_page + blocks.pages - 1)
        num_pages = min(self.PAGES_AT_ONCE, blocks.pages)

        def visit(i: Scalar, carry: Scalar) -> Scalar:
            pages = [first + i * num_pages + j for j in range(num_pages)]
            # All are looked up before the first copy: scalar loads have a long latency, and wait for no branch here.
            ids = [self.page_id(span.row, jnp.minimum(page, last)) for page in pages]
            for page, page_id in zip(pages, ids, strict=True):

                @pl.when(page <= last)
                def _(page: Scalar = page, page_id: Scalar = page_id) -> None:
                    at = pl.multiple_of((page - first_page) * blocks.page_size, blocks.page_size)
                    target = self.kv_buf.at[blocks.tokens((buffer,), pl.ds(at, blocks.page_size))]
                    act(pltpu.make_async_copy(self.pool.at[self.layer, page_id], target, self.sems.at[buffer]))

            return carry

        jax.lax.fori_loop(0, (last - first + num_pages) // num_pages, visit, 0)


class Softmax(NamedTuple):
    """Refs of the online softmaxes of all KV heads: R queries each."""

    highest: Ref
    """[K, R, 128], the same in all lanes."""
    total: Ref
    """[K, R, 128]; a query's sum is that of its lanes."""
    weighted: Ref
    """[K, R, value_lanes]"""


def softmax_buffers(blocks: BlockLayout, num_queries: int) -> list[Any]:
    """VMEM for a `Softmax` of `num_queries` queries a KV head."""
    widths = (NUM_LANES, NUM_LANES, blocks.value_lanes)
    return [pltpu.VMEM((blocks.num_kv_heads, num_queries, width), jnp.float32) for width in widths]


def clear(softmax: Softmax) -> None:
    """Resets the sums for a new row or tile."""
    softmax.highest[...] = jnp.full_like(softmax.highest, LOWEST)
    softmax.total[...] = jnp.zeros_like(softmax.total)
    softmax.weighted[...] = jnp.zeros_like(softmax.weighted)


def outputs(softmax: Softmax, head: Any, blocks: BlockLayout, v_scale: Any, sink: jax.Array | float = 0.0) -> jax.Array:
    """[R, H]: outputs of a head after its last position. `sink` [R, 1]: the sinks' part of the sums."""
    total = jnp.sum(softmax.total[head], axis=1, keepdims=True) + sink
    o = softmax.weighted[head] / jnp.maximum(total, np.finfo(np.float32).tiny)
    return (o if v_scale is None else o * v_scale[head])[:, blocks.output_lanes]


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

    The matrix unit multiplies float8 by bfloat16 directly; conversion is emulated (v6e, page 128: 2086 bundles per 512
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
) -> None:
    """Adds positions with scores `xs` [R, C] and values, whose axis dims[1] is C, of each head to its softmax.

    The heads advance together, so that the products of one hide the latencies of the others.
    (Online softmax: Milakov and Gimelshein, arXiv 1805.02867.)
    """
    before = [softmax.highest[head] for head in heads]
    highest = [jnp.maximum(b, jnp.max(x, axis=1, keepdims=True)) for b, x in zip(before, xs, strict=True)]
    weights = [jnp.exp2(x - over_lanes(h, x.shape[1])) for x, h in zip(xs, highest, strict=True)]
    # The product's other operand may be float8.
    dtype = values[0].dtype if values[0].dtype.itemsize > 1 else jnp.bfloat16
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
    """[R, num_lanes] of [R, 128] with equal lanes: registers are reused, where a broadcast would move data."""
    if num_lanes <= NUM_LANES:
        return x[:, :num_lanes]
    return jnp.concatenate([x] * -(-num_lanes // NUM_LANES), axis=1)[:, :num_lanes]


def sum_by_lane(x: jax.Array) -> jax.Array:
    """[R, 128] whose lanes have the same sum as those of x: whole registers are added, lanes only at a row's end."""
    num_lanes = x.shape[1]
    if num_lanes < NUM_LANES:
        return jnp.pad(x, ((0, 0), (0, NUM_LANES - num_lanes)))
    return sum(x[:, i : i + NUM_LANES] for i in range(NUM_LANES, num_lanes, NUM_LANES)) + x[:, :NUM_LANES]


def each_group(num_kv_heads: int, visit: Callable[[list[Scalar]], None], size: int = 8) -> None:
    """Visits all KV heads, up to `size` of them at once.

    Two at once where the kernel is interpreted: there is no latency to hide, and longer programs compile longer.
    """
    size = min(size, 2) if interpretation() else size
    size = next(n for n in range(min(size, num_kv_heads), 0, -1) if num_kv_heads % n == 0)
    if size == num_kv_heads:
        visit(list(range(size)))
        return

    def group(i: Scalar, carry: Scalar) -> Scalar:
        visit([i * size + j for j in range(size)])
        return carry

    jax.lax.fori_loop(0, num_kv_heads // size, group, 0)
