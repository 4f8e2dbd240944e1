"""Device: activations of gates, by the names of `jaxserve.models.config.layer_kind`."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from pallas_kernels.dispatch import target_platform

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "silu": jax.nn.silu,
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
}
"""Of float32 numbers."""


def apply_gate(activation: str | None, y: Float[Array, "T *out"]) -> Float[Array, "T *rest"]:
    """activation(y[:, 0]) · y[:, 1], each rounded to y's dtype; None: y."""
    if activation is None:
        return y
    active = ACTIVATIONS[activation](y[:, 0].astype(jnp.float32))
    if y.dtype == jnp.float32 or target_platform() != "cpu":
        return active.astype(y.dtype) * y[:, 1]
    # XLA on CPU does not vectorise a loop that rounds in its midst, nor well one that computes and rounds: in three
    # loops steps of 512 prompt tokens of SmolLM2 take 200 ms instead of 206.
    rounded = lax.optimization_barrier(active).astype(y.dtype).astype(jnp.float32)
    return lax.optimization_barrier(rounded * y[:, 1].astype(jnp.float32)).astype(y.dtype)
