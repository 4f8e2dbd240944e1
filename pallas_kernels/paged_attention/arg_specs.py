"""Device: named workloads of the paged attention op: one list for tests, benchmarks and the tuner."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels.paged_attention.api import lane_width
from pallas_kernels.paged_attention.meta import make_meta


@dataclass(frozen=True)
class Workload:
    """One batch: rows with one query token first, then longer ones; q_lens[s] of kv_lens[s] positions are new."""

    name: str
    q_lens: tuple[int, ...]
    kv_lens: tuple[int, ...]
    num_heads: int
    num_kv_heads: int
    head_dim: int
    page_size: int = 16
    num_chunk_rows: int | None = None
    """How many of the last rows are chunks, one-token ones included; None: those with more than one token."""
    padding_tokens: int = 0
    padding_rows: int = 0
    padding_columns: int = 0
    window: int | None = None
    softcap: float | None = None
    has_sinks: bool = False
    is_tree: bool = False
    """Rows of 2 to 32 tokens are draft trees."""
    write: bool = True
    dtype: str = "float32"
    num_layers: int = 2

    @property
    def num_decodes(self) -> int:
        chunks = self.num_chunk_rows
        return len(self.q_lens) - (sum(n > 1 for n in self.q_lens) if chunks is None else chunks)


def _decode(num_rows: int, kv_len: int) -> dict[str, Any]:
    """Rows of ragged lengths from a third of `kv_len` up to it."""
    lengths = tuple(int(n) for n in np.linspace(kv_len // 3, kv_len, num_rows))
    return {"q_lens": (1,) * num_rows, "kv_lens": lengths}


Shape = dict[str, Any]
SMOLLM2: Shape = {"num_heads": 9, "num_kv_heads": 3, "head_dim": 64}
GEMMA3_270M: Shape = {"num_heads": 4, "num_kv_heads": 1, "head_dim": 256}
GEMMA2_2B: Shape = {"num_heads": 8, "num_kv_heads": 4, "head_dim": 256, "softcap": 50.0}
LLAMA3_8B: Shape = {"num_heads": 32, "num_kv_heads": 8, "head_dim": 128}
GPT_OSS_20B: Shape = {"num_heads": 64, "num_kv_heads": 8, "head_dim": 64, "has_sinks": True}
PHI2: Shape = {"num_heads": 32, "num_kv_heads": 32, "head_dim": 80}
FALCON_7B: Shape = {"num_heads": 71, "num_kv_heads": 1, "head_dim": 64}

WORKLOADS = (
    Workload("smollm2_decode", **_decode(8, 300), **SMOLLM2),
    Workload(
        "smollm2_decode_bfloat16", **_decode(5, 200), **SMOLLM2, padding_tokens=3, padding_rows=3, dtype="bfloat16"
    ),
    Workload("smollm2_prefill", (70,), (70,), **SMOLLM2, padding_tokens=58, padding_rows=3),
    Workload("smollm2_second_chunk", (64,), (192,), **SMOLLM2),
    Workload("smollm2_mixed", (1, 1, 1, 40, 9), (33, 128, 1, 40, 140), **SMOLLM2, padding_tokens=12, padding_rows=3),
    Workload("smollm2_draft_trees", (1, 8, 5), (50, 90, 21), **SMOLLM2, is_tree=True, padding_tokens=2, padding_rows=1),
    Workload("one_token_chunks", (1, 1, 1, 6), (20, 1, 47, 6), **SMOLLM2, num_chunk_rows=3, padding_rows=4),
    Workload("shared_kv_layer", (1, 1, 12), (40, 17, 30), **SMOLLM2, write=False, padding_columns=5),
    Workload("gemma3_270m_local_decode", **_decode(4, 900), **GEMMA3_270M, window=512),
    Workload("gemma3_270m_local_chunk", (1, 30), (600, 560), **GEMMA3_270M, window=512, dtype="bfloat16"),
    Workload("gemma2_2b_mixed", (1, 20), (100, 84), **GEMMA2_2B, window=64),
    Workload("llama3_8b_decode", **_decode(3, 150), **LLAMA3_8B, page_size=64, dtype="bfloat16"),
    Workload("llama3_8b_prefill", (33,), (65,), **LLAMA3_8B, page_size=64),
    Workload("gpt_oss_20b_mixed", (1, 1, 24), (140, 9, 150), **GPT_OSS_20B, window=128),
    Workload("phi2_mixed", (1, 10), (30, 25), **PHI2),
    Workload("falcon_7b_decode", **_decode(4, 60), **FALCON_7B),
)


def build(workload: Workload, seed: int = 0) -> dict[str, Any]:
    """Arguments of `paged_attention`: permuted pages, and NaN at all that no row holds, the scratch page included."""
    w = workload
    rng = np.random.default_rng(seed)
    num_rows, num_seqs = len(w.q_lens) + w.padding_rows, len(w.q_lens)
    num_tokens = sum(w.q_lens) + w.padding_tokens
    q_lens, kv_lens = (np.array([*lens, *[0] * w.padding_rows]) for lens in (w.q_lens, w.kv_lens))
    cu_q_lens = np.concatenate([[0], np.cumsum(q_lens)])
    kept_from = np.zeros_like(kv_lens) if w.window is None else np.maximum(kv_lens - q_lens - w.window + 1, 0)
    first_pages = kept_from // w.page_size
    num_pages = -(-kv_lens // w.page_size) - first_pages

    num_pool_pages = int(num_pages.sum()) + 3
    free = iter(1 + rng.permutation(num_pool_pages - 1))
    tables = rng.integers(0, num_pool_pages, (num_rows, int(num_pages.max()) + w.padding_columns))
    pool_shape = (w.num_layers, num_pool_pages, w.num_kv_heads, w.page_size, lane_width(w.head_dim))
    pool = np.full(pool_shape, np.nan, np.float32)
    for row in range(num_seqs):
        tables[row, : num_pages[row]] = [next(free) for _ in range(num_pages[row])]
        position = np.arange(kept_from[row], kv_lens[row] - (q_lens[row] if w.write else 0))
        page = tables[row, position // w.page_size - first_pages[row]]
        values = rng.standard_normal((w.num_layers, len(position), w.num_kv_heads, pool_shape[4]), np.float32)
        values[..., 2 * w.head_dim :] = 0
        pool[:, page, :, position % w.page_size] = values.swapaxes(0, 1)

    def normal(*shape):
        return jnp.asarray(rng.standard_normal(shape, np.float32), w.dtype)

    def int32(x):
        return jnp.asarray(x, jnp.int32)

    q = normal(num_tokens, w.num_heads, w.head_dim)
    k, v = (normal(num_tokens, w.num_kv_heads, w.head_dim) if w.write else None for _ in range(2))
    meta = jax.jit(make_meta, static_argnames=("num_tokens", "page_size"))(
        *map(int32, (cu_q_lens, kv_lens, tables, first_pages, num_seqs, w.num_decodes)),
        num_tokens=num_tokens,
        page_size=w.page_size,
        tree=int32(draft_trees(w, num_tokens, rng)) if w.is_tree else None,
    )
    return {
        "q": q,
        "k": k,
        "v": v,
        "pool": jnp.asarray(pool, w.dtype),
        "layer": int32(w.num_layers - 1),
        "meta": meta,
        "scale": w.head_dim**-0.5,
        "window": w.window,
        "softcap": w.softcap,
        "sinks": normal(w.num_heads) if w.has_sinks else None,
        "write": w.write,
    }


def draft_trees(workload: Workload, num_tokens: int, rng: np.random.Generator) -> np.ndarray:
    """Ancestor bits [T, 1] of random trees; rows that are no drafts are causal."""
    bits = np.full((num_tokens, 1), -1, np.int64)
    start = 0
    for q_len in workload.q_lens:
        if 1 < q_len <= 32:
            bits[start, 0] = 1
            for node in range(1, q_len):
                bits[start + node, 0] = bits[start + rng.integers(node), 0] | 1 << node
        start += q_len
    return bits.astype(np.uint32).view(np.int32)
