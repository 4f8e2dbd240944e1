"""Device: a ring of buffers in a GPU's shared memory, which one warpgroup fills (TMA) and others read.

`filled` and `freed` are barriers of `depth` buffers each: what was copied into a buffer has arrived; it has been read.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from pallas_kernels.kernel_types import Ref


def buffer_of(step: jax.Array, begin: jax.Array, depth: int) -> jax.Array:
    """The index in the ring of what step begin <= s < end needs."""
    return lax.rem(step - begin, jnp.int32(depth))


def fill_ring(
    begin: jax.Array, end: jax.Array, depth: int, freed: Ref, fill: Callable[[jax.Array, jax.Array], None]
) -> None:
    """Calls fill(step, buffer) for each step in turn, after its buffer's previous step has been read."""

    @pl.loop(begin, end)
    def _(step: jax.Array) -> None:
        buffer = buffer_of(step, begin, depth)

        @pl.when(step - begin >= depth)
        def _() -> None:
            plgpu.barrier_wait(freed.at[buffer])

        fill(step, buffer)

    @pl.loop(jnp.maximum(end - depth, begin), end)
    def _(step: jax.Array) -> None:
        # Every phase of a barrier must be waited for.
        plgpu.barrier_wait(freed.at[buffer_of(step, begin, depth)])


def tile_lanes(width: int, dtype: Any) -> int:
    """Lanes of a tile with the widest swizzle that `width` allows."""
    bits = 8 * jnp.dtype(dtype).itemsize
    return 8 * plgpu.find_swizzle(width * bits) // bits


def tiled(shape: tuple[int, ...], dtype: Any, unit: int | None = None) -> Any:
    """Shared memory in the layout of wgmma: tiles of 8 rows, the widest swizzle for `unit` lanes (the last axis)."""
    lanes = tile_lanes(unit or shape[-1], dtype)
    tiling = plgpu.TilingTransform((8, lanes))  # pyright: ignore[reportAbstractUsage]
    swizzle = plgpu.SwizzleTransform(lanes * jnp.dtype(dtype).itemsize)  # pyright: ignore[reportAbstractUsage]
    return plgpu.SMEM(shape, dtype, transforms=(tiling, swizzle))
