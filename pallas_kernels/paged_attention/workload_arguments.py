"""Device: the arguments of named workloads, for tests, benchmarks and the tuner."""

from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels.page_layouts import LAYOUTS
from pallas_kernels.paged_attention.attention_spec import AttentionSpec, ModelSizes
from pallas_kernels.paged_attention.batch_meta import AttentionMeta, make_meta
from pallas_kernels.paged_attention.workloads import Workload

STORED_SPREAD = 30.0
"""Standard deviation of the numbers in an 8-bit pool, so that values are of order 1 with the scales of `build`."""

Fill = Callable[[Workload, list[np.ndarray], int, np.random.Generator], Any]
"""Creates a workload's pool from the pages that each row holds and the total number of pages."""


def poisoned_pool(
    w: Workload, pages_of_rows: list[np.ndarray], num_pool_pages: int, rng: np.random.Generator
) -> np.ndarray:
    """Random numbers at the positions that rows hold before the batch is written, drawn row by row to save memory.

    All other positions, those of the scratch page included, hold NaN, or arbitrary numbers in int8, which has no NaN.
    """
    dtype = jnp.dtype(w.stored_dtype)
    layout = LAYOUTS[w.layout]
    packed_len, value_start = (f(w.head_dim, dtype) for f in (layout.packed_len, layout.value_start))
    shape = (w.num_layers, num_pool_pages, w.num_kv_heads, w.page_size, packed_len)
    # A generator of its own, so that pools of all types hold the same draws.
    poison = np.random.default_rng(num_pool_pages)
    pool = poison.integers(-128, 128, shape, np.int8) if dtype == jnp.int8 else np.full(shape, np.nan, dtype)
    for row, pages in enumerate(pages_of_rows):
        first, end = w.kept_from[row], w.kv_lens[row] - (w.q_lens[row] if w.write else 0)
        values = rng.standard_normal((w.num_layers, len(pages), *shape[2:]), np.float32)
        values[..., w.head_dim : value_start] = 0
        values[..., value_start + w.head_dim :] = 0
        if w.is_8bit:
            values *= STORED_SPREAD
        if dtype == jnp.int8:
            values = np.clip(np.rint(values), -127, 127)
        position = first // w.page_size * w.page_size + np.arange(len(pages) * w.page_size)
        is_held = ((position >= first) & (position < end)).reshape(1, -1, 1, w.page_size, 1)
        pool[:, pages] = np.where(is_held, values.astype(dtype), pool[:, pages])
    return pool if layout.position_axis == 3 else np.swapaxes(pool, 3, 4)


def spec_of(w: Workload) -> AttentionSpec:
    """The workload's static arguments."""
    return AttentionSpec(w.head_dim**-0.5, w.window, w.softcap, w.write, LAYOUTS[w.layout])


def model_of(w: Workload) -> ModelSizes:
    """The workload's heads, page size and types, as `api.plan` takes them."""
    types = (jnp.dtype(w.dtype), jnp.dtype(w.stored_dtype))
    return ModelSizes(w.num_heads, w.num_kv_heads, w.head_dim, w.page_size, *types)


def build(workload: Workload, seed: int = 0, fill: Fill = poisoned_pool) -> dict[str, Any]:
    """Arguments of `paged_attention`, with permuted pages and the pool that `fill` returns."""
    w = workload
    rng = np.random.default_rng(seed)
    num_seqs, padding = len(w.q_lens), [0] * w.padding_rows
    tables, pages_of_rows, num_pool_pages = _tables(w, rng)
    columns = {
        "cu_q_lens": np.cumsum([0, *w.q_lens, *padding]),
        "kv_lens": [*w.kv_lens, *padding],
        "tables": tables,
        "first_pages": [*(first // w.page_size for first in w.kept_from), *padding],
        "num_seqs": num_seqs,
        "num_decodes": w.num_decodes,
        "tree": draft_trees(w, rng) if w.tree_words else None,
    }
    derive = jax.jit(make_meta, static_argnames=("num_tokens", "page_size"))
    arrays = {name: None if x is None else jnp.asarray(x, jnp.int32) for name, x in columns.items()}
    meta = cast(AttentionMeta, derive(**arrays, num_tokens=w.num_tokens, page_size=w.page_size))

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(rng.standard_normal(shape, np.float32), w.dtype)

    def scales() -> jax.Array | None:
        shape = (w.num_layers, w.num_kv_heads)
        return jnp.asarray(rng.uniform(0.5, 2, shape) / STORED_SPREAD, jnp.float32) if w.is_8bit else None

    q = normal(w.num_tokens, w.num_heads, w.head_dim)
    k, v = (normal(w.num_tokens, w.num_kv_heads, w.head_dim) if w.write else None for _ in range(2))
    return {
        "q": q,
        "k": k,
        "v": v,
        "sinks": normal(w.num_heads) if w.has_sinks else None,
        "k_scale": scales(),
        "v_scale": scales(),
        "pool": jnp.asarray(fill(w, pages_of_rows, num_pool_pages, rng)),
        "layer": jnp.int32(w.num_layers - 1),
        "meta": meta,
        "spec": spec_of(w),
    }


def _tables(w: Workload, rng: np.random.Generator) -> tuple[np.ndarray, list[np.ndarray], int]:
    """Page tables [S, W] with arbitrary pages in unused columns, each row's pages, and the total number of pages."""
    ends = np.cumsum(w.num_pages)
    num_pool_pages = 1 + int(ends[-1]) + w.padding_pages
    own = np.split(1 + rng.permutation(num_pool_pages - 1), ends)[:-1]
    tables = rng.integers(0, num_pool_pages, (w.num_rows, max(w.num_pages) + w.padding_columns))
    for row, pages in enumerate(own):
        tables[row, : len(pages)] = pages
    return tables, own, num_pool_pages


def draft_trees(workload: Workload, rng: np.random.Generator) -> np.ndarray:
    """Ancestor bits [T, tree_words] of random trees; rows too long for a tree are chains."""
    words = workload.tree_words
    bits = np.full((workload.num_tokens, words), -1, np.int32)
    starts = np.cumsum((0, *workload.q_lens))
    for start, q_len in zip(starts, workload.q_lens, strict=False):
        if 1 < q_len <= 32 * words:
            parents = [int(rng.integers(node)) for node in range(1, q_len)]
            seen = [1]
            for node, parent in enumerate(parents, start=1):
                seen.append(seen[parent] | 1 << node)
            packed = b"".join(ancestors.to_bytes(4 * words, "little") for ancestors in seen)
            bits[start : start + q_len] = np.frombuffer(packed, "<i4").reshape(q_len, words)
    return bits
