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

from pallas_kernels.kernel_types import Copy, Ref, Scalar
from pallas_kernels.lora_matmul.adapter_layout import RANKS
from pallas_kernels.lora_matmul.mosaic_tpu.adapter_groups import GAP, GROUP, PLACE_SHIFT
from pallas_kernels.lora_matmul.mosaic_tpu.block_region import DEPTH, ROWS, BlockRegion, halves_of_pairs

SIZES = (2, GROUP)
"""Items of a group that are multiplied: the least of these that is no less than their number."""


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


class AdapterStream:
    """The groups of a batch, of all its tiles in turn."""

    def __init__(self, region: BlockRegion, scalars: GroupScalars, pool: Ref, buffer: Ref, semaphores: Ref):
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
        """Both column blocks of a pair, of the first `size` items; where there is no item, whatever lies there."""
        pairs_of_head = self.region.page_shape[1] // ROWS
        first = pl.multiple_of(lax.rem(pair, pairs_of_head) * ROWS, ROWS)
        rows = self.buffer[buffer, :size, lax.div(pair, pairs_of_head), pl.ds(first, ROWS), :]
        return halves_of_pairs(rows)

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


def _start(copy: Copy) -> None:
    copy.start()


def _wait(copy: Copy) -> None:
    copy.wait()
