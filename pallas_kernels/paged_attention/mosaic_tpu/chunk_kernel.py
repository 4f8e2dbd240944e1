"""Device: the TPU kernel for rows with several query tokens: chunks of prompts and draft trees, tile by tile.

Queries have the layout [K, T · G, H]: a KV head's G queries of a token, then the next token's. A *tile* is R such
lines, starting at a multiple of the register's height, for one row; its lines of other rows are computed and dropped:

    lines      0        16       32       48       64
    row 0      ├──────────────┤                            tile 0 = [0, 48)
    row 1                     ├──────────┤                 tile 1 = [16, 64): lines [16, 22) are row 0's, from the seam

Tiles are processed in the order of their lines. Outputs of lines before a tile's own are kept in the *seam*, the
register-high strip in which one row ends and the next begins. Queries, outputs and blocks of pages are copied by DMA
while other tiles are processed.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Float, Int, Num

from pallas_kernels.dispatch import interpretation
from pallas_kernels.kernel_types import Copy, Ref, Scalar
from pallas_kernels.page_layouts import NUM_LANES, tile_rows
from pallas_kernels.paged_attention.attention_spec import AttentionSpec
from pallas_kernels.paged_attention.batch_meta import AttentionMeta
from pallas_kernels.paged_attention.mosaic_tpu.block_layouts import BlockLayout, pool_buffer
from pallas_kernels.paged_attention.mosaic_tpu.page_stream import (
    COMPILER_PARAMS,
    PageStream,
    Softmax,
    Span,
    as_operand,
    clear,
    each_group,
    fold,
    outputs,
    scores,
    softmax_buffers,
    start_copy,
    wait_copy,
)
from pallas_kernels.paged_attention.softmax_constants import HIDDEN, LOG2_E

DEPTH = 3
"""Blocks in VMEM. Products take longer than copies here: one block ahead suffices, two bridge the ends of rows."""

HEADS_AT_ONCE = 4
"""KV heads whose softmaxes advance together. In tiles of 256 lines on v6e, 2 heads fill 44 % of the matrix units' slots
and 4 fill 59 % (69 % in tiles of 512); 8 gain 7 % more and take twice the memory for scores."""


class Tiles(NamedTuple):
    """Work of the kernel, the same for all layers and KV groups."""

    rows: Int[Array, "I"]
    starts: Int[Array, "I"]
    """First line of each tile."""
    ends: Int[Array, "S"]
    """Tiles of rows up to and including each row."""


def plan_tiles(meta: AttentionMeta, group_size: int, num_lines: int, align: int) -> Tiles:
    """Tiles of `num_lines` lines for the rows [num_decodes, num_seqs), each from a multiple of `align` on."""
    num_rows, num_tokens = len(meta.kv_lens), len(meta.rows)
    row = jnp.arange(num_rows, dtype=jnp.int32)
    is_long = (row >= meta.num_decodes) & (row < meta.num_seqs)
    first_line = meta.cu_q_lens[:-1] * group_size // align * align
    count = jnp.where(is_long, -(-(meta.cu_q_lens[1:] * group_size - first_line) // num_lines), 0)
    ends = jnp.cumsum(count, dtype=jnp.int32)
    tile = jnp.arange(num_tokens * group_size // num_lines + 2 * num_rows, dtype=jnp.int32)
    rows = jnp.minimum(jnp.searchsorted(ends, tile, side="right", method="compare_all"), num_rows - 1)
    rows = rows.astype(jnp.int32)
    starts = first_line[rows] + (tile - ends[rows] + count[rows]) * num_lines
    return Tiles(rows, starts, ends)


def chunks(
    q: Float[Array, "K lines lanes"],
    pool: Num[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    tables: Int[Array, "S W"],
    meta: AttentionMeta,
    tiles: Tiles,
    first_row: int,
    *,
    blocks: BlockLayout,
    spec: AttentionSpec,
    precision: jax.lax.Precision,
    group_size: int,
    num_lines: int,
    tree: Int[Array, "lines columns"] | None,
    sinks: Float[Array, "K G"] | None,
    k_scale: Float[Array, "K"] | None,
    v_scale: Float[Array, "K"] | None,
) -> Float[Array, "K lines H"]:
    """Attention of the rows [first_row, first_row + S) whose `tables` these are; undefined for other rows' lines.

    q: the batch's lines and `num_lines` more. tree: each line's columns of `tree_columns`.
    """
    num_kv_heads, num_queries, _ = q.shape
    sublanes = tile_rows(q.dtype)
    num_rows = len(tables)
    before = jnp.where(first_row > 0, tiles.ends[first_row - 1], 0)
    num_tiles = tiles.ends[min(first_row + num_rows, len(tiles.ends)) - 1] - before
    prefetched = (
        jnp.stack([layer, before, num_tiles, jnp.int32(first_row)]),
        tables.reshape(-1),
        meta.first_pages[first_row : first_row + num_rows],
        meta.kv_lens,
        meta.cu_q_lens,
        tiles.rows,
        tiles.starts,
    )
    operands: list[Any] = [q, pool]
    in_specs = [pl.BlockSpec(memory_space=pltpu.HBM)] * 2
    num_columns = 0
    if tree is not None:
        operands.append(tree)
        in_specs.append(pl.BlockSpec(memory_space=pltpu.HBM))
        num_columns = tree.shape[1]
    if sinks is not None:
        lines = jnp.tile(sinks * LOG2_E, (1, -(-num_lines // group_size) + 1))
        operands.append(jnp.broadcast_to(lines[..., None], (*lines.shape, NUM_LANES)))
        in_specs.append(pl.BlockSpec(memory_space=pltpu.VMEM))
    if k_scale is not None:
        operands += [k_scale, v_scale]
        in_specs += [pl.BlockSpec(memory_space=pltpu.SMEM)] * 2
    kernel = partial(
        _kernel,
        blocks=blocks,
        spec=spec,
        precision=precision,
        group_size=group_size,
        num_bits=32 * (num_columns - 1),
        has_sinks=sinks is not None,
        has_scales=k_scale is not None,
    )
    by_line = (num_kv_heads, num_lines)
    return pl.pallas_call(
        kernel,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=len(prefetched),
            grid=(1,),
            in_specs=in_specs,
            out_specs=pl.BlockSpec(memory_space=pltpu.HBM),
            scratch_shapes=[
                pltpu.VMEM((2, *by_line, q.shape[2]), q.dtype),
                pltpu.VMEM((2, num_lines, max(1, num_columns)), jnp.int32),
                pltpu.VMEM((2, *by_line, blocks.head_dim), q.dtype),
                pltpu.VMEM((num_kv_heads, sublanes, blocks.head_dim), q.dtype),
                pltpu.SemaphoreType.DMA((2,)),
                pltpu.SemaphoreType.DMA((2,)),
                pool_buffer(DEPTH, blocks),
                pltpu.SemaphoreType.DMA((DEPTH,)),
                pltpu.SMEM((4,), jnp.int32),
                *softmax_buffers(blocks, num_lines),
            ],
        ),
        out_shape=pltpu.HBM((num_kv_heads, num_queries, blocks.head_dim), q.dtype),
        interpret=interpretation(),
        compiler_params=COMPILER_PARAMS,
        name="paged_attention_chunks",
    )(*prefetched, *operands)


class _Tile(NamedTuple):
    """One tile's place in the batch and in its row's context."""

    row: jax.Array
    start: jax.Array
    own_begin: jax.Array
    """First of the tile's lines that belong to the row."""
    own_end: jax.Array
    offset: jax.Array
    """KV position of a token minus its index in the batch."""
    new: jax.Array
    """KV position of the row's first token in the batch."""
    span: Span
    seen_from: jax.Array
    """All of the tile's queries attend to the positions [seen_from, seen_to)."""
    seen_to: jax.Array


def _kernel(
    scalars_ref: Ref,
    tables_ref: Ref,
    first_pages_ref: Ref,
    kv_lens_ref: Ref,
    cu_q_lens_ref: Ref,
    tile_rows_ref: Ref,
    tile_starts_ref: Ref,
    q_hbm: Ref,
    pool_ref: Ref,
    *refs: Ref,
    blocks: BlockLayout,
    spec: AttentionSpec,
    precision: jax.lax.Precision,
    group_size: int,
    num_bits: int,
    has_sinks: bool,
    has_scales: bool,
) -> None:
    window = spec.window
    rest = iter(refs)
    tree_hbm = next(rest) if num_bits > 0 else None
    sinks_ref = next(rest) if has_sinks else None
    k_scale_ref, v_scale_ref = (next(rest), next(rest)) if has_scales else (None, None)
    o_hbm, q_buf, tree_buf, o_buf, seam, q_sems, o_sems, kv_buf, kv_sems, cursor, *softmax_refs = rest
    softmax = Softmax(*softmax_refs)
    num_lines, sublanes = q_buf.shape[2], seam.shape[1]
    layer, first_tile, num_tiles, first_row = (scalars_ref[i] for i in range(4))

    def tile_of(i: Scalar) -> _Tile:
        row, start = tile_rows_ref[first_tile + i], pl.multiple_of(tile_starts_ref[first_tile + i], sublanes)
        first, end = cu_q_lens_ref[row], cu_q_lens_ref[row + 1]
        own_begin = jnp.maximum(first * group_size - start, 0)
        own_end = jnp.minimum(end * group_size - start, num_lines)
        offset = kv_lens_ref[row] - end
        first_query = offset + (start + own_begin) // group_size
        last_query = offset + (start + own_end - 1) // group_size
        new = offset + first
        begin = seen_from = jnp.int32(0)
        if window is not None:
            # A tree node's position in the text is at most its KV position, and at least its root's.
            begin = jnp.maximum((first_query if num_bits <= 0 else new) - window + 1, 0)
            seen_from = jnp.maximum(last_query - window + 1, 0)
        seen_to = first_query + 1 if num_bits <= 0 else jnp.minimum(first_query + 1, new)
        span = Span(row - first_row, begin, last_query + 1)
        return _Tile(row, start, own_begin, own_end, offset, new, span, seen_from, seen_to)

    def span_of(i: Scalar) -> Span:
        return tile_of(i).span

    stream = PageStream(
        blocks,
        pool_ref,
        kv_buf,
        kv_sems,
        cursor,
        layer=layer,
        tables=tables_ref,
        first_pages=first_pages_ref,
        span_of=span_of,
        num_items=num_tiles,
    )

    def queries_of(i: Scalar, buffer: Scalar, act: Callable[[Copy], None]) -> None:
        lines = pl.ds(tile_of(i).start, num_lines)
        act(pltpu.make_async_copy(q_hbm.at[:, lines], q_buf.at[buffer], q_sems.at[buffer]))
        if tree_hbm is not None:
            act(pltpu.make_async_copy(tree_hbm.at[lines], tree_buf.at[buffer], q_sems.at[buffer]))

    def output_of(i: Scalar, buffer: Scalar) -> Copy:
        return pltpu.make_async_copy(
            o_buf.at[buffer], o_hbm.at[:, pl.ds(tile_of(i).start, num_lines)], o_sems.at[buffer]
        )

    def visible(tile: _Tile, buffer: Scalar, first_key: Scalar, size: int) -> jax.Array:
        """[lines, size]: whether each line's query attends to each position from first_key on."""
        line = tile.start + jax.lax.broadcasted_iota(jnp.int32, (num_lines, 1), 0)
        key = first_key + jax.lax.broadcasted_iota(jnp.int32, (1, size), 1)
        # x <= line // G is equivalent to x * G <= line for integers: no division.
        token_line = (key - tile.offset) * group_size
        seen = token_line <= line
        if num_bits <= 0:
            return seen if window is None else seen & (token_line + window * group_size > line)
        columns = tree_buf[buffer]
        in_window: jax.Array | bool = True
        if window is not None:
            in_window = key > columns[:, num_bits // 32 :] - window
        node = key - tile.new
        is_set = jnp.zeros((num_lines, size), jnp.bool_)
        for word in range(num_bits // 32):
            bit = node - 32 * word
            bits = jnp.right_shift(columns[:, word : word + 1], jnp.clip(bit, 0, 31)) & 1
            is_set = is_set | ((bit >= 0) & (bit < 32) & (bits == 1))
        return seen & (is_set | (((node < 0) | (node >= num_bits)) & in_window))

    def fold_heads(
        buffer: Scalar,
        kv_buffer: Scalar,
        positions: Any,
        heads: list[Scalar],
        mask: jax.Array | None = None,
        is_held: Callable[[tuple[int, ...], int], jax.Array] | None = None,
    ) -> None:
        xs: list[jax.Array] = []
        vs: list[jax.Array] = []
        for head in heads:
            k = as_operand(blocks.keys(kv_buf, kv_buffer, head, positions), q_buf.dtype)
            q, k_scale = q_buf[buffer, head], None if k_scale_ref is None else k_scale_ref[head]
            x = scores(spec, q, k, k_scale, blocks.key_dims, precision)
            xs.append(x if mask is None else jnp.where(mask, x, HIDDEN))
            v = blocks.values(kv_buf, kv_buffer, head, positions)
            if is_held is not None:
                v = jnp.where(is_held(v.shape, blocks.value_axis), v.astype(jnp.float32), 0)
            vs.append(as_operand(v, q_buf.dtype))
        fold(softmax, heads, xs, vs, precision, blocks.value_dims)

    def edge_block(tile: _Tile, buffer: Scalar, kv_buffer: Scalar, block: Scalar) -> None:
        """A block that is not entirely visible to all queries: its pieces that hold visible positions."""
        begin = block * blocks.positions
        size = blocks.edge_len

        def piece(j: Scalar, carry: Scalar) -> Scalar:
            first_key = begin + j * size
            mask = visible(tile, buffer, first_key, size)

            def is_held(of_shape: tuple[int, ...], axis: int) -> jax.Array:
                position = first_key + jax.lax.broadcasted_iota(jnp.int32, of_shape, axis)
                return (position >= tile.span.begin) & (position < tile.span.end)

            positions = pl.ds(pl.multiple_of(j * size, size), size)
            fold_piece = partial(fold_heads, buffer, kv_buffer, positions, mask=mask, is_held=is_held)
            each_group(blocks.num_kv_heads, fold_piece, size=HEADS_AT_ONCE)
            return carry

        first = jnp.maximum(tile.span.begin - begin, 0) // size
        last = (jnp.minimum(tile.span.end - begin, blocks.positions) - 1) // size
        jax.lax.fori_loop(first, last + 1, piece, 0)

    def attend_tile(i: Scalar, carry: Scalar) -> Scalar:
        tile, buffer = tile_of(i), i % 2
        first, last = stream.first_block(tile.span), stream.last_block(tile.span)

        @pl.when(i + 1 < num_tiles)
        def _() -> None:
            queries_of(i + 1, 1 - buffer, start_copy)

        clear(softmax)
        queries_of(i, buffer, wait_copy)

        def edge(block: Scalar, carry: Scalar) -> Scalar:
            edge_block(tile, buffer, stream.wait(tile.span, block), block)
            stream.release()
            return carry

        def whole(block: Scalar, carry: Scalar) -> Scalar:
            kv_buffer = stream.wait_whole()
            each_group(blocks.num_kv_heads, partial(fold_heads, buffer, kv_buffer, slice(None)), size=HEADS_AT_ONCE)
            stream.release()
            return carry

        whole_from = jnp.minimum((tile.seen_from + blocks.positions - 1) // blocks.positions, last + 1)
        whole_to = jnp.clip(tile.seen_to // blocks.positions, whole_from, last + 1)
        if window is not None:
            jax.lax.fori_loop(first, whole_from, edge, 0)
        jax.lax.fori_loop(whole_from, whole_to, whole, 0)
        jax.lax.fori_loop(whole_to, last + 1, edge, 0)

        def finish(heads: list[Scalar]) -> None:
            for head in heads:
                sink: jax.Array | float = 0.0
                if sinks_ref is not None:
                    lines = pl.ds(tile.start % group_size, num_lines)
                    sink = jnp.exp2(sinks_ref[head, lines] - softmax.highest[head])[:, :1]
                o_buf[buffer, head] = outputs(softmax, head, blocks, v_scale_ref, sink).astype(o_buf.dtype)
                strip = o_buf[buffer, head, :sublanes].astype(jnp.float32)
                is_own = jax.lax.broadcasted_iota(jnp.int32, strip.shape, 0) >= tile.own_begin
                strip = jnp.where(is_own, strip, seam[head].astype(jnp.float32))
                o_buf[buffer, head, :sublanes] = strip.astype(o_buf.dtype)
                next_seam = jnp.minimum(tile.own_end // sublanes * sublanes, num_lines - sublanes)
                seam[head] = o_buf[buffer, head, pl.ds(pl.multiple_of(next_seam, sublanes), sublanes)]

        each_group(blocks.num_kv_heads, finish, size=HEADS_AT_ONCE)

        @pl.when(i > 0)
        def _() -> None:
            output_of(i - 1, 1 - buffer).wait()

        output_of(i, buffer).start()
        return carry

    @pl.when(num_tiles > 0)
    def _() -> None:
        queries_of(0, 0, start_copy)
        stream.begin()
        jax.lax.fori_loop(0, num_tiles, attend_tile, 0)
        output_of(num_tiles - 1, (num_tiles - 1) % 2).wait()
