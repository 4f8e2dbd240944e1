"""Device: float16 numbers, given by their bits, as float32, by operations that every TPU has."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, UInt16

FRACTION = 13  # bits that float32 has more
EXPONENT = 0x1F << 23
"""That of float16, at the place of float32's."""
BIAS = (127 - 15) << 23
SMALLEST = (127 - 14) << 23
"""2^-14, the smallest normal number."""


def from_bits(bits: UInt16[Array, "*shape"]) -> Float[Array, "*shape"]:
    """All float16 numbers are float32 numbers; infinities and NaN remain what they are.

    Subnormal ones, which a TPU's float32 operations would take for zero, are a difference of normal ones:
    m · 2^-24 = 2^-14 · (1 + m / 1024) - 2^-14.
    """
    moved = lax.bitcast_convert_type(bits, jnp.int16).astype(jnp.int32) << FRACTION
    sign_and_fraction, exponent = moved & jnp.int32(-(2**31) | 0x7FFFFF), moved & EXPONENT
    bias = jnp.where(exponent == EXPONENT, 2 * BIAS, BIAS)
    normal = _float(sign_and_fraction | (exponent + bias))
    sign = moved & jnp.int32(-(2**31))
    subnormal = _float(sign_and_fraction | SMALLEST) - _float(sign | SMALLEST)
    return jnp.where(exponent == 0, subnormal, normal)


def _float(bits: jax.Array) -> jax.Array:
    return lax.bitcast_convert_type(bits, jnp.float32)
