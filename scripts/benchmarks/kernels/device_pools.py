"""A pool for timing, filled on the device: drawing a full-sized one on the host takes minutes."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels.page_layouts import LAYOUTS
from pallas_kernels.paged_attention.workload_arguments import STORED_SPREAD
from pallas_kernels.paged_attention.workloads import Workload

NUM_DRAWN = 64
"""Number of different pages, which the pool repeats."""


def pool_on_device(
    w: Workload, pages_of_rows: list[np.ndarray], num_pool_pages: int, rng: np.random.Generator
) -> jax.Array:
    """Random numbers at all positions: with zeros, a chip needs less power and runs at a higher clock."""
    del pages_of_rows, rng
    page = LAYOUTS[w.layout].page_shape(w.page_size, w.head_dim, w.stored_dtype)
    return _fill(
        num_pool_pages, w.num_layers, (w.num_kv_heads, *page), w.stored_dtype, STORED_SPREAD if w.is_8bit else 1
    )


@partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _fill(num_pages: int, num_layers: int, page: tuple[int, ...], dtype: str, spread: float) -> jax.Array:
    drawn = spread * jax.random.normal(jax.random.key(0), (NUM_DRAWN, *page), jnp.float32)
    if dtype == "int8":
        drawn = jnp.clip(jnp.round(drawn), -127, 127)
    layer = drawn.astype(dtype)[jnp.arange(num_pages) % NUM_DRAWN]
    return jnp.broadcast_to(layer, (num_layers, *layer.shape))
