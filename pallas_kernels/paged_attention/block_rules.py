"""Device: the rules that select block sizes of paged attention, by back end and kind of rows."""

from dataclasses import asdict, replace
from typing import Any

import jax.numpy as jnp

from pallas_kernels.dispatch import target_device_kind, target_platform
from pallas_kernels.page_layouts import ROWS, PageLayout
from pallas_kernels.paged_attention.attention_spec import ModelSizes
from pallas_kernels.paged_attention.block_sizes import BlockSizes
from pallas_kernels.tuned_blocks import tuned

BLOCK_BYTES = 2 * 2**20
TILE_BYTES = 12 * 2**20
TILE_LINES = 512


def tpu_block_sizes(kind: str, model: ModelSizes, *, num_tokens: int, num_rows: int, layout: PageLayout) -> BlockSizes:
    """Block sizes of the TPU kernels: measured on the target, else by rule. Kinds: "decode", "chunks", "trees".

    Decode is bound by memory, so a block is what a memory streams well: 2 MiB, 512 positions of Llama-3-8B's 8 heads in
    bfloat16; at least 512, since the softmax's latency is paid once a block (head dim 64, v6e: 803 instruction bundles
    per 512 positions in blocks of 512, 667 in blocks of 1024). Chunks are bound by products: a tile of 512 query lines
    reads a context half as often as one of 256 and fills the matrix units as well, if its queries, outputs and sums fit
    in VMEM; 512 positions bound what the scores spill. Draft trees have few tokens a row, and a tile holds one row.
    Sizes are measured with the ROWS layout; LANES uses the rule. `model.dtype` is the kernels' compute type.
    """
    packed_len = layout.packed_len(model.head_dim, model.pool_dtype)
    position_bytes = model.num_kv_heads * packed_len * jnp.dtype(model.pool_dtype).itemsize
    positions = min(2048 if kind == "decode" else 512, max(128, power_of_two(BLOCK_BYTES // position_bytes)))
    query_bytes = 4 * max(128, model.head_dim) * jnp.dtype(model.dtype).itemsize
    line_bytes = model.num_kv_heads * (query_bytes + 4 * (2 * 128 + packed_len))
    num_lines = min(TILE_LINES, TILE_BYTES // line_bytes)
    most = num_tokens if kind == "chunks" else 2 * num_tokens // num_rows
    queries = max(8, power_of_two(min(most, num_lines * model.num_kv_heads // model.num_heads)))
    by_rule = BlockSizes(positions=max(model.page_size, positions), rows=8, queries=queries)
    return by_rule if layout is not ROWS else _measured(by_rule, kind, num_rows, model)


def gpu_block_sizes(kind: str, model: ModelSizes, *, num_rows: int) -> BlockSizes:
    """Block sizes of the GPU kernels: measured on the target, else by rule. Kinds: "decode", "chunks", "trees".

    64 positions are one tile of a product and make many blocks to read ahead. Chunks are bound by products: 128
    positions halve the number of softmax steps; where keys and values are widened, or a head has 256 lanes, two such
    blocks do not fit in shared memory. `queries` only limits the tokens of a tile.
    """
    is_large = kind == "chunks" and model.head_dim <= 128 and jnp.dtype(model.pool_dtype).itemsize > 1
    by_rule = BlockSizes(positions=128 if is_large else 64, rows=1, queries=128)
    return _measured(by_rule, kind, num_rows, model)


def xla_block_sizes(page_size: int, num_kv_heads: int, head_dim: int, most_decodes: int = 0) -> BlockSizes:
    """Block sizes of the XLA path, as measured on a CPU. most_decodes: rows of the bucket that may have one token.

    Decode streams pages through float32 temporaries, and is fast only while these fit in the CPU's caches and are
    below the size from which the allocator takes fresh memory every step: attention of SmolLM2's 30 layers at 128
    rows × 256 positions took 840 ms with all rows at once (51 MB) and 410 ms in blocks of 8 (4 MB) on 2 busy cores.
    Rows of one token are computed in so many queues (`xla/row_queues.py`): 64 rows of 40 to 400 positions took 46
    ms in 16, 45 in 32, 62 at once; 64 of 200 to 500 66, 63, 72; 48 of 60 to 400 35 in 16 and in 32, of 100 to 450
    47 and 42; 24 of 100 to 300 20 in 16, 21 at once. Before that, in blocks, each of which costs what its longest
    row does, the first took 50 ms, the third 44. A chunk of 512 queries took 194 ms in tiles of 128 × 64, 212 in
    128 × 128.
    """
    positions = max(64, page_size)
    row_bytes = positions * num_kv_heads * 2 * head_dim * 4
    most = 32 if most_decodes > 32 else 16
    rows = max(2, min(most, 2**22 // row_bytes))  # one row alone would be multiplied in another order than several
    return BlockSizes(positions=positions, rows=power_of_two(rows), queries=128)


def invariant_block_sizes(page_size: int) -> BlockSizes:
    """Block sizes of the batch-invariant XLA path, the same for all batches of an engine.

    More queries a tile read a prompt's context less often, and cost a row that decodes more; more tiles at a time fill
    a device better, and a CPU's caches worse (`xla_block_sizes`).
    """
    rows = 8 if target_platform() == "cpu" else 64
    return BlockSizes(positions=max(128, page_size), rows=rows, queries=8)


def _measured(by_rule: BlockSizes, kind: str, num_rows: int, model: ModelSizes) -> BlockSizes:
    """`by_rule`, with the sizes that the target's tuning table has for this kind and model in their place."""
    key: dict[str, Any] = {"kind": kind, "num_rows": num_rows} | asdict(model)
    key |= {"dtype": str(jnp.dtype(model.dtype)), "pool_dtype": str(jnp.dtype(model.pool_dtype))}
    measured = tuned("paged_attention", target_device_kind(), key)
    return by_rule if measured is None else replace(by_rule, **measured)


def power_of_two(n: int) -> int:
    """The largest power of two up to n."""
    return 1 << (max(1, n).bit_length() - 1)
