"""Device: RMSNorm (arXiv 1910.07467)."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float


def rms_norm(x: Float[Array, "*b D"], weight: Float[Array, "D"], eps: float) -> Float[Array, "*b D"]:
    """x over its root mean square, times the weight, in float32."""
    y = x.astype(jnp.float32)
    y = y * lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + eps)
    return (y * lax.expand_dims(weight, range(y.ndim - 1))).astype(x.dtype)


def named_norm(params: Mapping[str, Any], name: str, x: Float[Array, "*b D"], eps: float) -> Float[Array, "*b D"]:
    """The norm with the weight `name`, which is also its name in profiles; x itself if there is none."""
    if name not in params:
        return x
    with jax.named_scope(name):
        return rms_norm(x, params[name], eps)
