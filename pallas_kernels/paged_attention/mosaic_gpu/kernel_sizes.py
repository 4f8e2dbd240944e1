"""Device: `KernelSizes`: the static sizes of a GPU attention kernel, and the shared memory that it needs.

ring[depth, spans, positions, lanes]     head dim up to 128   one span   [ key | value ]
                                         head dim 256         two spans  [ key ], [ value ]    (a copy has 256 lanes)
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from pallas_kernels.gpu_ring import tile_lanes, tiled

LINES = 64
"""Query lines of one warpgroup: rows of a wgmma."""
MAX_LANES = 256
SHARED_BYTES = 224 * 2**10
"""Of the 227 KiB of shared memory available to a thread block; barriers and sums take the rest."""
MAX_DEPTH = 4
"""Blocks in flight. 64 positions of Llama-3-8B's head dim are 32 KiB, so that 132 multiprocessors have 17 MB in
flight; an H200's 4.8 TB/s times a microsecond of latency is 5 MB."""


@dataclass(frozen=True)
class KernelSizes:
    """Sizes and types of one kernel."""

    num_groups: int
    """Compute warpgroups."""
    num_lines: int
    """Lines of a warpgroup that hold queries, a multiple of 8; it computes `LINES`."""
    head_dim: int
    page_size: int
    packed_len: int
    positions: int
    """KV positions of a block, a multiple of 64."""
    dtype: Any
    """Of queries and products."""
    pool_dtype: Any
    out_dtype: Any

    @property
    def is_narrow(self) -> bool:
        return jnp.dtype(self.pool_dtype).itemsize == 1

    @property
    def num_spans(self) -> int:
        return len(spans(2 * self.head_dim))

    @property
    def span_len(self) -> int:
        return 2 * self.head_dim // self.num_spans

    @property
    def value_start(self) -> int:
        """First lane of values in the last span."""
        return self.head_dim % self.span_len

    @property
    def ring_tile(self) -> int:
        """Lanes of the ring's tiles. Keys and values have whole tiles, except some of 8 bits, which are copied before
        they are multiplied. A tile's rows have at least 32 bytes."""
        is_whole = self.head_dim * jnp.dtype(self.pool_dtype).itemsize % 32 == 0
        return tile_lanes(self.head_dim if is_whole else self.span_len, self.pool_dtype)

    @property
    def width(self) -> int:
        """Lanes of values multiplied at once, and of outputs stored at once."""
        return min(self.head_dim, 128)

    @property
    def piece_len(self) -> int:
        """Positions of a block that one copy transfers."""
        return min(self.page_size, self.positions)

    @property
    def num_pieces(self) -> int:
        return self.positions // self.piece_len

    @property
    def depth(self) -> int:
        """Blocks in shared memory. Raises NotImplementedError when two do not fit."""
        size = jnp.dtype(self.dtype).itemsize
        fixed = self.num_groups * LINES * (self.head_dim * size + self.width * jnp.dtype(self.out_dtype).itemsize)
        if self.is_narrow:
            fixed += self.num_groups * self.positions * 2 * self.head_dim * size
        depth = (SHARED_BYTES - fixed) // (self.positions * 2 * self.head_dim * jnp.dtype(self.pool_dtype).itemsize)
        if depth < 2:
            raise NotImplementedError(
                f"two blocks of {self.positions} positions exceed shared memory; use smaller ones"
            )
        return min(depth, MAX_DEPTH)

    def scratch(self, *, writes: bool, is_interpreted: bool) -> dict[str, Any]:
        """Shared memory and barriers by name."""
        groups = self.num_groups
        block = (self.num_spans, self.positions, self.span_len)
        found: dict[str, Any] = {
            "queries": tiled((groups, LINES, self.head_dim), self.dtype),
            "ring": tiled((self.depth, *block), self.pool_dtype, unit=self.ring_tile),
            "outputs": tiled((groups, LINES, self.width), self.out_dtype),
            "sums": plgpu.SMEM((groups, LINES), jnp.float32),
            "queries_filled": plgpu.Barrier(num_barriers=groups),
            "filled": plgpu.Barrier(num_arrivals=self.num_pieces * self.num_spans, num_barriers=self.depth),
            "freed": plgpu.Barrier(num_arrivals=groups, num_barriers=self.depth),
        }
        if groups > 1 and not self.is_narrow:
            found["cleared"] = plgpu.Barrier(num_arrivals=groups)
        if self.is_narrow:
            found["wide"] = tiled((groups, *block), self.dtype, unit=self.head_dim)
        if is_interpreted:
            found["weights"] = tiled((groups, LINES, self.positions), self.dtype)
        if writes:
            found["token"] = plgpu.SMEM((self.packed_len,), self.pool_dtype)
            found["token_filled"] = plgpu.Barrier(num_arrivals=len(spans(self.packed_len)))
        return found


def spans(width: int) -> list[Any]:
    """Ranges of lanes, each as wide as one copy can be."""
    return [pl.ds(i, min(MAX_LANES, width - i)) for i in range(0, width, MAX_LANES)]
