"""Device: activations of gates, of float32 numbers, by the names of `jaxserve.models.config.layer_kind`."""

from collections.abc import Callable
from functools import partial

import jax

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "silu": jax.nn.silu,
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
}
