"""Device: paged attention on Hopper GPUs by one Pallas kernel, run for rows with one token and for longer rows.

    k, v of longer rows ──▶ pages (page_ops.write)      k, v of one-token rows ──▶ pages (by the kernel)
    tiles of query lines × runs of blocks (items) ──▶ kernel ──▶ [combine] ──▶ o of each token

Where there are too few tiles to occupy the GPU, their context is divided among items, whose outputs are combined.
"""

from dataclasses import dataclass, replace
from typing import Any, no_type_check

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Num

from pallas_kernels.page_ops.api import write
from pallas_kernels.page_ops.pack_tokens import pack_tokens
from pallas_kernels.paged_attention.attention_spec import AttentionSpec, ModelSizes
from pallas_kernels.paged_attention.batch_meta import AttentionMeta
from pallas_kernels.paged_attention.mosaic_gpu.combine import combine
from pallas_kernels.paged_attention.mosaic_gpu.items import (
    Items,
    Lines,
    Tiles,
    decode_tiles,
    longer_tiles,
    plan_items,
    plan_lines,
    tile_of_token,
)
from pallas_kernels.paged_attention.mosaic_gpu.kernel import attend_items
from pallas_kernels.paged_attention.mosaic_gpu.kernel_sizes import LINES, KernelSizes
from pallas_kernels.paged_attention.mosaic_gpu.tiling import (
    MIN_POSITIONS,
    Tiling,
    decode_tiling,
    longer_tiling,
    num_items,
    problem_of,
)
from pallas_kernels.paged_attention.softmax_constants import LOG2_E


@jax.tree_util.register_dataclass
@no_type_check  # jax rebuilds it with leaves that are not arrays
@dataclass(frozen=True)
class Part:
    """The plan for rows with one token, or for longer rows."""

    items: Items
    lines: Lines
    first_token: Int[Array, "tiles"]
    places: tuple[Int[Array, "T"], Int[Array, "T"]] | None
    """Tile of each token and its index in the tile; None: tile t is token t."""


@jax.tree_util.register_dataclass
@no_type_check
@dataclass(frozen=True)
class BatchPlan:
    """The plan for a batch."""

    decode: Part
    longer: Part | None


def plan(meta: AttentionMeta, spec: AttentionSpec, model: ModelSizes) -> AttentionMeta:
    """See `api.plan`."""
    problem = problem_of(meta, spec, model)

    def part(tiles: Tiles, tiling: Tiling, places: tuple[jax.Array, jax.Array] | None) -> Part:
        most = num_items(tiling, len(tiles.row), model.num_kv_heads)
        least = max(MIN_POSITIONS // tiling.positions, 1)
        items = plan_items(meta, tiles, tiling.positions, spec.window, most, least)
        lines = plan_lines(meta, tiles, model.group_size, tiling.num_groups * LINES, spec.window)
        return Part(items, lines, tiles.first_token, places)

    decode = part(decode_tiles(meta, min(problem.num_tokens, problem.num_rows)), decode_tiling(problem), None)
    longer = None
    if problem.has_longer_rows:
        tiling = longer_tiling(problem)
        tiles = longer_tiles(meta, tiling.tokens)
        longer = part(tiles, tiling, tile_of_token(meta, tiles, tiling.tokens))
    return replace(meta, plan=BatchPlan(decode, longer))


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
    num_tokens, packed_len = len(q), pool.shape[layout.packed_axis]
    num_kv_heads, group_size, head_dim = model.num_kv_heads, model.group_size, model.head_dim
    problem = problem_of(meta, spec, model)
    if meta.plan is None:
        meta = plan(meta, spec, model)
    k_scale, v_scale = (None if s is None else s[layer].astype(jnp.float32) for s in (k_scale, v_scale))
    scales: dict[str, Any] = {"k_scale": k_scale, "v_scale": v_scale}
    num_decodes = meta.num_decodes if problem.has_longer_rows else meta.num_seqs
    singles = min(num_tokens, problem.num_rows)
    new = None
    if k is not None and v is not None:
        new = pack_tokens(k[:singles], v[:singles], packed_len, pool.dtype, **scales, layout=layout)
        if problem.has_longer_rows:
            longer = (num_decodes, meta.cu_q_lens[meta.num_seqs])
            pool = write(pool, layer, k, v, meta.write_slots, *longer, **scales, layout=layout, backend="mosaic_gpu")
    queries = q.reshape(num_tokens, num_kv_heads, group_size, head_dim)

    def run(part: Part, tiling: Tiling, new: jax.Array | None, pool: jax.Array):
        out_dtype = jnp.dtype(jnp.float32) if tiling.is_divided else q.dtype
        static = (head_dim, model.page_size, packed_len, tiling.positions, q.dtype, pool.dtype, out_dtype)
        o, log_sums, pool = attend_items(
            _tiles_of(queries, part.first_token, tiling),
            new,
            pool,
            layer,
            *(meta.tables, meta.first_pages, meta.kv_lens, meta.write_slots[:singles]),
            *(part.items, part.lines),
            sizes=KernelSizes(tiling.num_groups, tiling.num_lines, *static),
            spec=spec,
            k_scale=k_scale,
            out_width=-(-head_dim // 128) * 128 if tiling.is_divided else head_dim,
        )
        o, log_sums = (jax.lax.collapse(x, 2, 4) for x in (o, log_sums))  # lines of all warpgroups
        used = tiling.tokens * group_size
        if tiling.is_divided:
            # Rounded once: what follows without sinks and scales changes no number.
            dtype = q.dtype if sinks is None and v_scale is None else jnp.dtype(jnp.float32)
            o, log_sums = combine(o, log_sums, part.items, used, dtype)
        shape = (len(part.first_token), num_kv_heads, tiling.tokens, group_size)
        o = o[:, :, :used, :head_dim].reshape(*shape, head_dim).astype(jnp.float32)
        log_sums = log_sums[:, :, :used].reshape(shape)
        if part.places is None:
            o, log_sums = o[:, :, 0], log_sums[:, :, 0]
        else:
            tile, place = part.places
            o, log_sums = o[tile, :, place], log_sums[tile, :, place]
        if sinks is not None:
            logits = sinks.astype(jnp.float32).reshape(1, num_kv_heads, group_size)
            o = o / (1 + jnp.exp2(logits * LOG2_E - log_sums))[..., None]
        return o if v_scale is None else o * v_scale[None, :, None, None], pool

    token = jnp.arange(num_tokens, dtype=jnp.int32)[:, None, None, None]
    o, pool = run(meta.plan.decode, decode_tiling(problem), new, pool)  # 0 where there is no token
    if problem.has_longer_rows:
        longer, pool = run(meta.plan.longer, longer_tiling(problem), None, pool)
        o = jnp.pad(o, ((0, num_tokens - singles), (0, 0), (0, 0), (0, 0)))
        o = jnp.where((token >= num_decodes) & (token < meta.cu_q_lens[meta.num_seqs]), longer, o)
    return o.reshape(q.shape).astype(q.dtype), pool


def _tiles_of(
    queries: Float[Array, "T K G H"], first_token: Int[Array, "tiles"], tiling: Tiling
) -> Float[Array, "tiles K groups lines H"]:
    """Each tile's queries as lines; lines without a token hold unused numbers."""
    num_tokens, num_kv_heads, group_size, head_dim = queries.shape
    token = first_token[:, None] + jnp.arange(tiling.tokens, dtype=jnp.int32)[None]
    tiles = jnp.moveaxis(queries[jnp.minimum(token, num_tokens - 1)], 2, 1)
    lines = tiles.reshape(len(first_token), num_kv_heads, tiling.tokens * group_size, head_dim)
    padding = tiling.num_groups * tiling.num_lines - lines.shape[2]
    lines = jnp.pad(lines, ((0, 0), (0, 0), (0, padding), (0, 0)))
    return lines.reshape(len(first_token), num_kv_heads, tiling.num_groups, tiling.num_lines, head_dim)
