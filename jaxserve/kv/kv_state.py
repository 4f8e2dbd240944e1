"""Device: `KVState`: the KV pool and the arrays beside it, arrays whose pages have the same ids.

    pool             [Lg, P, K, page, W2]     keys and values (`pool_layout.py`)
    extra["name"]    [L,  P, K, a, b]         what else belongs to each page, such as scales or a draft model's KV

A page is allocated, copied, saved, loaded and freed in all of them at once, so what allocates pages knows of none.
"""

from dataclasses import dataclass, field
from typing import Any, no_type_check

from flax import struct
from jaxtyping import Array, Float

from jaxserve.core.hardware.mesh import spec

PAGES_SPEC = spec(None, None, "kv_heads")
"""Partition of each array: the KV heads are divided over the devices."""


@no_type_check
@struct.dataclass
class KVState:
    """Arrays by page, or as many descriptions of such."""

    pool: Float[Array, "Lg P K page W2"]
    extra: dict[str, Array] = field(default_factory=dict[str, Array])


@dataclass(frozen=True, slots=True)
class ExtraArray:
    """An array beside the pool. page_shape: (K, a, b), one page of one layer with all its KV heads."""

    name: str
    num_layers: int
    page_shape: tuple[int, int, int]
    dtype: Any

    def shape(self, num_pages: int) -> tuple[int, int, int, int, int]:
        """The array's shape for so many pages."""
        return (self.num_layers, num_pages, *self.page_shape)
