"""Device: combines the outputs of a tile's items: o = Σ wᵢ·oᵢ with wᵢ = 2^(logᵢ - log Σ 2^logⱼ)."""

from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array, Float

from pallas_kernels.dispatch import gpu_interpretation
from pallas_kernels.kernel_types import Ref, Scalar
from pallas_kernels.paged_attention.mosaic_gpu.items import Items
from pallas_kernels.paged_attention.softmax_constants import LOWEST

THREADS = 128


def combine(
    parts: Float[Array, "items K lines H"],
    log_sums: Float[Array, "items K all_lines"],
    items: Items,
    num_lines: int,
    dtype: jnp.dtype,
) -> tuple[Float[Array, "tiles K num_lines H"], Float[Array, "tiles K num_lines"]]:
    """Outputs of the first `num_lines` lines of each tile, in `dtype`, and the logarithms (base 2) of their sums.

    A thread block adds one line in the order of the items, so results are deterministic. Tiles without items give 0 and
    -inf. H must be a multiple of 128 (beyond the head dim: undefined).
    """
    num_kv_heads, width = parts.shape[1], parts.shape[3]
    num_tiles = len(items.first)

    def paged_attention_combine(
        parts_ref: Ref, log_sums_ref: Ref, first_ref: Ref, count_ref: Ref, o_ref: Ref, total_ref: Ref
    ) -> None:
        head, tile, line = (lax.axis_index(name) for name in ("head", "tile", "line"))
        first = first_ref[tile]
        end = first + count_ref[tile]

        def higher(item: Scalar, highest: jax.Array) -> jax.Array:
            return jnp.maximum(highest, log_sums_ref[item, head, line])

        highest = lax.fori_loop(first, end, higher, jnp.float32(LOWEST))

        def add(item: Scalar, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            total, sums = carry
            weight = jnp.exp2(log_sums_ref[item, head, line] - highest)
            part = plgpu.load(
                parts_ref.at[item, head, line], layout=plgpu.Layout.WG_STRIDED((width,), width // THREADS)
            )
            return total + weight, sums + part * weight

        strided = plgpu.Layout.WG_STRIDED((width,), width // THREADS)
        zeros = cast(jax.Array, plgpu.layout_cast(jnp.zeros((width,), jnp.float32), strided))
        total, sums = lax.fori_loop(first, end, add, (jnp.float32(0), zeros))
        o_ref[tile, head, line] = (sums / jnp.maximum(total, np.finfo(np.float32).tiny)).astype(dtype)
        total_ref[tile, head, line] = highest + jnp.log2(total)

    shape = (num_tiles, num_kv_heads, num_lines)
    return plgpu.kernel(
        paged_attention_combine,
        out_type=(jax.ShapeDtypeStruct((*shape, width), dtype), jax.ShapeDtypeStruct(shape, jnp.float32)),
        grid=(num_lines, num_kv_heads, num_tiles),
        grid_names=("line", "head", "tile"),
        interpret=gpu_interpretation(),
    )(parts, log_sums, items.first, items.count)
