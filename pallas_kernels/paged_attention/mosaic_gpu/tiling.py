"""Device: how a batch's queries are cut into tiles on a GPU, and whether their context is divided."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from pallas_kernels.dispatch import require_hopper, target_platform
from pallas_kernels.page_layouts import ROWS, PageLayout
from pallas_kernels.paged_attention.block_config import BlockSizes, gpu_block_sizes
from pallas_kernels.paged_attention.mosaic_gpu.static_shapes import LINES

NUM_MULTIPROCESSORS = 132
"""Of an H100 and an H200 (SXM)."""
NUM_INTERPRETED = 2
"""Where thread blocks are interpreted, which takes 20 ms even for one that has nothing to do."""
ITEMS_A_MULTIPROCESSOR = 4
"""Items that there should be, so that the last ones to end leave little of the GPU idle."""
MIN_POSITIONS = 256
"""Fewest positions of an item that is part of a tile: fewer cost more to combine than they save."""


@dataclass(frozen=True)
class Problem:
    """The sizes and types of a call of attention."""

    num_tokens: int
    num_rows: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    page_size: int
    dtype: Any
    pool_dtype: Any
    has_trees: bool
    block: BlockSizes | None

    @property
    def group_size(self) -> int:
        return self.num_heads // self.num_kv_heads

    @property
    def has_longer_rows(self) -> bool:
        return self.num_tokens > self.num_rows

    def block_sizes(self, kind: str) -> BlockSizes:
        if self.block is not None:
            return self.block
        return gpu_block_sizes(
            kind,
            num_rows=self.num_rows,
            page_size=self.page_size,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            dtype=self.dtype,
            pool_dtype=self.pool_dtype,
        )

    def check(self, layout: PageLayout) -> None:
        """Raises NotImplementedError for what the kernels do not serve."""
        require_hopper()
        dtype, pool_dtype = jnp.dtype(self.dtype), jnp.dtype(self.pool_dtype)
        if layout is not ROWS:
            raise NotImplementedError(f"the {layout.name} layout is for TPUs")
        if dtype not in (jnp.bfloat16, jnp.float16):
            raise NotImplementedError(f"queries of {dtype} are not served; bfloat16 and float16 are")
        if pool_dtype.itemsize > 1 and pool_dtype != dtype:
            raise NotImplementedError(f"a pool of {pool_dtype} is not served with queries of {dtype}; {dtype} is")
        if self.head_dim % 16 or self.head_dim > 256 or 128 < self.head_dim < 256:
            raise NotImplementedError(f"head dim {self.head_dim} is not served; multiples of 16 to 128, and 256, are")
        if self.page_size < 16 or self.page_size & (self.page_size - 1):
            raise NotImplementedError(f"page size {self.page_size} is no power of two from 16 on")
        if self.group_size > 2 * LINES:
            raise NotImplementedError(f"{self.group_size} query heads share a KV head; up to {2 * LINES} are served")
        if self.block is not None and self.block.positions % 64:
            raise NotImplementedError(f"blocks of {self.block.positions} positions are not served; multiples of 64 are")


@dataclass(frozen=True)
class Tiling:
    """How one kind of rows is cut up."""

    tokens: int
    """Most tokens of a tile."""
    num_groups: int
    """Compute warpgroups of a thread block."""
    num_lines: int
    """Lines of a warpgroup that hold queries."""
    positions: int
    """Of a block of context."""
    is_divided: bool
    """A tile may have several items."""


def decode_tiling(problem: Problem) -> Tiling:
    """A tile a token: the lines of a KV head's queries, of which there are seldom as many as a warpgroup computes."""
    num_groups = -(-problem.group_size // LINES)
    num_lines = LINES if num_groups > 1 else -(-problem.group_size // 8) * 8
    return Tiling(1, num_groups, num_lines, problem.block_sizes("decode").positions, is_divided=True)


def longer_tiling(problem: Problem) -> Tiling:
    """Two warpgroups a tile, one multiplying while the other exponentiates, where such tiles occupy the GPU; else one,
    and divided contexts."""
    fits_one = problem.group_size <= LINES
    num_groups = 1 if problem.head_dim > 128 and fits_one else 2
    tokens = num_groups * LINES // problem.group_size
    is_divided = problem.has_trees or problem.num_tokens * problem.num_kv_heads < 2 * multiprocessors() * tokens
    if is_divided and fits_one:
        num_groups, tokens = 1, LINES // problem.group_size
    sizes = problem.block_sizes("trees" if problem.has_trees else "chunks")
    return Tiling(min(tokens, sizes.queries), num_groups, LINES, sizes.positions, is_divided)


def num_items(tiling: Tiling, num_tiles: int, num_kv_heads: int) -> int:
    """Room for a tile's first item each, and for what long contexts are divided into."""
    return num_tiles + (-(-ITEMS_A_MULTIPROCESSOR * multiprocessors() // num_kv_heads) if tiling.is_divided else 0)


def multiprocessors() -> int:
    return NUM_MULTIPROCESSORS if target_platform() == "gpu" else NUM_INTERPRETED
