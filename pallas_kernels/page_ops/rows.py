"""Device: a token's keys and values as they lie in the pool: side by side, then zeros; quantized if it is 8-bit."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Num


def pack_rows(
    k: Float[Array, "T K H"],
    v: Float[Array, "T K H"],
    num_lanes: int,
    dtype: Any,
    *,
    k_scale: Float[Array, "K"] | None = None,
    v_scale: Float[Array, "K"] | None = None,
) -> Num[Array, "T K W2"]:
    """Rows of a pool of this dtype; in an 8-bit pool a stored number times its head's scale is the value (no scale: 1).

    Every back end stores exactly these bits.
    """
    rows = jnp.concatenate([quantize(k, dtype, k_scale), quantize(v, dtype, v_scale)], axis=-1)
    return jnp.pad(rows, ((0, 0), (0, 0), (0, num_lanes - rows.shape[-1])))


def quantize(x: Float[Array, "T K H"], dtype: Any, scale: Float[Array, "K"] | None) -> Num[Array, "T K H"]:
    """x / scale to the nearest number that dtype has; what lies beyond its range becomes its largest (±127 in int8)."""
    dtype = jnp.dtype(dtype)
    if dtype.itemsize > 1:
        return x.astype(dtype)
    x = x.astype(jnp.float32)
    if scale is not None:
        x = x / scale.astype(jnp.float32)[None, :, None]
    if dtype == jnp.int8:
        return jnp.clip(jnp.round(x), -127, 127).astype(dtype)
    largest = float(jnp.finfo(dtype).max)
    return jnp.clip(x, -largest, largest).astype(dtype)
