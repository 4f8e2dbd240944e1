"""Device: activations of gates, of float32 numbers; their names are those of `jaxserve.models.gated_mlp`."""

from collections.abc import Callable
from functools import partial

import jax

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "silu": jax.nn.silu,
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
}
