"""Device: how KV memory lies in the pool, and the pool itself.

    pool[Lg, P, K, page, W2]        W2 = round_up(2*H, 128)

    one page of one layer and head:   position 0   [ key 0..H | value H..2H | padding ]
                                      position 1   [ key 0..H | value H..2H | padding ]
                                      …
A page id names the same page in all Lg layers of the KV group that holds it. W2 is a multiple of 128 because XLA
copies the whole pool each step on TPU when the minor axis is not (head dim 80: 1.07 GB of temporaries).
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding

from jaxserve.core.sharding import spec

LANES = 128
POOL_SPEC = spec(None, None, "kv_heads", None, None)


@dataclass(frozen=True, slots=True)
class KVLayout:
    """Shape and type of a pool; the only place that knows where keys and values lie."""

    layers_per_group: int
    num_kv_heads: int
    head_dim: int
    page_size: int
    dtype: Any

    @property
    def width(self) -> int:
        return -(-2 * self.head_dim // LANES) * LANES

    def shape(self, num_pages: int) -> tuple[int, int, int, int, int]:
        return (self.layers_per_group, num_pages, self.num_kv_heads, self.page_size, self.width)

    @property
    def page_bytes(self) -> int:
        """Bytes of one page over all layers of its group and all devices."""
        return math.prod(self.shape(1)) * jnp.dtype(self.dtype).itemsize

    def sharding(self, mesh: Mesh) -> NamedSharding:
        return NamedSharding(mesh, POOL_SPEC)

    def allocate(self, num_pages: int, mesh: Mesh) -> jax.Array:
        """A pool of zeros, laid out over the mesh."""
        zeros = jax.jit(lambda: jnp.zeros(self.shape(num_pages), self.dtype), out_shardings=self.sharding(mesh))
        return zeros()
