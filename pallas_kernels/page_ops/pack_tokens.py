"""Device: packing of a token's key and value for the pool: side by side, padded with zeros, quantized to 8 bits."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Num

from pallas_kernels.page_layouts import ROWS, PageLayout


def pack_tokens(
    k: Float[Array, "T K H"],
    v: Float[Array, "T K H"],
    packed_len: int,
    dtype: Any,
    *,
    k_scale: Float[Array, "K"] | None = None,
    v_scale: Float[Array, "K"] | None = None,
    layout: PageLayout = ROWS,
) -> Num[Array, "T K packed"]:
    """Packed tokens of a pool of this dtype; in an 8-bit pool a stored number times its head's scale is the value.

    A missing scale is 1. Every back end stores exactly these bits.
    """
    key, value = quantize(k, dtype, k_scale), quantize(v, dtype, v_scale)
    if gap := layout.value_start(k.shape[-1], dtype) - k.shape[-1]:
        key = jnp.pad(key, ((0, 0), (0, 0), (0, gap)))
    packed = jnp.concatenate([key, value], axis=-1)
    return jnp.pad(packed, ((0, 0), (0, 0), (0, packed_len - packed.shape[-1])))


def check_scales(dtype: Any, k_scale: Any, v_scale: Any) -> None:
    """Raises ValueError for scales of a pool that is not 8-bit."""
    for name, scale in (("k_scale", k_scale), ("v_scale", v_scale)):
        if scale is not None and dtype.itemsize > 1:
            raise ValueError(f"{name} scales the numbers of an 8-bit pool; this pool holds {dtype}: pass None")


def quantize(x: Float[Array, "T K H"], dtype: Any, scale: Float[Array, "K"] | None) -> Num[Array, "T K H"]:
    """x / scale rounded to the nearest number of `dtype`; values beyond its range are clipped (to ±127 in int8)."""
    dtype = jnp.dtype(dtype)
    if dtype.itemsize > 1:
        return x.astype(dtype)
    x = x.astype(jnp.float32)
    if scale is not None:
        x = x / scale.astype(jnp.float32)[None, :, None]
    if dtype == jnp.int8:
        return jnp.clip(jnp.round(x), -127, 127).astype(dtype)
    largest = float(jnp.finfo(dtype).max)  # pyright: ignore[reportUnknownArgumentType]
    return jnp.clip(x, -largest, largest).astype(dtype)
