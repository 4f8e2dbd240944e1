"""Device: layouts of a page's keys and values in one head: a row per position, or a lane per position.

    ROWS   pool[Lg, P, K, page, W2]     W2 = round_up(2·H, 128)        position 0  [ key 0..H | value 0..H | zeros ]
                                                                       position 1  [ key 0..H | value 0..H | zeros ]

    LANES  pool[Lg, P, K, 2·H', page]   H' = H rounded up to           key 0       [ position 0 | position 1 | … ]
                                        the rows of a tile             …
                                                                       value 0     [ position 0 | position 1 | … ]
                                                                       …
ROWS suits every page size, and a token is stored by rewriting a tile of 8 to 32 positions. LANES avoids the padding of
ROWS (37 % of the memory at head dim 80, 25 % at 96), and separates keys and values at no cost: decoding on v6e in
bfloat16 takes 32 % fewer instruction bundles at head dim 64, 39 % at 80, 9 % at 128. Its costs: pages are multiples of
128, and storing one token rewrites 128 positions of all its heads (Llama-3-8B in bfloat16: 512 KiB a layer instead of
64; head dim 64: 256 KiB instead of 32).
"""

from abc import ABC, abstractmethod
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Num

NUM_LANES = 128
TILE_ROW_BYTES = 32
"""Height of a TPU tile, 8 sublanes of 32 bits: 8 rows of float32, 16 of bfloat16, 32 of an 8-bit type."""


class PageLayout(ABC):
    """Where the numbers of a position lie in the pool. A *packed* token is its key and value with their padding."""

    name: str
    position_axis: int
    """The pool's axis on which positions follow each other."""
    packed_axis: int
    """The pool's axis on which a packed token lies."""
    packed_unit: str
    """What that axis counts, for messages."""
    max_piece_len: int
    """Largest number of consecutive slots written at once (see `page_ops/aligned_pieces.py`)."""

    @abstractmethod
    def value_start(self, head_dim: int, dtype: Any) -> int:
        """Where in a packed token the value begins; its key begins at 0."""

    @abstractmethod
    def packed_len(self, head_dim: int, dtype: Any) -> int:
        """Numbers of a packed token, padding included."""

    @abstractmethod
    def page_multiple(self, dtype: Any) -> int:
        """Page sizes must be multiples of this on TPUs."""

    @abstractmethod
    def page_shape(self, page_size: int, head_dim: int, dtype: Any) -> tuple[int, int]:
        """The pool's last two axes."""

    @abstractmethod
    def at(self, page: Any, positions: Any) -> tuple[Any, ...]:
        """Index of packed tokens in pool[layer]."""

    @abstractmethod
    def by_position(self, pages: Num[Array, "*batch a b"]) -> Num[Array, "*batch positions packed"]:
        """Whole or partial pages with one row per position."""

    def __repr__(self) -> str:
        return self.name.upper()

    def page_size(self, pool: Any) -> int:
        return pool.shape[self.position_axis]


class _Rows(PageLayout):
    name = "rows"
    position_axis, packed_axis, packed_unit = 3, 4, "lanes"
    max_piece_len = 32  # one tile of an 8-bit type; longer pieces cost more where most are written in part

    def value_start(self, head_dim: int, dtype: Any) -> int:
        return head_dim

    def packed_len(self, head_dim: int, dtype: Any) -> int:
        return _round_up(2 * head_dim, NUM_LANES)  # with other lengths, XLA copies the whole pool on TPUs

    def page_multiple(self, dtype: Any) -> int:
        return tile_rows(dtype)

    def page_shape(self, page_size: int, head_dim: int, dtype: Any) -> tuple[int, int]:
        return page_size, self.packed_len(head_dim, dtype)

    def at(self, page: Any, positions: Any) -> tuple[Any, ...]:
        return page, slice(None), positions

    def by_position(self, pages: Num[Array, "*batch a b"]) -> Num[Array, "*batch positions packed"]:
        return pages


class _Lanes(PageLayout):
    name = "lanes"
    position_axis, packed_axis, packed_unit = 4, 3, "rows per page"
    max_piece_len = NUM_LANES

    def value_start(self, head_dim: int, dtype: Any) -> int:
        return _round_up(head_dim, tile_rows(dtype))

    def packed_len(self, head_dim: int, dtype: Any) -> int:
        return 2 * self.value_start(head_dim, dtype)

    def page_multiple(self, dtype: Any) -> int:
        return NUM_LANES

    def page_shape(self, page_size: int, head_dim: int, dtype: Any) -> tuple[int, int]:
        return self.packed_len(head_dim, dtype), page_size

    def at(self, page: Any, positions: Any) -> tuple[Any, ...]:
        return page, slice(None), slice(None), positions

    def by_position(self, pages: Num[Array, "*batch a b"]) -> Num[Array, "*batch positions packed"]:
        return jnp.swapaxes(pages, -1, -2)


ROWS: PageLayout = _Rows()
LANES: PageLayout = _Lanes()
LAYOUTS = {layout.name: layout for layout in (ROWS, LANES)}


def tile_rows(dtype: Any) -> int:
    """Rows of one tile."""
    return TILE_ROW_BYTES // jnp.dtype(dtype).itemsize


def _round_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple
