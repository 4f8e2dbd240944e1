"""Device: `BlockRegion`: where the column blocks of a site lie in pages, and in a TPU's vector memory.

    column blocks, of 8 rows     0   1 | 2   3 | 4   5 | …          first: 1, end: 5
    rows of the buffer, in tiles  pair 0  pair 1  pair 2            a tile of bfloat16 has two of them

A region is copied with the other rows of its first and last head.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Float

from pallas_kernels.dispatch import interpretation
from pallas_kernels.kernel_types import Scalar
from pallas_kernels.lora_matmul.adapter_layout import RANKS
from pallas_kernels.lora_matmul.mosaic_tpu.adapter_groups import GROUP

ROWS = 16
"""Of a pair of column blocks, and a tile of bfloat16. Pages consist of whole ones."""
SUBLANES = 8
DEPTH = 2
"""Groups in vector memory: one is copied while the other is multiplied."""
UNROLL = 4
"""Pairs of column blocks in one pass of a loop, whose products overlap. With one in a pass, groups at all products of
Llama 3 8B, for 8 tokens, take 1.25 times the bundles on a v5e."""


@dataclass(frozen=True)
class BlockRegion:
    """Column blocks [first, end) of a rank block, of 8 rows each. page_shape: (K, page, W2)."""

    first: int
    end: int
    page_shape: tuple[int, ...]

    @property
    def heads(self) -> range:
        """Those that hold the region, counted through all pages of the rank block."""
        page_size = self.page_shape[1]
        return range(self.first * RANKS // page_size, -(-self.end * RANKS // page_size))

    @property
    def offset(self) -> int:
        """The region's first column block, counted from the first of `heads`."""
        return self.first - self.heads.start * self.page_shape[1] // RANKS

    @property
    def pieces(self) -> list[tuple[int, slice, slice]]:
        """(page of the rank block, heads of the page, heads of the buffer) of each copy."""
        num_heads, found = self.page_shape[0], list[tuple[int, slice, slice]]()
        for page in range(self.heads.start // num_heads, -(-self.heads.stop // num_heads)):
            start, stop = max(self.heads.start, page * num_heads), min(self.heads.stop, (page + 1) * num_heads)
            in_page = slice(start - page * num_heads, stop - page * num_heads)
            found.append((page, in_page, slice(start - self.heads.start, stop - self.heads.start)))
        return found

    def each_pair[Carry](
        self, blocks: slice, visit: Callable[[Scalar, tuple[int, ...], Carry], Carry], carry: Carry
    ) -> Carry:
        """visit(pair, its halves, carry) for these blocks of the region, two of which lie in each pair of ROWS.

        Pairs are counted in the buffer. Half h of a pair is column block 2 · pair + h - `offset` of the region.
        """
        first, end = self.offset + blocks.start, self.offset + blocks.stop
        start, stop = -(-first // 2), end // 2
        unroll = 1 if interpretation() else UNROLL  # where there is no latency to hide, longer programs compile longer

        def several(i: Scalar, carry: Carry) -> Carry:
            for j in range(unroll):
                carry = visit(start + i * unroll + j, (0, 1), carry)
            return carry

        if first % 2:
            carry = visit(first // 2, (1,), carry)
        if num_passes := (stop - start) // unroll:
            carry = lax.fori_loop(0, num_passes, several, carry)
        for pair in range(start + num_passes * unroll, stop):
            carry = visit(pair, (0, 1), carry)
        return visit(end // 2, (0,), carry) if end % 2 else carry

    @property
    def num_columns(self) -> int:
        return (self.end - self.first) * self.page_shape[2]

    @property
    def buffer_shape(self) -> tuple[int, ...]:
        return DEPTH, GROUP, len(self.heads), *self.page_shape[1:]

    def num_bytes(self, dtype: Any) -> int:
        """Of the buffer."""
        return prod(self.buffer_shape) * jnp.dtype(dtype).itemsize

    def scratch(self, dtype: Any) -> list[Any]:
        """The buffer and its semaphores."""
        return [pltpu.VMEM(self.buffer_shape, dtype), pltpu.SemaphoreType.DMA((DEPTH,))]


def halves_of_pairs(rows: Float[Array, "n 16 W2"]) -> tuple[Float[Array, "n8 W2"], Float[Array, "n8 W2"]]:
    """Rows 0-7 of all pairs, and rows 8-15. n: even for bfloat16: its tiles are divided in 32-bit words of two rows."""
    if rows.dtype == jnp.float32:
        return _merged(rows[:, :RANKS]), _merged(rows[:, RANKS:])
    words = pltpu.bitcast(_merged(rows), jnp.int32).reshape(-1, 2, SUBLANES, rows.shape[-1])
    even, odd = words[:, 0], words[:, 1]
    is_first = lax.broadcasted_iota(jnp.int32, even.shape, 1) < SUBLANES // 2

    def swapped(tiles: jax.Array) -> jax.Array:
        return pltpu.roll(tiles, SUBLANES // 2, 1)

    def joined(first: jax.Array, second: jax.Array) -> jax.Array:
        return pltpu.bitcast(_merged(jnp.where(is_first, first, second)), rows.dtype)

    return joined(even, swapped(odd)), joined(swapped(even), odd)


def _merged(tiles: jax.Array) -> jax.Array:
    return tiles.reshape(-1, tiles.shape[-1])
