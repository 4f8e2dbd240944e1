"""Host: named workloads of the paged attention op: small ones that tests run, and full-sized ones for benchmarks.

Heads are those of one device under the model's usual tensor parallelism.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np


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
    """Number of last rows that are chunks, one-token ones included; None: those with more than one token."""
    padding_tokens: int = 0
    padding_rows: int = 0
    padding_columns: int = 0
    padding_pages: int = 2
    """Pages that no row holds, not counting the scratch page."""
    window: int | None = None
    softcap: float | None = None
    has_sinks: bool = False
    tree_words: int = 0
    """Rows of 2 to 32 · tree_words tokens are draft trees; 0: the batch has no tree bits."""
    write: bool = True
    dtype: str = "float32"
    """Of queries and new keys and values."""
    pool_dtype: str | None = None
    """None: that of `dtype`. An 8-bit pool has scales."""
    num_layers: int = 2
    layout: str = "rows"
    """Of the pool's pages: "rows" or "lanes"."""

    def __post_init__(self) -> None:
        rows = list(zip(self.q_lens, self.kv_lens, strict=True))
        if any(not 1 <= q_len <= kv_len for q_len, kv_len in rows):
            raise ValueError(f"{self.name}: each row has between 1 and kv_len new tokens")
        if any(q_len != 1 for q_len in self.q_lens[: self.num_decodes]):
            raise ValueError(f"{self.name}: rows with one token come first")

    @property
    def num_decodes(self) -> int:
        chunks = self.num_chunk_rows
        return len(self.q_lens) - (sum(n > 1 for n in self.q_lens) if chunks is None else chunks)

    @property
    def is_decode(self) -> bool:
        """Whether all rows are decode rows."""
        return self.num_decodes == len(self.q_lens)

    @property
    def group_size(self) -> int:
        """Query heads that share a KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def num_tokens(self) -> int:
        return sum(self.q_lens) + self.padding_tokens

    @property
    def num_rows(self) -> int:
        return len(self.q_lens) + self.padding_rows

    @property
    def stored_dtype(self) -> str:
        return self.pool_dtype or self.dtype

    @property
    def is_8bit(self) -> bool:
        return self.stored_dtype in ("int8", "float8_e4m3fn", "float8_e5m2")

    @property
    def kept_from(self) -> tuple[int, ...]:
        """First position of each row that a new token may see."""
        if self.window is None:
            return (0,) * len(self.q_lens)
        window = self.window
        return tuple(max(kv - q - window + 1, 0) for q, kv in zip(self.q_lens, self.kv_lens, strict=True))

    @property
    def num_pages(self) -> tuple[int, ...]:
        """Pages that each row holds; those entirely before its window are freed."""
        size = self.page_size
        return tuple(-(-kv // size) - first // size for kv, first in zip(self.kv_lens, self.kept_from, strict=True))


def in_bucket(workload: Workload, num_tokens: int, num_rows: int, num_columns: int, num_pool_pages: int) -> Workload:
    """`workload` padded to these sizes, so that one program serves all workloads of the bucket."""
    return replace(
        workload,
        padding_tokens=num_tokens - sum(workload.q_lens),
        padding_rows=num_rows - len(workload.q_lens),
        padding_columns=num_columns - max(workload.num_pages),
        padding_pages=num_pool_pages - 1 - sum(workload.num_pages),
    )


Options = dict[str, Any]
FALCON_7B: Options = {"num_heads": 71, "num_kv_heads": 1, "head_dim": 64}
GEMMA2_2B: Options = {"num_heads": 8, "num_kv_heads": 4, "head_dim": 256, "softcap": 50.0}
GEMMA3_270M: Options = {"num_heads": 4, "num_kv_heads": 1, "head_dim": 256}
GEMMA3_4B: Options = {"num_heads": 8, "num_kv_heads": 4, "head_dim": 256}
GPT_OSS_20B: Options = {"num_heads": 64, "num_kv_heads": 8, "head_dim": 64, "has_sinks": True}
GPT_OSS_20B_TP4: Options = {"num_heads": 16, "num_kv_heads": 2, "head_dim": 64, "has_sinks": True}
LLAMA3_8B: Options = {"num_heads": 32, "num_kv_heads": 8, "head_dim": 128}
LLAMA3_8B_TP4: Options = {"num_heads": 8, "num_kv_heads": 2, "head_dim": 128}
LLAMA3_8B_TP8: Options = {"num_heads": 4, "num_kv_heads": 1, "head_dim": 128}
PHI2: Options = {"num_heads": 32, "num_kv_heads": 32, "head_dim": 80}
PHI3_MINI: Options = {"num_heads": 32, "num_kv_heads": 32, "head_dim": 96}
QWEN3_06B: Options = {"num_heads": 16, "num_kv_heads": 8, "head_dim": 128}
QWEN3_30B_A3B_TP2: Options = {"num_heads": 16, "num_kv_heads": 2, "head_dim": 128}
SMOLLM2: Options = {"num_heads": 9, "num_kv_heads": 3, "head_dim": 64}

BF16: Options = {"dtype": "bfloat16"}
INT8: Options = BF16 | {"pool_dtype": "int8"}
E4M3: Options = BF16 | {"pool_dtype": "float8_e4m3fn"}
E5M2: Options = BF16 | {"pool_dtype": "float8_e5m2"}
IN_LANES: Options = {"page_size": 128, "layout": "lanes"}


def _decode(num_rows: int, kv_len: int) -> Options:
    """Decode rows of lengths from a third of `kv_len` up to it."""
    lengths = tuple(int(n) for n in np.linspace(kv_len // 3, kv_len, num_rows))
    return {"q_lens": (1,) * num_rows, "kv_lens": lengths}


def _chunks(num_rows: int, q_len: int, kv_len: int, num_decodes: int = 0) -> Options:
    """Decode rows, then `num_rows` chunks of q_len tokens that end at kv_len."""
    decodes = _decode(num_decodes, kv_len) if num_decodes else {"q_lens": (), "kv_lens": ()}
    return {
        "q_lens": (*decodes["q_lens"], *(q_len,) * num_rows),
        "kv_lens": (*decodes["kv_lens"], *(kv_len,) * num_rows),
    }


def _smollm2(name: str, q_lens: tuple[int, ...], kv_lens: tuple[int, ...], **options: Any) -> Workload:
    return in_bucket(Workload(name, q_lens, kv_lens, **SMOLLM2, **options), 80, 8, 16, 32)


WORKLOADS = (
    Workload("smollm2_decode", **_decode(8, 300), **SMOLLM2),
    Workload("smollm2_decode_bfloat16", **_decode(5, 200), **SMOLLM2, padding_tokens=3, padding_rows=3, **BF16),
    _smollm2("smollm2_prefill", (70,), (70,)),
    _smollm2("smollm2_second_chunk", (64,), (192,)),
    _smollm2("smollm2_mixed", (1, 1, 1, 40, 9), (33, 128, 1, 40, 140)),
    _smollm2("one_token_chunks", (1, 1, 1, 6), (20, 1, 47, 6), num_chunk_rows=3),
    _smollm2("page_and_block_edges", (1, 1, 1, 1, 16, 32), (1, 16, 17, 128, 128, 32)),
    _smollm2("one_row_among_padding", (1,), (9,)),
    _smollm2("two_rows_among_padding", (1, 5), (70, 5)),
    Workload("smollm2_draft_trees", (1, 8, 5), (50, 90, 21), **SMOLLM2, tree_words=1, padding_tokens=2, padding_rows=1),
    Workload("shared_kv_layer", (1, 1, 12), (40, 17, 30), **SMOLLM2, write=False, padding_columns=5),
    Workload("long_row_among_short_ones", (1, 1, 1, 3), (3, 2100, 1, 8), **SMOLLM2, page_size=32, **BF16),
    Workload("gemma3_270m_local_decode", **_decode(4, 900), **GEMMA3_270M, window=512),
    Workload("gemma3_270m_local_chunk", (1, 30), (600, 560), **GEMMA3_270M, window=512, **BF16),
    Workload("gemma3_4b_draft_trees", (1, 12, 9), (140, 150, 33), **GEMMA3_4B, window=64, tree_words=1, **BF16),
    Workload("gemma2_2b_mixed", (1, 20), (100, 84), **GEMMA2_2B, window=64),
    Workload("llama3_8b_decode", **_decode(3, 150), **LLAMA3_8B, page_size=64, **BF16),
    Workload("llama3_8b_prefill", (33,), (65,), **LLAMA3_8B, page_size=64),
    Workload("llama3_8b_tp4_decode", **_decode(6, 300), **LLAMA3_8B_TP4, page_size=64, **BF16),
    Workload("llama3_8b_tp4_mixed", (1, 1, 40, 17), (64, 129, 40, 145), **LLAMA3_8B_TP4, page_size=64, **BF16),
    Workload("llama3_8b_tp4_decode_int8", **_decode(4, 300), **LLAMA3_8B_TP4, page_size=128, **INT8),
    Workload("llama3_8b_tp4_chunk_float8", (1, 30), (140, 158), **LLAMA3_8B_TP4, page_size=128, **E4M3),
    Workload("llama3_8b_tp8_wide_trees", (1, 48, 64), (30, 100, 64), **LLAMA3_8B_TP8, tree_words=2, **BF16),
    Workload("qwen3_0.6b_mixed", (1, 1, 21), (100, 31, 33), **QWEN3_06B, **BF16),
    Workload("qwen3_30b_a3b_tp2_float8", (1, 1, 9), (64, 65, 73), **QWEN3_30B_A3B_TP2, page_size=32, **E5M2),
    Workload("gpt_oss_20b_mixed", (1, 1, 24), (140, 9, 150), **GPT_OSS_20B, window=128),
    Workload("gpt_oss_20b_tp4_float8", (1, 1, 10), (140, 32, 150), **GPT_OSS_20B_TP4, window=128, page_size=32, **E4M3),
    Workload("phi2_mixed", (1, 10), (30, 25), **PHI2),
    Workload("phi3_mini_mixed", (1, 1, 10), (33, 16, 25), **PHI3_MINI, **BF16),
    Workload("phi3_mini_decode_int8", **_decode(3, 70), **PHI3_MINI, page_size=32, **INT8),
    Workload("phi3_mini_mixed_lanes", (1, 1, 10), (133, 16, 145), **PHI3_MINI, **IN_LANES, **BF16),
    Workload("gpt_oss_20b_lanes_int8", (1, 1, 10), (140, 32, 150), **GPT_OSS_20B_TP4, window=128, **IN_LANES, **INT8),
    Workload("falcon_7b_decode", **_decode(4, 60), **FALCON_7B),
)

FULL: Options = {"page_size": 64, "num_layers": 1, **BF16}
FULL_LANES: Options = FULL | IN_LANES
FULL_8BIT: Options = {"page_size": 128, "num_layers": 1}

BENCH_WORKLOADS = (
    Workload("llama3_8b_decode_64x2k", **_chunks(64, 1, 2048), **LLAMA3_8B, **FULL),
    Workload("llama3_8b_decode_64x8k", **_chunks(64, 1, 8192), **LLAMA3_8B, **FULL),
    Workload("llama3_8b_decode_ragged_64x8k", **_decode(64, 8192), **LLAMA3_8B, **FULL),
    Workload("llama3_8b_decode_1x32k", (1,), (32768,), **LLAMA3_8B, **FULL),
    Workload("llama3_8b_decode_64x8k_int8", **_chunks(64, 1, 8192), **LLAMA3_8B, **FULL_8BIT, **INT8),
    Workload("llama3_8b_decode_64x8k_float8", **_chunks(64, 1, 8192), **LLAMA3_8B, **FULL_8BIT, **E4M3),
    Workload("llama3_8b_tp4_decode_64x2k", **_chunks(64, 1, 2048), **LLAMA3_8B_TP4, **FULL),
    Workload("llama3_8b_prefill_4x2k", **_chunks(4, 2048, 2048), **LLAMA3_8B, **FULL),
    Workload("llama3_8b_chunk_2k_of_8k", (2048,), (8192,), **LLAMA3_8B, **FULL),
    Workload("llama3_8b_mixed", **_chunks(2, 512, 2048, num_decodes=63), **LLAMA3_8B, **FULL),
    Workload("llama3_8b_trees_64x8", **_chunks(64, 8, 2048), **LLAMA3_8B, **FULL, tree_words=1),
    Workload("llama3_8b_trees_16x64", **_chunks(16, 64, 2048), **LLAMA3_8B, **FULL, tree_words=2),
    Workload("smollm2_decode_128x1k", **_chunks(128, 1, 1024), **SMOLLM2, **FULL),
    Workload("smollm2_prefill_4x2k", **_chunks(4, 2048, 2048), **SMOLLM2, **FULL),
    Workload("qwen3_0.6b_decode_64x4k", **_chunks(64, 1, 4096), **QWEN3_06B, **FULL),
    Workload("phi3_mini_decode_32x2k", **_chunks(32, 1, 2048), **PHI3_MINI, **FULL),
    Workload("gemma3_4b_local_decode_64x8k", **_chunks(64, 1, 8192), **GEMMA3_4B, **FULL, window=1024),
    Workload("gemma3_4b_global_decode_64x8k", **_chunks(64, 1, 8192), **GEMMA3_4B, **FULL),
    Workload("gemma3_4b_local_chunk_2k_of_8k", (2048,), (8192,), **GEMMA3_4B, **FULL, window=1024),
    Workload("gpt_oss_20b_local_decode_64x8k", **_chunks(64, 1, 8192), **GPT_OSS_20B, **FULL, window=128),
    Workload("gpt_oss_20b_global_decode_64x8k", **_chunks(64, 1, 8192), **GPT_OSS_20B, **FULL),
    Workload("gpt_oss_20b_global_decode_64x8k_lanes", **_chunks(64, 1, 8192), **GPT_OSS_20B, **FULL_LANES),
    Workload("llama3_8b_decode_64x8k_lanes", **_chunks(64, 1, 8192), **LLAMA3_8B, **FULL_LANES),
    Workload("phi3_mini_decode_32x2k_lanes", **_chunks(32, 1, 2048), **PHI3_MINI, **FULL_LANES),
    Workload("llama3_8b_prefill_4x2k_lanes", **_chunks(4, 2048, 2048), **LLAMA3_8B, **FULL_LANES),
)
