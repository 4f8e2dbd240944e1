"""Device: the rows of rank blocks, group after group, from pages of the pool to a TPU's vector memory.

    pool[layer, page, heads]  ──DMA──▶  buffer[group mod 2, item, heads]      the next group while one is multiplied
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from pallas_kernels.kernel_types import Copy, Ref, Scalar
from pallas_kernels.lora_matmul.adapter_layout import RANKS
from pallas_kernels.lora_matmul.mosaic_tpu.adapter_groups import GAP, GROUP

VMEM_BYTES = 48 * 2**20
"""Of a TPU7x's 64 MiB."""
COMPILER_PARAMS = pltpu.CompilerParams(
    dimension_semantics=("arbitrary",), disable_bounds_checks=True, vmem_limit_bytes=VMEM_BYTES
)
DEPTH = 2
ROWS = 16
"""A tile of bfloat16, and two column blocks of 8 ranks. Pages consist of whole ones."""


@dataclass(frozen=True)
class GroupScalars:
    """What the kernels read in scalar memory: `AdapterGroups`, and the site's pages [places · max_blocks · num_pages]."""

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

    def item(self, group: Scalar, number: Scalar) -> Scalar:
        """GAP also where the adapter has nothing at this site."""
        item = self.items[group * GROUP + number]
        return jnp.where(self.page(jnp.maximum(item, 0), 0) > 0, item, GAP)

    def page(self, item: Scalar, number: int) -> Scalar:
        return self.pages[item * self.num_pages + number]

    def place(self, item: Scalar) -> Scalar:
        """GAP's: one that no token has."""
        return jnp.where(item < 0, GAP, lax.div(item, self.max_blocks))

    def ranks(self, item: Scalar) -> Any:
        """Of all ranks those of the item's block."""
        block = lax.rem(jnp.maximum(item, 0), self.max_blocks)
        return pl.ds(pl.multiple_of(block * RANKS, RANKS), RANKS)


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
    def first_pair(self) -> int:
        """The first two column blocks of which one is the region's, counted from the first of `heads`."""
        return (self.first * RANKS - self.heads.start * self.page_shape[1]) // ROWS

    @property
    def end_pair(self) -> int:
        return -(-(self.end * RANKS - self.heads.start * self.page_shape[1]) // ROWS)

    def number(self, pair: Scalar, half: int) -> Scalar:
        """Of a column block: 0 for the first of the region, negative before it."""
        return 2 * pair + half + self.heads.start * self.page_shape[1] // RANKS - self.first

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

    def take(self, group: Scalar) -> Scalar:
        """Starts the copies of the next group, and returns the buffer of this one, which has arrived."""
        self._each_copy(group + 1, _start)
        self._each_copy(group, _wait)
        return lax.rem(group, DEPTH)

    def rows(self, buffer: Scalar, pair: Scalar) -> jax.Array:
        """[GROUP, ROWS, W2] of two neighboring column blocks of each item; where there is none, what was there before."""
        pairs_of_head = self.region.page_shape[1] // ROWS
        first = pl.multiple_of(lax.rem(pair, pairs_of_head) * ROWS, ROWS)
        return self.buffer[buffer, :, lax.div(pair, pairs_of_head), pl.ds(first, ROWS), :]

    def _each_copy(self, group: Scalar, act: Callable[[Copy], None]) -> None:
        buffer = lax.rem(group, DEPTH)

        def of_item(i: Scalar, carry: None) -> None:
            item = self.scalars.item(group, i)

            @pl.when(item >= 0)
            def _() -> None:
                for page, in_page, in_buffer in self.region.pieces:
                    source = self.pool.at[self.scalars.layer[0], self.scalars.page(item, page), in_page]
                    target = self.buffer.at[buffer, i, in_buffer]
                    act(pltpu.make_async_copy(source, target, self.semaphores.at[buffer]))

        @pl.when(group < self.scalars.num_groups)
        def _() -> None:
            lax.fori_loop(0, GROUP, of_item, None)


def _start(copy: Copy) -> None:
    copy.start()


def _wait(copy: Copy) -> None:
    copy.wait()
