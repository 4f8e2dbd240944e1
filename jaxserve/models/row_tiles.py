"""Device: `each_tile`, per-row functions applied to all rows at once or tile by tile (batch invariance).

XLA's order of multiplications and additions depends on the compiled shape, so a row's bits differ between buckets.
Tiles have one shape in every bucket, and a row's bits do not depend on its index in a tile: all rows of a product are
computed alike, as are all elements of other operations.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool


@dataclass(frozen=True, slots=True)
class RowTiles:
    """size: rows of a tile. loops_over_one: a batch of a single tile is computed in a loop, too."""

    size: int
    loops_over_one: bool = True


def row_tiles(platform: str) -> RowTiles:
    """Weights are read once a tile, and a mostly empty tile costs as much as a full one: 32 rows of SmolLM2 take a CPU
    1.4 times as long as 8. Accelerators need about 256 tokens for each read of the weights.

    XLA for GPUs takes each layer's weights out of the stack before a loop, which reads and writes them once more: 3.2
    instead of 1.3 times the bytes of the weights in a decode step of Llama 3 8B. It needs no loop, as it keeps the
    barriers until its fusions are made (jaxlib 0.11.2).
    """
    return RowTiles(32) if platform == "cpu" else RowTiles(256, loops_over_one=platform != "gpu")


def each_tile(tiles: RowTiles | None, is_used: Bool[Array, "R"], function: Callable[..., Any], *rows: Any) -> Any:
    """function(*rows), where arguments and results are trees of arrays with one entry per row.

    tiles: None: all rows at once. Rows after the last tile with a used row may be zeros.
    """
    if tiles is None:
        return function(*rows)
    num_rows, size = len(is_used), tiles.size
    num_padded = num_rows + -num_rows % size

    def pad(a: jax.Array) -> jax.Array:
        return jnp.pad(a, [(0, num_padded - num_rows)] + [(0, 0)] * (a.ndim - 1))

    def unpad(a: jax.Array) -> jax.Array:
        return a[:num_rows]

    def zeros(tile: jax.ShapeDtypeStruct) -> jax.Array:
        return jnp.zeros((num_padded, *tile.shape[1:]), tile.dtype)

    padded = jax.tree.map(pad, rows)

    def of_tile(start: Any) -> Any:
        def take(a: jax.Array) -> jax.Array:
            return lax.dynamic_slice_in_dim(a, start, size)

        # Barriers keep XLA from fusing a tile with operations outside: those depend on the bucket.
        return lax.optimization_barrier(function(*lax.optimization_barrier(jax.tree.map(take, padded))))

    def add_tile(i: jax.Array, out: Any) -> Any:
        def put(a: jax.Array, tile: jax.Array) -> jax.Array:
            return lax.dynamic_update_slice_in_dim(a, tile, i * size, 0)

        return jax.tree.map(put, out, of_tile(i * size))

    if num_padded == size and not tiles.loops_over_one:
        return jax.tree.map(unpad, of_tile(0))
    out = jax.tree.map(zeros, jax.eval_shape(of_tile, 0))
    # Data-dependent: XLA would inline a loop with a known single iteration into the operations around it.
    num_tiles = jnp.max(jnp.where(is_used, jnp.arange(num_rows, dtype=jnp.int32) // size + 1, 0))
    return jax.tree.map(unpad, lax.fori_loop(0, num_tiles, add_tile, out))
