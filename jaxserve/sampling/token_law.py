"""Device: the probability of each token of the vocabulary, as `draw_tokens` draws it: for rules that compare laws."""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from jaxserve.sampling.full_vocabulary_top_p import Row, nucleus_threshold
from jaxserve.sampling.probabilities import each_row, weights_of
from jaxserve.sampling.sampling_batch import SamplingBatch
from jaxserve.sampling.top_k_min_p_threshold import vocabulary_threshold


@jax.named_scope("law")
def token_law(logits: Float[Array, "S V"], batch: SamplingBatch) -> Float[Array, "S V"]:
    """Probabilities of processed logits, after temperature, min-p, top-k and top-p; 1 at a greedy row's argmax."""
    return each_row(_of_row, logits, batch.temperature, batch.top_k, batch.top_p, batch.min_p)


def _of_row(z: Array, temperature: Array, top_k: Array, top_p: Array, min_p: Array) -> Array:
    is_random = temperature > 0
    temperature, top = jnp.where(is_random, temperature, 1.0), jnp.max(z)
    lowest = vocabulary_threshold(z, temperature, top_k, min_p, is_random & ((top_k > 0) | (min_p > 0)))
    weights = weights_of(z, top, temperature, lowest)
    row = Row(z, top, temperature, lowest, top_p * jnp.sum(weights))
    weights = jnp.where(z >= nucleus_threshold(is_random & (top_p < 1), row), weights, 0.0)
    likeliest = (jnp.arange(len(z), dtype=jnp.int32) == lax.argmax(z, 0, jnp.int32)).astype(jnp.float32)
    return jnp.where(is_random, weights / jnp.sum(weights), likeliest)
