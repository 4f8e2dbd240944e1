"""Device: the TPU kernel for rows with one query token; it also stores the token's key and value.

    row r:    | block | block | … | last block + the new key and value ──DMA──▶ pool
    row r+1:  | block | …           copied while row r is processed

A grid step processes a group of rows; Pallas' pipeline copies their queries and outputs.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Float, Int, Num

from pallas_kernels.dispatch import interpretation
from pallas_kernels.kernel_types import Copy, Ref, Scalar
from pallas_kernels.page_layouts import NUM_LANES
from pallas_kernels.paged_attention.attention_spec import AttentionSpec
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
)
from pallas_kernels.paged_attention.softmax_constants import HIDDEN, LOG2_E

DEPTH = 4
"""Blocks in VMEM. A block of 2 MiB is 1.3 µs of a v6e's memory, about the latency of a copy, so that a single
copy in flight would leave memory idle between short rows; three are meant to bridge that (not measured on a device)."""

Mask = Callable[[tuple[int, ...], int], jax.Array]
"""Mask of an array of this shape, on one of whose axes positions lie."""


def decode(
    q: Float[Array, "S K R lanes"],
    new: Num[Array, "S K packed"] | None,
    pool: Num[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    tables: Int[Array, "S W"],
    first_pages: Int[Array, "S"],
    kv_lens: Int[Array, "S"],
    num_rows: Int[Array, ""],
    *,
    blocks: BlockLayout,
    spec: AttentionSpec,
    precision: jax.lax.Precision,
    sinks: Float[Array, "K R"] | None,
    k_scale: Float[Array, "K"] | None,
    v_scale: Float[Array, "K"] | None,
    rows: int,
) -> tuple[Float[Array, "S K R H"], Num[Array, "Lg P K page W2"]]:
    """Attention of the last token of rows [0, num_rows); undefined for other rows.

    new: the tokens as `pack_tokens` returns them, in the pool's dtype; None stores nothing.
    """
    num_seqs, num_kv_heads, num_queries, _ = q.shape

    def of_rows(*tail: int) -> pl.BlockSpec:
        def index(i: Scalar, *_: Ref) -> tuple[Scalar, ...]:
            return (i, *(0 for _ in tail))

        return pl.BlockSpec((rows, *tail), index)

    in_hbm = pl.BlockSpec(memory_space=pltpu.HBM)
    in_smem = pl.BlockSpec(memory_space=pltpu.SMEM)
    sink_lanes = None if sinks is None else jnp.broadcast_to(sinks[..., None] * LOG2_E, (*sinks.shape, NUM_LANES))
    inputs: dict[str, tuple[Any, pl.BlockSpec]] = {
        "q": (q, of_rows(*q.shape[1:])),
        "new": (None, in_hbm) if new is None else blocks.new_operand(new, rows),
        "sinks": (sink_lanes, pl.BlockSpec(memory_space=pltpu.VMEM)),
        "k_scale": (k_scale, in_smem),
        "v_scale": (v_scale, in_smem),
        "pool": (pltpu.with_memory_space_constraint(pool, pltpu.HBM), in_hbm),
    }
    inputs = {name: given for name, given in inputs.items() if given[0] is not None}
    o_shape = (num_queries, blocks.head_dim)
    outputs: dict[str, tuple[Any, pl.BlockSpec]] = {
        "o": (jax.ShapeDtypeStruct((num_seqs, num_kv_heads, *o_shape), q.dtype), of_rows(num_kv_heads, *o_shape))
    }
    prefetched = (layer[None], num_rows[None], tables.reshape(-1), first_pages, kv_lens)
    aliases = {}
    if new is not None:
        outputs["pool"] = (pltpu.HBM(pool.shape, pool.dtype), in_hbm)
        aliases = {len(prefetched) + len(inputs) - 1: 1}
    out = pl.pallas_call(
        partial(_kernel, names=(*inputs, *outputs), blocks=blocks, spec=spec, precision=precision, rows=rows),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=len(prefetched),
            grid=(jnp.maximum(1, -(-num_rows // rows)),),
            in_specs=[spec for _, spec in inputs.values()],
            out_specs=[spec for _, spec in outputs.values()],
            scratch_shapes=[
                pool_buffer(DEPTH, blocks),
                pltpu.SemaphoreType.DMA((DEPTH,)),
                pltpu.SMEM((4,), jnp.int32),
                pltpu.SemaphoreType.DMA,
                *softmax_buffers(blocks, num_queries),
            ],
        ),
        out_shape=[made for made, _ in outputs.values()],
        input_output_aliases=aliases,
        interpret=interpretation(),
        compiler_params=COMPILER_PARAMS,
        name="paged_attention_decode",
    )(*prefetched, *(array for array, _ in inputs.values()))
    return (out[0], out[1]) if new is not None else (out[0], pool)


def _kernel(
    layer_ref: Ref,
    num_rows_ref: Ref,
    tables_ref: Ref,
    first_pages_ref: Ref,
    kv_lens_ref: Ref,
    *refs: Ref,
    names: tuple[str, ...],
    blocks: BlockLayout,
    spec: AttentionSpec,
    precision: jax.lax.Precision,
    rows: int,
) -> None:
    given = dict(zip(names, refs, strict=False))  # a pool that is written occurs twice, last as the output
    q_ref, o_ref, pool_ref = given["q"], given["o"], given["pool"]
    new_ref, sinks_ref, k_scale_ref, v_scale_ref = (given.get(name) for name in ("new", "sinks", "k_scale", "v_scale"))
    kv_buf, sems, cursor, write_sem, *softmax_refs = refs[len(names) :]
    softmax = Softmax(*softmax_refs)
    num_rows = num_rows_ref[0]
    first_row = pl.program_id(0) * rows
    dtype = q_ref.dtype

    def span_of(row: Scalar) -> Span:
        end = kv_lens_ref[row]
        return Span(row, jnp.int32(0) if spec.window is None else jnp.maximum(end - spec.window, 0), end)

    stream = PageStream(
        blocks,
        pool_ref,
        kv_buf,
        sems,
        cursor,
        layer=layer_ref[0],
        tables=tables_ref,
        first_pages=first_pages_ref,
        span_of=span_of,
        num_items=num_rows,
    )

    @pl.when(first_row == 0)
    def _() -> None:
        stream.begin()

    def fold_heads(
        i: Scalar, buffer: Scalar, positions: Scalar, heads: list[Scalar], mask_of: Mask | None = None
    ) -> None:
        xs: list[jax.Array] = []
        vs: list[jax.Array] = []
        for head in heads:
            k = as_operand(blocks.keys(kv_buf, buffer, head, positions), dtype)
            q, k_scale = q_ref[i, head], None if k_scale_ref is None else k_scale_ref[head]
            x = scores(spec, q, k, k_scale, blocks.key_dims, precision)
            xs.append(x if mask_of is None else jnp.where(mask_of(x.shape, 1), x, HIDDEN))
        for head in heads:
            v = blocks.values(kv_buf, buffer, head, positions)
            if mask_of is not None:
                v = jnp.where(mask_of(v.shape, blocks.value_axis), v.astype(jnp.float32), 0)
            vs.append(as_operand(v, dtype))
        fold(softmax, heads, xs, vs, precision, blocks.value_dims)

    def edge_block(i: Scalar, span: Span, block: Scalar, buffer: Scalar) -> None:
        """A block of which only a part is visible: its pieces that hold visible positions."""
        start = block * blocks.positions
        size = blocks.edge_len

        def piece(j: Scalar, carry: Scalar) -> Scalar:
            def mask_of(full_shape: tuple[int, ...], axis: int) -> jax.Array:
                position = start + j * size + jax.lax.broadcasted_iota(jnp.int32, full_shape, axis)
                return (position >= span.begin) & (position < span.end)

            positions = pl.ds(pl.multiple_of(j * size, size), size)
            each_group(blocks.num_kv_heads, partial(fold_heads, i, buffer, positions, mask_of=mask_of))
            return carry

        first = jnp.maximum(span.begin - start, 0) // size
        last = (jnp.minimum(span.end - start, blocks.positions) - 1) // size
        jax.lax.fori_loop(first, last + 1, piece, 0)

    def new_tile(span: Span, block: Scalar) -> tuple[jax.Array, jax.Array]:
        """First position, in the block, of the tile that holds the new token, and the token's offset in the tile."""
        offset = span.end - 1 - block * blocks.positions
        return pl.multiple_of(offset // blocks.tile_len * blocks.tile_len, blocks.tile_len), offset % blocks.tile_len

    def store_new(i: Scalar, span: Span, block: Scalar, buffer: Scalar) -> None:
        """Writes row i's new token into the current block, and starts the copy of its tile to the pool."""
        blocks.put(kv_buf, buffer, *new_tile(span, block), new_ref, first_row, i)
        copy_new(span, block, buffer).start()

    def copy_new(span: Span, block: Scalar, buffer: Scalar) -> Copy:
        tile, _ = new_tile(span, block)
        page = stream.page_id(span.row, (span.end - 1) // blocks.page_size)
        in_page = pl.multiple_of(tile % blocks.page_size, blocks.tile_len)
        source = kv_buf.at[blocks.tokens((buffer,), pl.ds(tile, blocks.tile_len))]
        target = pool_ref.at[blocks.tokens((layer_ref[0], page), pl.ds(in_page, blocks.tile_len))]
        return pltpu.make_async_copy(source, target, write_sem)

    def attend_row(i: Scalar, carry: Scalar) -> Scalar:
        span = span_of(first_row + i)
        first, last = stream.first_block(span), stream.last_block(span)

        if sinks_ref is None:
            clear(softmax)
        else:
            softmax.highest[...] = sinks_ref[...]
            lane = jax.lax.broadcasted_iota(jnp.int32, softmax.total.shape, 2)
            softmax.total[...] = jnp.where(lane == 0, 1.0, 0.0)
            softmax.weighted[...] = jnp.zeros_like(softmax.weighted)

        def whole_block(block: Scalar, carry: Scalar) -> Scalar:
            buffer = stream.wait_whole()
            each_group(blocks.num_kv_heads, partial(fold_heads, i, buffer, slice(None)))
            stream.release()
            return carry

        whole_from = first
        if spec.window is not None:
            whole_from = jnp.minimum(first + 1, last)

            @pl.when(first < last)
            def _() -> None:
                edge_block(i, span, first, stream.wait(span, first))
                stream.release()

        jax.lax.fori_loop(whole_from, last, whole_block, 0)

        buffer = stream.wait(span, last)
        if new_ref is not None:
            store_new(i, span, last, buffer)
        edge_block(i, span, last, buffer)

        def finish(heads: list[Scalar]) -> None:
            for head in heads:
                o_ref[i, head] = outputs(softmax, head, blocks, v_scale_ref).astype(o_ref.dtype)

        each_group(blocks.num_kv_heads, finish)
        if new_ref is not None:
            copy_new(span, last, buffer).wait()
        stream.release()
        return carry

    jax.lax.fori_loop(0, jnp.clip(num_rows - first_row, 0, rows), attend_row, 0)
