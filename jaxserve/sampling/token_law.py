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
    temperature, top_k, top_p, min_p = batch.temperature, batch.top_k, batch.top_p, batch.min_p
    is_random = temperature > 0
    is_limited, is_nucleus = is_random & ((top_k > 0) | (min_p > 0)), is_random & (top_p < 1)
    temperature = jnp.where(is_random, temperature, 1.0)
    # The searches' loops end by data: a GPU would ask the host for each, though no row wants one.
    least = lax.cond(
        jnp.any(is_limited | is_nucleus),
        lambda: each_row(_least_kept, logits, temperature, top_k, top_p, min_p, is_limited, is_nucleus),
        lambda: jnp.full_like(temperature, -jnp.inf),
    )
    return each_row(_of_row, logits, is_random, temperature, least)


def _least_kept(
    z: Array, temperature: Array, top_k: Array, top_p: Array, min_p: Array, is_limited: Array, is_nucleus: Array
) -> Array:
    """The least logit that a row's token may have; -inf: any."""
    lowest, top = vocabulary_threshold(z, temperature, top_k, min_p, is_limited), jnp.max(z)
    mass = top_p * jnp.sum(weights_of(z, top, temperature, lowest))
    return jnp.maximum(lowest, nucleus_threshold(is_nucleus, Row(z, top, temperature, lowest, mass)))


def _of_row(z: Array, is_random: Array, temperature: Array, least: Array) -> Array:
    weights = weights_of(z, jnp.max(z), temperature, least)
    likeliest = (jnp.arange(len(z), dtype=jnp.int32) == lax.argmax(z, 0, jnp.int32)).astype(jnp.float32)
    return jnp.where(is_random, weights / jnp.sum(weights), likeliest)
