"""Wiring: `distances`: how well logits predict a text, and how far they are from those of another model."""

from functools import partial
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Int32

MAX_POSITIONS = 256
"""Compared at once: their log-probabilities take 537 MB at 262,144 tokens of a vocabulary, those of 4,096 8.6 GB."""


def distances(
    first: Float[Array, "T V"], found: Float[Array, "T V"], tokens: Int32[np.ndarray, "T"]
) -> Float[np.ndarray, "3"]:
    """Sums over the predicted tokens, float64: negative log-likelihood, divergence, and agreements."""
    num_predicted, sums = len(tokens) - 1, np.zeros(3)
    for start in range(0, num_predicted, MAX_POSITIONS):
        count = min(MAX_POSITIONS, num_predicted - start)
        inputs = first, found, jnp.asarray(tokens), jnp.int32(start)
        sums += np.asarray(cast(jax.Array, of_positions(count, *inputs)), np.float64)
    return sums


@partial(jax.jit, static_argnums=0)
def of_positions(
    count: int,
    first: Float[Array, "T V"],
    found: Float[Array, "T V"],
    tokens: Int32[Array, "T"],
    start: Int[Array, ""],
) -> Float[Array, "3"]:
    """Of so many positions from `start` on, each of which predicts the next token."""
    p, q = (jax.nn.log_softmax(jax.lax.dynamic_slice_in_dim(each, start, count)) for each in (first, found))
    predicted = jax.lax.dynamic_slice_in_dim(tokens, start + 1, count)
    loss = -jnp.take_along_axis(q, predicted[:, None], axis=1)
    divergence = jnp.where(p > -jnp.inf, jnp.exp(p) * (p - q), 0.0)
    is_same = (jnp.argmax(p, axis=1) == jnp.argmax(q, axis=1)).astype(jnp.float32)
    return jnp.stack([jnp.sum(loss), jnp.sum(divergence), jnp.sum(is_same)])
