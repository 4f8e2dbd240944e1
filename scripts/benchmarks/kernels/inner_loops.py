"""Finds a kernel's inner loops in its schedule, and the cost of one block of KV positions in them."""

import re
from dataclasses import dataclass

from scripts.benchmarks.kernels.tpu_schedule import Kernel, Loop

REGISTER = 8 * 128
"""Float32 numbers in a vector register."""
MAX_LANES = 128
"""Lanes of the running maximum: rescaling raises 2 to a power in all of them."""


@dataclass(frozen=True)
class Inner:
    """Loops around the matrix products. Pages are fetched block by block; a block takes one or several passes."""

    kernel: Kernel
    compute: Loop
    """The loop with most matrix work."""
    block: Loop
    """The loop over blocks: `compute` itself where a block is one pass."""
    fetch: Loop | None
    """The loop that issues a block's page DMAs; None if the block loop issues them itself."""
    positions: int
    """KV positions of a block."""
    step: int
    """KV positions of a pass of `compute`."""
    lines: int
    """Queries of each KV head, in whole registers."""
    num_kv_heads: int
    edge: Loop | None
    """The loop for blocks that are not entirely visible to every query; None if every block is masked."""

    @property
    def edge_cost(self) -> float:
        """Bundles per position of the edge loop, as a multiple of those of `compute`; both do the same matrix work."""
        if self.edge is None:
            return 1.0
        return self.edge.bundles / self.edge.slots["MXU"] / (self.compute.bundles / self.compute.slots["MXU"])

    @property
    def passes(self) -> float:
        """Passes of `compute` per block, from its powers of 2: one for each score, and the rescaling."""
        if self.compute is self.block:
            return 1.0
        powers = self.compute.slots["EUP"] * REGISTER / (1 + MAX_LANES / self.step)
        return self.num_kv_heads * self.lines * self.positions / powers

    def block_bundles(self, page_size: int) -> float:
        """Bundles of one block with all its passes, and with the issue of its DMAs."""
        bundles = self.passes * self.compute.bundles
        if self.block is not self.compute:
            bundles += self.block.bundles
        if self.fetch:
            count, _ = self.fetch.dmas["hbm_to_vmem"]
            bundles += self.fetch.bundles * self.positions / page_size / count
        return bundles

    def bundles(self, page_size: int, positions: int = 512, num_kv_heads: int = 8) -> float:
        """Bundles for this number of positions and KV heads, in entirely visible blocks."""
        return self.block_bundles(page_size) * positions / self.positions * num_kv_heads / self.num_kv_heads

    @property
    def row_bundles(self) -> int:
        """Bundles of a row (or tile) outside its blocks: those of the loop around the block loop."""
        outside = self.block.path.rpartition(".")[0]
        return sum(loop.bundles for loop in self.kernel.loops if loop.path == outside)


def find_inner(kernel: Kernel, num_kv_heads: int, packed_len: int, packed_axis: int = 3) -> Inner:
    """The inner loops of jaxserve's kernel (sizes from its buffers) or of RPA v3's (sizes from its name).

    A buffer of jaxserve's kernel is [buffer, KV head, position, packed token], or has the last two axes swapped.
    """
    compute = max(kernel.loops, key=lambda loop: loop.slots["MXU"])
    block, fetch = compute, _fetch(kernel, compute)
    while fetch is None and "hbm_to_vmem" not in block.dmas and "." in block.path:
        outside = block.path.rpartition(".")[0]
        block = next(loop for loop in kernel.loops if loop.path == outside)
        fetch = _fetch(kernel, block)
    if fetch is None and "hbm_to_vmem" not in block.dmas:
        raise ValueError(f"{kernel.name}: no loop fetches pages around the one that multiplies")
    named = re.search(r"bkv_(\d+)_(\d+)", kernel.name)
    if named:
        positions, step = map(int, named.groups())
    else:
        buffers = [s for s in kernel.scratch if len(s) == 4 and s[1] == num_kv_heads and s[packed_axis] == packed_len]
        positions = step = buffers[-1][5 - packed_axis]  # the last such buffer holds pages; those before it queries
    maxima = [s for s in kernel.scratch if len(s) == 3 and s[0] == num_kv_heads and s[2] == MAX_LANES]
    lines = -(-max(s[1] for s in maxima) // 8) * 8
    others = (loop for loop in kernel.loops if loop is not compute and 8 * loop.slots["MXU"] > compute.slots["MXU"])
    edge = max(others, key=lambda loop: loop.slots["MXU"], default=None)
    return Inner(kernel, compute, block, fetch, positions, step, lines, num_kv_heads, edge)


def _fetch(kernel: Kernel, around: Loop) -> Loop | None:
    """The first loop inside this one that copies pages and has no matrix products."""
    inside = (loop for loop in kernel.loops if loop.path.startswith(f"{around.path}."))
    return next((loop for loop in inside if "hbm_to_vmem" in loop.dmas and not loop.slots["MXU"]), None)
