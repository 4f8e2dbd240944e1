"""Device: activations of gates, by the names of `jaxserve.models.config.layer_kind`."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "silu": jax.nn.silu,
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
}
"""Of float32 numbers."""


def apply_gate(activation: str | None, y: Float[Array, "T *out"]) -> Float[Array, "T *rest"]:
    """activation(y[:, 0]) · y[:, 1], each rounded to y's dtype; None: y."""
    if activation is None:
        return y
    return ACTIVATIONS[activation](y[:, 0].astype(jnp.float32)).astype(y.dtype) * y[:, 1]
