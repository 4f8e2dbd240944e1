"""Device: paged attention on TPUs by two Pallas kernels: one for rows with one token, one for longer rows.

    k, v of longer rows ──▶ pages (page_ops.write)      k, v of one-token rows ──▶ pages (by their kernel)
    o = chunks kernel where a token's row is longer, decode kernel where it is one token, 0 at padding

Queries are grouped by KV head for the kernels, and outputs ungrouped; XLA fuses both with neighboring operations.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, no_type_check

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Num

from pallas_kernels.page_layouts import NUM_LANES, tile_rows
from pallas_kernels.page_ops.aligned_pieces import Pieces, piece_len, plan_pieces
from pallas_kernels.page_ops.api import write
from pallas_kernels.page_ops.pack_tokens import pack_tokens
from pallas_kernels.paged_attention.attention_spec import AttentionSpec, ModelSizes
from pallas_kernels.paged_attention.batch_meta import AttentionMeta, tree_columns
from pallas_kernels.paged_attention.block_rules import tpu_block_sizes
from pallas_kernels.paged_attention.block_sizes import BlockSizes
from pallas_kernels.paged_attention.mosaic_tpu.block_layouts import BlockLayout, block_layout
from pallas_kernels.paged_attention.mosaic_tpu.chunk_kernel import Tiles, chunks, plan_tiles
from pallas_kernels.paged_attention.mosaic_tpu.decode_kernel import decode

TABLE_BYTES = 2**19
"""Scalar memory for page tables, of a core's 1 MiB. Batches with larger tables are processed some rows at a time."""


@jax.tree_util.register_dataclass
@no_type_check  # jax rebuilds it with leaves that are not arrays
@dataclass(frozen=True)
class BatchPlan:
    """The plan for the longer rows of a batch."""

    tiles: Tiles
    pieces: Pieces
    tree: Int[Array, "lines columns"] | None


def plan(meta: AttentionMeta, spec: AttentionSpec, model: ModelSizes) -> AttentionMeta:
    """See `api.plan`."""
    check(spec, model)
    if len(meta.rows) == len(meta.kv_lens):
        return meta  # one token a row: nothing to plan
    model = _computed(model)
    num_lines = _num_lines(_block_sizes(_kind_of_longer_rows(meta), meta, spec, model), model)
    tree = None
    if meta.tree is not None:
        tree = jnp.repeat(tree_columns(meta, spec.window), model.group_size, axis=0)
        tree = jnp.pad(tree, ((0, num_lines), (0, 0)))
    longer = (meta.num_decodes, meta.cu_q_lens[meta.num_seqs])
    pieces = plan_pieces(meta.write_slots, *longer, piece_len(model.page_size, spec.layout))
    tiles = plan_tiles(meta, model.group_size, num_lines, tile_rows(model.dtype))
    return replace(meta, plan=BatchPlan(tiles, pieces, tree))


def paged_attention(
    q: Float[Array, "T N H"],
    k: Float[Array, "T K H"] | None,
    v: Float[Array, "T K H"] | None,
    pool: Num[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    meta: AttentionMeta,
    spec: AttentionSpec,
    *,
    sinks: Float[Array, "N"] | None,
    k_scale: Float[Array, "Lg K"] | None,
    v_scale: Float[Array, "Lg K"] | None,
) -> tuple[Float[Array, "T N H"], Num[Array, "Lg P K page W2"]]:
    """See `api.paged_attention`."""
    layout, model = spec.layout, ModelSizes.of(q, pool, spec.layout)
    check(spec, model)
    model = _computed(model)
    num_kv_heads, group_size, head_dim, dtype = model.num_kv_heads, model.group_size, model.head_dim, model.dtype
    num_tokens, (num_rows, width) = len(q), meta.tables.shape
    scales: dict[str, Any] = {"k_scale": None, "v_scale": None}
    if k_scale is not None or v_scale is not None:
        ones = jnp.ones(num_kv_heads, jnp.float32)
        scales["k_scale"] = ones if k_scale is None else k_scale[layer].astype(jnp.float32)
        scales["v_scale"] = ones if v_scale is None else v_scale[layer].astype(jnp.float32)
    precision = jax.lax.Precision.HIGHEST if dtype == jnp.float32 else jax.lax.Precision.DEFAULT
    options = scales | {"spec": spec, "precision": precision}
    grouped_sinks = None if sinks is None else sinks.astype(jnp.float32).reshape(num_kv_heads, group_size)

    def sizes_of(kind: str) -> tuple[BlockSizes, BlockLayout]:
        sizes = _block_sizes(kind, meta, spec, model)
        sizes.pages(model.page_size)
        return sizes, block_layout(layout, pool, head_dim, width, sizes.positions)

    queries = q.astype(dtype).reshape(num_tokens, num_kv_heads, group_size, head_dim)
    rows_at_once = max(1, TABLE_BYTES // (4 * width))
    parts = [slice(i, min(i + rows_at_once, num_rows)) for i in range(0, num_rows, rows_at_once)]
    sizes, blocks = sizes_of("decode")
    is_decode_only = num_tokens == num_rows
    if is_decode_only:
        num_decodes = meta.num_seqs
    else:
        num_decodes = meta.num_decodes
        if meta.plan is None:
            meta = plan(meta, spec, model)
        if k is not None and v is not None:
            longer = (num_decodes, meta.cu_q_lens[meta.num_seqs])
            where: dict[str, Any] = {"pieces": meta.plan.pieces, "layout": layout, "backend": "mosaic_tpu"}
            pool = write(pool, layer, k, v, meta.write_slots, *longer, **scales, **where)

    singles = min(num_tokens, num_rows)
    new = None
    if k is not None and v is not None:
        new = pack_tokens(k[:singles], v[:singles], pool.shape[layout.packed_axis], pool.dtype, **scales, layout=layout)
    o, pool = _decode_rows(
        queries[:singles], new, pool, layer, meta, num_decodes, parts, sizes.rows, grouped_sinks, blocks, options
    )
    token = jnp.arange(num_tokens, dtype=jnp.int32)[:, None, None, None]
    o = jnp.where(token[:singles] < num_decodes, o, 0)
    if not is_decode_only:
        sizes, blocks = sizes_of(_kind_of_longer_rows(meta))
        run = partial(
            chunks,
            blocks=blocks,
            group_size=group_size,
            num_lines=_num_lines(sizes, model),
            tree=meta.plan.tree,
            sinks=grouped_sinks,
            **options,
        )
        o = jnp.pad(o, ((0, num_tokens - singles), (0, 0), (0, 0), (0, 0)))
        is_chunk = (token >= num_decodes) & (token < meta.cu_q_lens[meta.num_seqs])
        for part, out in _chunk_rows(queries, pool, layer, meta, parts, run):
            row = meta.rows[:, None, None, None]
            o = jnp.where(is_chunk & (row >= part.start) & (row < part.stop), out, o)
    return o.reshape(q.shape).astype(q.dtype), pool


def _decode_rows(
    queries: Float[Array, "S K G H"],
    new: Num[Array, "S K packed"] | None,
    pool: Num[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    meta: AttentionMeta,
    num_decodes: Int[Array, ""],
    parts: list[slice],
    rows: int,
    sinks: Float[Array, "K G"] | None,
    blocks: BlockLayout,
    options: dict[str, Any],
) -> tuple[Float[Array, "S K G H"], Num[Array, "Lg P K page W2"]]:
    """The decode kernel over parts of the rows: its outputs, and the pool."""
    num_singles, _, group_size, head_dim = queries.shape
    num_queries = -(-group_size // 8) * 8  # a float32 register is 8 high
    padding = (0, num_queries - group_size)
    queries = jnp.pad(queries, ((0, 0), (0, 0), padding, (0, blocks.query_lanes - head_dim)))
    sinks = None if sinks is None else jnp.pad(sinks, ((0, 0), padding))
    outputs: list[jax.Array] = []
    for part in parts:
        part = slice(part.start, min(part.stop, num_singles))
        out, pool = decode(
            *(queries[part], None if new is None else new[part], pool, layer),
            *(meta.tables[part], meta.first_pages[part], meta.kv_lens[part]),
            jnp.clip(num_decodes - part.start, 0, part.stop - part.start),
            blocks=blocks,
            sinks=sinks,
            rows=min(rows, part.stop - part.start, NUM_LANES),
            **options,
        )
        outputs.append(out)
    return jnp.concatenate(outputs)[:, :, :group_size], pool


def _chunk_rows(
    queries: Float[Array, "T K G H"],
    pool: Num[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    meta: AttentionMeta,
    parts: list[slice],
    run: partial[jax.Array],
) -> Iterator[tuple[slice, jax.Array]]:
    """Yields each part of the rows with the chunks kernel's outputs for it [T, K, G, H]."""
    num_tokens, num_kv_heads, group_size, head_dim = queries.shape
    lines = jnp.moveaxis(queries, 0, 1).reshape(num_kv_heads, num_tokens * group_size, head_dim)
    padding = (0, run.keywords["num_lines"])
    lines = jnp.pad(lines, ((0, 0), padding, (0, run.keywords["blocks"].query_lanes - head_dim)))
    for part in parts:
        out = run(lines, pool, layer, meta.tables[part], meta, meta.plan.tiles, part.start)
        out = out[:, : num_tokens * group_size].reshape(num_kv_heads, num_tokens, group_size, head_dim)
        yield part, jnp.moveaxis(out, 0, 1)


def _kind_of_longer_rows(meta: AttentionMeta) -> str:
    return "chunks" if meta.tree is None else "trees"


def _block_sizes(kind: str, meta: AttentionMeta, spec: AttentionSpec, model: ModelSizes) -> BlockSizes:
    sizes = {"num_tokens": len(meta.rows), "num_rows": len(meta.kv_lens)}
    return spec.block or tpu_block_sizes(kind, model, **sizes, layout=spec.layout)


def _computed(model: ModelSizes) -> ModelSizes:
    """With the type of the products' operands: bfloat16 where it holds the queries, keys and values exactly.

    Idempotent: `plan`, which applies it, may be called with its result.
    """
    is_narrow = jnp.dtype(model.pool_dtype).itemsize == 1 or model.pool_dtype == jnp.bfloat16
    return replace(model, dtype=jnp.bfloat16 if model.dtype == jnp.bfloat16 and is_narrow else jnp.float32)


def check(spec: AttentionSpec, model: ModelSizes) -> None:
    """Raises NotImplementedError for arguments that the kernels do not support."""
    multiple = spec.layout.page_multiple(model.pool_dtype)
    if model.page_size % multiple:
        raise NotImplementedError(
            f"page size {model.page_size} is no multiple of {multiple}, the {spec.layout.name} of a "
            f"{model.pool_dtype} tile"
        )
    if model.dtype not in (jnp.bfloat16, jnp.float32):
        raise NotImplementedError(f"queries of {model.dtype} are not served; bfloat16 and float32 are")


def _num_lines(sizes: BlockSizes, model: ModelSizes) -> int:
    """Lines of a tile of `sizes.queries` tokens, in whole registers."""
    align = tile_rows(model.dtype)
    return -(-sizes.queries * model.group_size // align) * align
