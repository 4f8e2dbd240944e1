"""Device: `KVLayout`: the memory layout of the KV pool and of the arrays beside it, and their allocation.

    pool[Lg, P, K, page, W2]        W2 = round_up(2*H, 128)         rows, the default
    pool[Lg, P, K, 2*H', page]      H' = H in whole tiles           lanes: see `pallas_kernels.page_layouts`

    one page of rows, one layer and head:   position 0   [ key 0..H | value H..2H | padding ]
                                            position 1   [ key 0..H | value H..2H | padding ]
                                            …
A page id means the same page in all Lg layers of the KV group that has it. W2 is a multiple of 128 because XLA copies
the whole pool in each step on TPU if the minor axis is not (head dim 80: 1.07 GB of temporaries).
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding

from jaxserve.kv.kv_state import PAGES_SPEC, ExtraArray, KVState
from pallas_kernels.page_layouts import LAYOUTS, ROWS, PageLayout

_jax: Any = jax  # whose transformations have no types
PINNED = "pinned_host"


def page_layout(name: str) -> PageLayout:
    """The layout of the option `kv_layout`; "auto" is rows, which support every page size."""
    return ROWS if name == "auto" else LAYOUTS[name]


@dataclass(frozen=True, slots=True)
class KVLayout:
    """Shape and data type of a pool and of the arrays beside it."""

    layers_per_group: int
    num_kv_heads: int
    head_dim: int
    page_size: int
    dtype: Any
    pages: PageLayout = ROWS
    """The order of keys and values within a page."""
    extra: tuple[ExtraArray, ...] = ()

    def shape(self, num_pages: int) -> tuple[int, int, int, int, int]:
        """The pool's shape for so many pages."""
        page = self.pages.page_shape(self.page_size, self.head_dim, self.dtype)
        return (self.layers_per_group, num_pages, self.num_kv_heads, *page)

    def arrays(self, num_pages: int, sharding: NamedSharding | None = None) -> KVState:
        """Shape, dtype and sharding of each array for so many pages."""

        def array(shape: tuple[int, ...], dtype: Any) -> Any:
            return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

        extra = {a.name: array(a.shape(num_pages), a.dtype) for a in self.extra}
        return KVState(array(self.shape(num_pages), self.dtype), extra)

    @property
    def page_bytes(self) -> int:
        """Bytes of one page over all arrays, all layers of its group and all devices."""
        leaves: list[jax.ShapeDtypeStruct] = jax.tree.leaves(self.arrays(1))
        return sum(a.size * a.dtype.itemsize for a in leaves)

    def sharding(self, mesh: Mesh) -> NamedSharding:
        """KV heads are divided over the mesh."""
        return NamedSharding(mesh, PAGES_SPEC)

    def host_sharding(self, mesh: Mesh) -> NamedSharding:
        """Of pages on their way to the host: in pinned memory, which a device writes directly, if it has any."""
        device = mesh.devices.flat[0]
        has_pinned = device.platform != "cpu" and PINNED in {memory.kind for memory in device.addressable_memories()}
        return self.sharding(mesh).with_memory_kind(PINNED) if has_pinned else self.sharding(mesh)

    def allocate(self, num_pages: int, mesh: Mesh) -> KVState:
        """Arrays of zeros, sharded over the mesh."""

        def zeros_like(array: jax.ShapeDtypeStruct) -> jax.Array:
            return jnp.zeros(array.shape, array.dtype)

        def zeros() -> KVState:
            return jax.tree.map(zeros_like, self.arrays(num_pages))

        return _jax.jit(zeros, out_shardings=self.sharding(mesh))()
