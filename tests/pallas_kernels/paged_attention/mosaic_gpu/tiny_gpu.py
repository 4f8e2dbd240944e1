"""A small GPU for interpreted kernels, on which short rows take the code paths of long rows on a real one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
from jax._src import callback as jax_callback  # the interpreter's calls of Python have no public name

from pallas_kernels.paged_attention.block_sizes import BlockSizes
from pallas_kernels.paged_attention.mosaic_gpu import backend as mosaic_gpu
from pallas_kernels.paged_attention.mosaic_gpu import kernel_sizes, tiling

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
        patch.object(jax_callback, "io_callback_impl", _call_with_host_values),
    ):
        yield


def _call_with_host_values(*args: Any, callback: Any, **_: Any) -> Any:
    """JAX puts each of some ten arguments of each callback onto a device first, a third of the interpreter's time."""
    values = (x.item() if x.shape == () and x.dtype.kind in "iub" else x for x in map(np.asarray, args))
    return jax.tree.map(np.asarray, callback(*values))
