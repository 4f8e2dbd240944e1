"""Device: the tiling of a batch's queries on a GPU, and whether their context is divided."""

from dataclasses import dataclass

import jax.numpy as jnp

from pallas_kernels.dispatch import require_hopper, target_platform
from pallas_kernels.page_layouts import ROWS
from pallas_kernels.paged_attention.attention_spec import AttentionSpec, ModelSizes
from pallas_kernels.paged_attention.batch_meta import AttentionMeta
from pallas_kernels.paged_attention.block_rules import gpu_block_sizes
from pallas_kernels.paged_attention.block_sizes import BlockSizes
from pallas_kernels.paged_attention.mosaic_gpu.kernel_sizes import LINES

NUM_MULTIPROCESSORS = 132
"""Of an H100 and an H200 (SXM)."""
NUM_INTERPRETED = 2
"""Where thread blocks are interpreted: even an empty one takes 20 ms."""
ITEMS_A_MULTIPROCESSOR = 4
"""Target number of items, so that the last ones to end leave little of the GPU idle."""
MIN_POSITIONS = 256
"""Fewest positions of an item that is part of a tile: smaller items cost more to combine than they save."""


@dataclass(frozen=True)
class Problem:
    """The sizes and types of one call of attention."""

    num_tokens: int
    num_rows: int
    has_trees: bool
    model: ModelSizes
    block: BlockSizes | None

    @property
    def has_longer_rows(self) -> bool:
        return self.num_tokens > self.num_rows

    def block_sizes(self, kind: str) -> BlockSizes:
        return self.block or gpu_block_sizes(kind, self.model, num_rows=self.num_rows)


def problem_of(meta: AttentionMeta, spec: AttentionSpec, model: ModelSizes) -> Problem:
    """Raises NotImplementedError for arguments that the kernels do not support."""
    require_hopper()
    dtype, pool_dtype = jnp.dtype(model.dtype), jnp.dtype(model.pool_dtype)
    head_dim, page_size = model.head_dim, model.page_size
    if spec.layout is not ROWS:
        raise NotImplementedError(f"the {spec.layout.name} layout is for TPUs")
    if dtype not in (jnp.bfloat16, jnp.float16):
        raise NotImplementedError(f"queries of {dtype} are not served; bfloat16 and float16 are")
    if pool_dtype.itemsize > 1 and pool_dtype != dtype:
        raise NotImplementedError(f"a pool of {pool_dtype} is not served with queries of {dtype}; {dtype} is")
    if head_dim % 16 or head_dim > 256 or 128 < head_dim < 256:
        raise NotImplementedError(f"head dim {head_dim} is not served; multiples of 16 to 128, and 256, are")
    if page_size < 16 or page_size & (page_size - 1):
        raise NotImplementedError(f"page size {page_size} is no power of two from 16 on")
    if model.group_size > 2 * LINES:
        raise NotImplementedError(f"{model.group_size} query heads share a KV head; up to {2 * LINES} are served")
    if spec.block is not None and spec.block.positions % 64:
        raise NotImplementedError(f"blocks of {spec.block.positions} positions are not served; multiples of 64 are")
    return Problem(len(meta.rows), len(meta.kv_lens), meta.tree is not None, model, spec.block)


@dataclass(frozen=True)
class Tiling:
    """The tiling of rows with one token, or of longer rows."""

    tokens: int
    """Largest number of tokens of a tile."""
    num_groups: int
    """Compute warpgroups of a thread block."""
    num_lines: int
    """Lines of a warpgroup that hold queries."""
    positions: int
    """Of a block of context."""
    is_divided: bool
    """A tile may have several items."""


def decode_tiling(problem: Problem) -> Tiling:
    """One token a tile: the lines of a KV head's queries, usually fewer than a warpgroup computes."""
    num_groups = -(-problem.model.group_size // LINES)
    num_lines = LINES if num_groups > 1 else -(-problem.model.group_size // 8) * 8
    return Tiling(1, num_groups, num_lines, problem.block_sizes("decode").positions, is_divided=True)


def longer_tiling(problem: Problem) -> Tiling:
    """Two warpgroups a tile, one multiplying while the other exponentiates, where such tiles occupy the GPU; else one
    warpgroup, and divided contexts."""
    fits_one = problem.model.group_size <= LINES
    num_groups = 1 if problem.model.head_dim > 128 and fits_one else 2
    tokens = num_groups * LINES // problem.model.group_size
    is_divided = problem.has_trees or problem.num_tokens * problem.model.num_kv_heads < 2 * multiprocessors() * tokens
    if is_divided and fits_one:
        num_groups, tokens = 1, LINES // problem.model.group_size
    sizes = problem.block_sizes("trees" if problem.has_trees else "chunks")
    return Tiling(min(tokens, sizes.queries), num_groups, LINES, sizes.positions, is_divided)


def num_items(tiling: Tiling, num_tiles: int, num_kv_heads: int) -> int:
    """One item per tile, and more for the parts of long contexts."""
    return num_tiles + (-(-ITEMS_A_MULTIPROCESSOR * multiprocessors() // num_kv_heads) if tiling.is_divided else 0)


def multiprocessors() -> int:
    return NUM_MULTIPROCESSORS if target_platform() == "gpu" else NUM_INTERPRETED
