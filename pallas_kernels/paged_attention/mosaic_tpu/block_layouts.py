"""Device: `BlockLayout`: blocks of pages in VMEM, and where TPU kernels find keys and values in them.

RowBlocks    block [K, positions, W2]      a position's key and value side by side; lanes are cut only at
                                          multiples of 128, at no cost:

    head dim 128   [ key            | value          ]    keys = lanes [0, 128), values = lanes [128, 256)
    head dim 64    [ key    | value ]                     both = lanes [0, 128): the query's lanes [64, 128) are
    head dim 80    [ key     | value    |      zeros ]    zero, and its output lanes are sliced last

LaneBlocks   block [K, 2·H', positions]    keys = rows [0, H'), values = rows [H', 2·H'): whole tiles
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from pallas_kernels.kernel_types import Ref, Scalar
from pallas_kernels.page_layouts import LANES, NUM_LANES, ROWS, PageLayout, tile_rows
from pallas_kernels.page_ops.mosaic_tpu.lane_insert import insert_columns

Dims = tuple[tuple[int], tuple[int]]


@dataclass(frozen=True)
class BlockLayout(ABC):
    """Static sizes of a call, and the place of keys and values in a block."""

    num_kv_heads: int
    head_dim: int
    page_size: int
    width: int
    """Columns of a row's page table."""
    positions: int
    """KV positions of a block: whole pages."""
    pool_dtype: Any

    layout: ClassVar[PageLayout]
    key_dims: ClassVar[Dims]
    """Contracted axes of queries [R, query_lanes] and a block's keys."""
    value_dims: ClassVar[Dims]
    """Contracted axes of weights [R, C] and a block's values."""
    value_axis: ClassVar[int]
    """The axis of a block's values on which positions lie."""

    @property
    def pages(self) -> int:
        return self.positions // self.page_size

    @property
    def edge_len(self) -> int:
        """Positions processed at once where only part of a block is visible: half of it."""
        return self.positions if self.positions <= NUM_LANES else max(NUM_LANES, self.positions // 2)

    @property
    def page_shape(self) -> tuple[int, ...]:
        return (self.num_kv_heads, *self.layout.page_shape(self.page_size, self.head_dim, self.pool_dtype))

    @property
    def block_shape(self) -> tuple[int, ...]:
        return (self.num_kv_heads, *self.layout.page_shape(self.positions, self.head_dim, self.pool_dtype))

    @property
    @abstractmethod
    def query_lanes(self) -> int:
        """Lanes of the queries, zeros after the head dim."""

    @property
    @abstractmethod
    def value_lanes(self) -> int:
        """Lanes of the weighted sums."""

    @property
    @abstractmethod
    def output_lanes(self) -> slice:
        """Those lanes of the weighted sums that are the output."""

    @property
    @abstractmethod
    def tile_len(self) -> int:
        """Positions of the smallest part of a page that can be written."""

    @abstractmethod
    def keys(self, block: Ref, buffer: Scalar, head: Scalar, positions: Any) -> jax.Array:
        """Keys of a head at these positions of a block in VMEM."""

    @abstractmethod
    def values(self, block: Ref, buffer: Scalar, head: Scalar, positions: Any) -> jax.Array:
        """Values likewise."""

    def tokens(self, of: tuple[Any, ...], positions: Any) -> tuple[Any, ...]:
        """Index of packed tokens of all heads, in a block (of = buffer) or a page (of = layer, page)."""
        *before, last = of
        return (*before, *self.layout.at(last, positions))

    @abstractmethod
    def new_operand(self, new: jax.Array, rows: int) -> tuple[jax.Array, pl.BlockSpec]:
        """Packed new tokens [S, K, packed] as an operand of the decode kernel, `rows` tokens a grid step."""

    @abstractmethod
    def put(
        self, block: Ref, buffer: Scalar, tile: Scalar, offset: Scalar, new: Ref, first_row: Scalar, row: Scalar
    ) -> None:
        """Writes the new token of row `first_row` + `row` at `offset` of the tile that begins at position `tile`."""


@dataclass(frozen=True)
class RowBlocks(BlockLayout):
    layout = ROWS
    key_dims = ((1,), (1,))
    value_dims = ((1,), (0,))
    value_axis = 0

    @property
    def query_lanes(self) -> int:
        """Lanes, from 0, that hold keys (and for narrow heads values, which the query's zeros cancel)."""
        return -(-self.head_dim // NUM_LANES) * NUM_LANES

    @property
    def value_start(self) -> int:
        """First of the lanes of the weighted sums; of these, [head_dim, 2 · head_dim) are values."""
        return self.head_dim // NUM_LANES * NUM_LANES

    @property
    def value_lanes(self) -> int:
        return self.layout.packed_len(self.head_dim, self.pool_dtype) - self.value_start

    @property
    def output_lanes(self) -> slice:
        return slice(self.head_dim - self.value_start, 2 * self.head_dim - self.value_start)

    @property
    def tile_len(self) -> int:
        return tile_rows(self.pool_dtype)

    def keys(self, block: Ref, buffer: Scalar, head: Scalar, positions: Any) -> jax.Array:
        return block[buffer, head, positions, : self.query_lanes]

    def values(self, block: Ref, buffer: Scalar, head: Scalar, positions: Any) -> jax.Array:
        return block[buffer, head, positions, self.value_start : self.value_start + self.value_lanes]

    def new_operand(self, new: jax.Array, rows: int) -> tuple[jax.Array, pl.BlockSpec]:
        """In float32, where any single row can be read, and which holds the numbers of every narrower type."""

        def index(i: Scalar, *_: Ref) -> tuple[Scalar, ...]:
            return i, 0, 0

        return new.astype(jnp.float32), pl.BlockSpec((rows, *new.shape[1:]), index)

    def put(
        self, block: Ref, buffer: Scalar, tile: Scalar, offset: Scalar, new: Ref, first_row: Scalar, row: Scalar
    ) -> None:
        old = block[buffer, :, pl.ds(tile, self.tile_len), :]
        is_new = lax.broadcasted_iota(jnp.int32, old.shape, 1) == offset
        merged = jnp.where(is_new, new[row][:, None, :], old.astype(jnp.float32))
        block[buffer, :, pl.ds(tile, self.tile_len), :] = merged.astype(old.dtype)


@dataclass(frozen=True)
class LaneBlocks(BlockLayout):
    layout = LANES
    key_dims = ((1,), (0,))
    value_dims = ((1,), (1,))
    value_axis = 1

    @property
    def tile_len(self) -> int:
        return NUM_LANES

    @property
    def query_lanes(self) -> int:
        return self.layout.value_start(self.head_dim, self.pool_dtype)

    @property
    def value_lanes(self) -> int:
        return self.query_lanes

    @property
    def output_lanes(self) -> slice:
        return slice(0, self.head_dim)

    def keys(self, block: Ref, buffer: Scalar, head: Scalar, positions: Any) -> jax.Array:
        return block[buffer, head, : self.query_lanes, positions]

    def values(self, block: Ref, buffer: Scalar, head: Scalar, positions: Any) -> jax.Array:
        return block[buffer, head, self.query_lanes : 2 * self.query_lanes, positions]

    def new_operand(self, new: jax.Array, rows: int) -> tuple[jax.Array, pl.BlockSpec]:
        """[K, 2H', S]: tokens are lanes, as in pages; a block holds 128 of them; `rows` divides 128 or is S."""
        columns = jnp.moveaxis(new, 0, 2)
        columns = jnp.pad(columns, ((0, 0), (0, 0), (0, -len(new) % NUM_LANES)))

        def index(i: Scalar, *_: Ref) -> tuple[Scalar, ...]:
            return 0, 0, i * rows // NUM_LANES

        return columns, pl.BlockSpec((*columns.shape[:2], NUM_LANES), index)

    def put(
        self, block: Ref, buffer: Scalar, tile: Scalar, offset: Scalar, new: Ref, first_row: Scalar, row: Scalar
    ) -> None:
        lanes = pl.ds(tile, NUM_LANES)
        lane = lax.rem(first_row + row, NUM_LANES)

        def put_head(head: Scalar, carry: Scalar) -> Scalar:
            old = block[buffer, head, :, lanes]
            block[buffer, head, :, lanes] = insert_columns(old, [new[head]], lane, offset, 1)
            return carry

        lax.fori_loop(0, self.num_kv_heads, put_head, 0)


BLOCK_LAYOUTS: dict[str, type[BlockLayout]] = {blocks.layout.name: blocks for blocks in (RowBlocks, LaneBlocks)}


def block_layout(layout: PageLayout, pool: Any, head_dim: int, width: int, positions: int) -> BlockLayout:
    return BLOCK_LAYOUTS[layout.name](pool.shape[2], head_dim, layout.page_size(pool), width, positions, pool.dtype)


def pool_buffer(depth: int, blocks: BlockLayout) -> Any:
    """VMEM for `depth` blocks."""
    return pltpu.VMEM((depth, *blocks.block_shape), blocks.pool_dtype)
