"""Device: block sizes of the paged attention op, and the rules that pick them."""

from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp

from pallas_kernels.dispatch import target_device_kind
from pallas_kernels.page_layouts import ROWS, PageLayout
from pallas_kernels.tuned_blocks import tuned


@dataclass(frozen=True)
class BlockSizes:
    """How much a back end handles at once. Results depend on it by rounding only."""

    positions: int = 128
    """KV positions of one step of the online softmax; a multiple of the page size."""
    rows: int = 8
    """Decode rows handled together."""
    queries: int = 64
    """Query tokens of one prefill tile, all of one sequence."""

    def __post_init__(self) -> None:
        for name in ("positions", "rows", "queries"):
            size = getattr(self, name)
            if size < 1 or size & (size - 1):
                raise ValueError(f"BlockSizes: {name}={size} must be a power of two")

    def pages(self, page_size: int) -> int:
        """Pages of one step. Raises ValueError when a page does not fit in it."""
        if self.positions % page_size:
            raise ValueError(
                f"BlockSizes: positions={self.positions} must be a multiple of the page size {page_size}; "
                f"pass block=BlockSizes(positions={page_size}) or another multiple"
            )
        return self.positions // page_size


BLOCK_BYTES = 2 * 2**20
TILE_BYTES = 12 * 2**20
TILE_LINES = 512


def tpu_block_sizes(
    kind: str,
    *,
    num_tokens: int,
    num_rows: int,
    page_size: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    dtype: Any,
    pool_dtype: Any,
    layout: PageLayout,
) -> BlockSizes:
    """Block sizes of the TPU kernels, those measured on the target or else by rule; kinds: "decode", "chunks", "trees".

    Decode is bound by memory, so a block is what a memory streams well: 2 MiB, 512 positions of Llama-3-8B's 8 heads in
    bfloat16; at least 512, since the softmax's latency is paid once a block (head dim 64, v6e: 803 instruction bundles
    per 512 positions in blocks of 512, 667 in blocks of 1024). Chunks are bound by products: a tile of 512 query lines
    reads a context half as often as one of 256 and fills the matrix units as well, if its queries, outputs and sums fit
    in VMEM; 512 positions bound what the scores spill. Draft trees have few tokens a row, and a tile holds one row.
    What is measured is measured with rows; lanes go by the rule.
    """
    packed_len = layout.packed_len(head_dim, pool_dtype)
    position_bytes = num_kv_heads * packed_len * jnp.dtype(pool_dtype).itemsize
    positions = min(2048 if kind == "decode" else 512, max(128, power_of_two(BLOCK_BYTES // position_bytes)))
    line_bytes = num_kv_heads * (4 * max(128, head_dim) * jnp.dtype(dtype).itemsize + 4 * (2 * 128 + packed_len))
    num_lines = min(TILE_LINES, TILE_BYTES // line_bytes)
    most = num_tokens if kind == "chunks" else 2 * num_tokens // num_rows
    queries = max(8, power_of_two(min(most, num_lines * num_kv_heads // num_heads)))
    by_rule = BlockSizes(positions=max(page_size, positions), rows=8, queries=queries)
    if layout is not ROWS:
        return by_rule
    model = {"page_size": page_size, "num_heads": num_heads, "num_kv_heads": num_kv_heads, "head_dim": head_dim}
    return _measured(by_rule, kind=kind, num_rows=num_rows, **model, dtype=dtype, pool_dtype=pool_dtype)


def gpu_block_sizes(kind: str, *, head_dim: int, dtype: Any, pool_dtype: Any, **key: int) -> BlockSizes:
    """Block sizes of the GPU kernels, those measured on the target or else by rule; kinds: "decode", "chunks", "trees".

    64 positions are one tile of a product and make many blocks to read ahead. Chunks, which are bound by products, do
    with 128 half as many steps of the softmax; where keys and values are widened, or a head has 256 lanes, two such
    blocks do not fit in shared memory. `queries` only limits what a tile's lines hold. key: the other sizes by which
    what is measured is found, as for TPUs.
    """
    is_large = kind == "chunks" and head_dim <= 128 and jnp.dtype(pool_dtype).itemsize > 1
    by_rule = BlockSizes(positions=128 if is_large else 64, rows=1, queries=128)
    return _measured(by_rule, kind=kind, head_dim=head_dim, dtype=dtype, pool_dtype=pool_dtype, **key)


def _measured(by_rule: BlockSizes, *, dtype: Any, pool_dtype: Any, **key: Any) -> BlockSizes:
    """Sizes with what the target's tuning table says of these keys in the place of the rule."""
    key |= {"dtype": str(jnp.dtype(dtype)), "pool_dtype": str(jnp.dtype(pool_dtype))}
    measured = tuned("paged_attention", target_device_kind(), key)
    return by_rule if measured is None else replace(by_rule, **measured)


def power_of_two(n: int) -> int:
    """The largest power of two up to n."""
    return 1 << (max(1, n).bit_length() - 1)
