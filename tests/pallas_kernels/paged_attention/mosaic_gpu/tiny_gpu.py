"""A small GPU for interpreted kernels, on which short rows take the code paths of long rows on a real one."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from pallas_kernels.paged_attention.block_sizes import BlockSizes
from pallas_kernels.paged_attention.mosaic_gpu import backend as mosaic_gpu
from pallas_kernels.paged_attention.mosaic_gpu import kernel_sizes, tiling
from tests.pallas_kernels.host_callbacks import host_callbacks

BLOCK = BlockSizes(positions=64, rows=1, queries=4)
"""The smallest blocks that the kernels serve, and tiles of few tokens: each line of one is combined by itself."""


@contextmanager
def tiny_gpu() -> Iterator[None]:
    """One multiprocessor: prompts of some dozens of lines occupy it. Contexts of two blocks are divided, and a third
    block takes the ring's first place again. Kernels must be traced within it."""
    with (
        patch.object(tiling, "NUM_INTERPRETED", 1),
        patch.object(mosaic_gpu, "MIN_POSITIONS", 64),
        patch.object(kernel_sizes, "MAX_DEPTH", 2),
        host_callbacks(),
    ):
        yield
