"""Device: the rows of rank blocks, group after group, from pages of the pool to a TPU's vector memory.

pool[layer, page, heads]  ──DMA──▶  buffer[group mod 2, item, heads]      the next group while one is multiplied
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Float

from pallas_kernels.dispatch import interpretation
from pallas_kernels.kernel_types import Copy, Ref, Scalar
from pallas_kernels.lora_matmul.adapter_layout import RANKS
from pallas_kernels.lora_matmul.mosaic_tpu.adapter_groups import GAP, GROUP, PLACE_SHIFT

VMEM_BYTES = 48 * 2**20
"""Of a TPU7x's 64 MiB."""
COMPILER_PARAMS = pltpu.CompilerParams(
    dimension_semantics=("arbitrary",), disable_bounds_checks=True, vmem_limit_bytes=VMEM_BYTES
)
UNROLL = 4
"""Pairs of column blocks in one pass of a loop, whose products overlap."""
SIZES = (2, GROUP)
"""Items of a group that are multiplied: the least of these that is no less than their number."""
SUBLANES = 8
DEPTH = 2
ROWS = 16
"""A tile of bfloat16, and two column blocks of 8 ranks. Pages consist of whole ones."""


class Item(NamedTuple):
    """place: GAP, which no token has, where there is no item. first_page: the index of its pages in `pages`."""

    place: Scalar
    block: Scalar
    first_page: Scalar

    @property
    def ranks(self) -> Any:
        """Of all ranks those of the block."""
        return pl.ds(pl.multiple_of(self.block * RANKS, RANKS), RANKS)


@dataclass(frozen=True)
class GroupScalars:
    """What the kernels read in scalar memory: `AdapterGroups`; the site's pages [places · max_blocks · num_pages]."""

    layer: Ref
    first_groups: Ref
    items: Ref
    pages: Ref
    max_blocks: int
    num_pages: int

    @property
    def num_groups(self) -> Scalar:
        """Of all tiles."""
        return self.first_groups[self.first_groups.shape[0] - 1]

    def item(self, group: Scalar, number: Scalar) -> Item:
        """GAP also where the adapter has nothing at this site."""
        packed = self.items[group * GROUP + number]
        place, block = lax.shift_right_arithmetic(packed, PLACE_SHIFT), packed & (2**PLACE_SHIFT - 1)
        first = jnp.where(packed < 0, 0, (place * self.max_blocks + block) * self.num_pages)
        exists = self.pages[first] > 0
        return Item(jnp.where(exists, place, GAP), jnp.where(exists, block, 0), first)


@dataclass(frozen=True)
class Region:
    """Column blocks [first, end) of a rank block, of 8 rows each. page_shape: (K, page, W2)."""

    first: int
    end: int
    page_shape: tuple[int, int, int]

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

    def scratch(self, dtype: Any) -> list[Any]:
        """The stream's buffer and its semaphores."""
        _, page_size, width = self.page_shape
        return [
            pltpu.VMEM((DEPTH, GROUP, len(self.heads), page_size, width), dtype),
            pltpu.SemaphoreType.DMA((DEPTH,)),
        ]


class AdapterStream:
    """The groups of a batch, of all its tiles in turn."""

    def __init__(self, region: Region, scalars: GroupScalars, pool: Ref, buffer: Ref, semaphores: Ref):
        self.region, self.scalars, self.pool, self.buffer, self.semaphores = region, scalars, pool, buffer, semaphores

    def begin(self) -> None:
        """Starts the copies of the first group."""
        self._each_copy(jnp.int32(0), _start)

    def each_group(self, tile: Scalar, visit: Callable[[Scalar, Scalar, int], None]) -> None:
        """visit(group, buffer, size) for each group of a tile, of which no item from `size` on exists."""

        def take(group: Scalar, carry: None) -> None:
            self._each_copy(group + 1, _start)
            self._each_copy(group, _wait)
            num_items = sum((self.scalars.items[group * GROUP + i] >= 0).astype(jnp.int32) for i in range(GROUP))
            for less, size in zip((0, *SIZES), SIZES, strict=False):
                pl.when((num_items > less) & (num_items <= size))(partial(visit, group, lax.rem(group, DEPTH), size))

        first_groups = self.scalars.first_groups
        lax.fori_loop(first_groups[tile], first_groups[tile + 1], take, None)

    def blocks(self, buffer: Scalar, size: int, pair: Scalar) -> tuple[jax.Array, jax.Array]:
        """[size * RANKS, W2] of two neighboring column blocks of the first `size` items."""
        pairs_of_head = self.region.page_shape[1] // ROWS
        first = pl.multiple_of(lax.rem(pair, pairs_of_head) * ROWS, ROWS)
        rows = self.buffer[buffer, :size, lax.div(pair, pairs_of_head), pl.ds(first, ROWS), :]
        return (
            halves_of_tiles(rows)
            if rows.dtype == jnp.bfloat16
            else (_merged(rows[:, :RANKS]), _merged(rows[:, RANKS:]))
        )

    def _each_copy(self, group: Scalar, act: Callable[[Copy], None]) -> None:
        buffer = lax.rem(group, DEPTH)

        def of_item(i: Scalar, carry: None) -> None:
            item = self.scalars.item(group, i)

            @pl.when(item.place >= 0)
            def _() -> None:
                for page, in_page, in_buffer in self.region.pieces:
                    source = self.pool.at[self.scalars.layer[0], self.scalars.pages[item.first_page + page], in_page]
                    target = self.buffer.at[buffer, i, in_buffer]
                    act(pltpu.make_async_copy(source, target, self.semaphores.at[buffer]))

        @pl.when(group < self.scalars.num_groups)
        def _() -> None:
            lax.fori_loop(0, GROUP, of_item, None)


def halves_of_tiles(rows: Float[Array, "n 16 W2"]) -> tuple[jax.Array, jax.Array]:
    """[n * 8, W2] of rows 0-7, and of rows 8-15: a tile of bfloat16 is divided in 32-bit words of two rows."""
    words = pltpu.bitcast(_merged(rows), jnp.int32).reshape(-1, 2, SUBLANES, rows.shape[-1])
    even, odd = words[:, 0], words[:, 1]
    is_first = lax.broadcasted_iota(jnp.int32, even.shape, 1) < SUBLANES // 2

    def swapped(tiles: jax.Array) -> jax.Array:
        return pltpu.roll(tiles, SUBLANES // 2, 1)

    halves = jnp.where(is_first, even, swapped(odd)), jnp.where(is_first, swapped(even), odd)
    return tuple(pltpu.bitcast(_merged(half), rows.dtype) for half in halves)


def _merged(tiles: jax.Array) -> jax.Array:
    return tiles.reshape(-1, tiles.shape[-1])


def _start(copy: Copy) -> None:
    copy.start()


def _wait(copy: Copy) -> None:
    copy.wait()


def each_pair[Carry](
    first: int, end: int, visit: Callable[[Scalar, tuple[int, ...], Carry], Carry], carry: Carry
) -> Carry:
    """visit(pair, its halves, carry) for column blocks [first, end) of a buffer, which has two in each pair of ROWS."""
    if first % 2:
        carry = visit(first // 2, (1,), carry)
    start, stop = -(-first // 2), end // 2
    unroll = 1 if interpretation() else UNROLL  # where there is no latency to hide, longer programs compile longer

    def several(i: Scalar, carry: Carry) -> Carry:
        for j in range(unroll):
            carry = visit(start + i * unroll + j, (0, 1), carry)
        return carry

    if num_passes := (stop - start) // unroll:
        carry = lax.fori_loop(0, num_passes, several, carry)
    for pair in range(start + num_passes * unroll, stop):
        carry = visit(pair, (0, 1), carry)
    return visit(end // 2, (0,), carry) if end % 2 else carry
