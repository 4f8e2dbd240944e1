"""Device: functions of single rows, applied to all rows at once or tile by tile.

XLA multiplies and adds up in an order that depends on the shapes it compiles for, so the same row has other bits in
another bucket. Tiles have one shape whatever the bucket, and a row's bits do not depend on its place in a tile: each
row of a product is made alike, and so is each element of all else.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool


def tile_rows(platform: str) -> int:
    """Rows of a tile. Weights are read once a tile, and products of a tile that is mostly empty cost what a full one
    does: 32 rows of SmolLM2 take a CPU 1.4 times as long as 8. Accelerators want some 256 tokens a weight."""
    return 32 if platform == "cpu" else 256


def each_tile(size: int | None, is_used: Bool[Array, "R"], function: Callable[..., Any], *rows: Any) -> Any:
    """function(*rows), where arguments and results are trees of arrays with one entry a row.

    size: rows of a tile; None: all rows at once. Rows past the last tile that has a used one may come out as zeros.
    """
    if size is None:
        return function(*rows)
    num_rows = len(is_used)
    rows = jax.tree.map(lambda a: jnp.pad(a, [(0, -num_rows % size)] + [(0, 0)] * (a.ndim - 1)), rows)

    def of_tile(start: Any) -> Any:
        tile = jax.tree.map(lambda a: lax.dynamic_slice_in_dim(a, start, size), rows)
        # Barriers, so that nothing outside a tile is computed together with it: that would depend on the bucket.
        return lax.optimization_barrier(function(*lax.optimization_barrier(tile)))

    def add_tile(i: jax.Array, out: Any) -> Any:
        return jax.tree.map(lambda o, x: lax.dynamic_update_slice_in_dim(o, x, i * size, 0), out, of_tile(i * size))

    shapes = jax.eval_shape(of_tile, 0)
    padded = num_rows + -num_rows % size
    out = jax.tree.map(lambda a: jnp.zeros((padded, *a.shape[1:]), a.dtype), shapes)
    # Known to the data alone: a loop of one turn would be dissolved in what stands around it.
    num_tiles = jnp.max(jnp.where(is_used, jnp.arange(num_rows, dtype=jnp.int32) // size + 1, 0))
    out = lax.fori_loop(0, num_tiles, add_tile, out)
    return jax.tree.map(lambda a: a[:num_rows], out)
