"""Device: top-k, top-p and min-p over the 64 likeliest tokens of each row, where these are all that the row may draw.

Rows that may draw other tokens use `full_vocabulary_top_p.py`.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int32

from jaxserve.sampling.argmax_top_k import top_k
from jaxserve.sampling.probabilities import block_weights, draw_index, weights_of
from jaxserve.sampling.sampling_batch import SamplingBatch
from jaxserve.sampling.top_k_min_p_threshold import min_p_threshold

# Up to 64 tokens may be drawn; the 65th shows that no value equal to the 64th lies outside the candidates.
NUM_CANDIDATES = 65


class CandidateDraw(NamedTuple):
    """A token for each row; `is_valid` where every token that the row may draw is a candidate.

    threshold: the least logit kept by min-p and top-k, where `is_known`; the other rows need `vocabulary_threshold`.
    is_complete: the threshold includes top-p.
    """

    token: Int32[Array, " S"]
    is_valid: Bool[Array, " S"]
    threshold: Float[Array, " S"]
    is_known: Bool[Array, " S"]
    is_complete: Bool[Array, " S"]


def draw_from_candidates(
    logits: Float[Array, "S V"],
    batch: SamplingBatch,
    temperature: Float[Array, " S"],
    uniforms: Float[Array, " S"],
) -> CandidateDraw:
    """Tokens from the likeliest candidates; uniforms: one number in [0, 1) per row."""
    values, ids = top_k(logits, min(NUM_CANDIDATES, logits.shape[1]))
    threshold, is_known, is_complete = candidate_threshold(logits, values, batch, temperature)
    is_valid = is_complete & (_is_whole_row(logits, values) | (threshold > values[:, -1]))
    place = draw_index(weights_of(values, values[:, 0], temperature, threshold), uniforms)
    return CandidateDraw(_at(ids, place), is_valid, threshold, is_known, is_complete)


def candidate_threshold(
    logits: Float[Array, "S V"],
    values: Float[Array, "S C"],
    batch: SamplingBatch,
    temperature: Float[Array, " S"],
) -> tuple[Float[Array, " S"], Bool[Array, " S"], Bool[Array, " S"]]:
    """(least logit kept, `CandidateDraw.is_known`, `is_complete`) from the C largest logits, `values`.

    Truncation is min-p, then top-k, then top-p of the remaining mass; values equal to a threshold stay.
    """
    vocab_width, num_values = logits.shape[1], values.shape[1]
    top, last = values[:, 0], values[:, -1]

    is_top_k = (batch.top_k > 0) & (batch.top_k < vocab_width)
    kth = jnp.where(is_top_k, _at(values, batch.top_k - 1), -jnp.inf)
    threshold = jnp.maximum(min_p_threshold(top, temperature, batch.min_p), kth)
    # The candidates do not determine a larger top_k's threshold, unless min_p alone is stricter.
    is_known = ~is_top_k | (batch.top_k <= num_values) | (threshold > last)

    weights = weights_of(values, top, temperature, threshold)
    is_top_p = is_known & (batch.top_p < 1)
    has_mass_beyond = is_top_p & ~_is_whole_row(logits, values) & (threshold <= last)
    total = lax.cond(
        jnp.any(has_mass_beyond),
        lambda: jnp.sum(block_weights(logits, top, temperature, threshold), axis=1),
        lambda: jnp.zeros_like(top),
    )
    total = jnp.where(has_mass_beyond, total, jnp.sum(weights, axis=1))
    before = lax.cumsum(weights, axis=1) - weights
    num_kept = jnp.sum(before < (batch.top_p * total)[:, None], axis=1, dtype=jnp.int32)
    is_wide = has_mass_beyond & (num_kept == num_values)  # a nucleus of more tokens than there are candidates
    threshold = jnp.where(is_top_p & ~is_wide, jnp.maximum(threshold, _at(values, num_kept - 1)), threshold)
    return threshold, is_known, is_known & ~is_wide


def _is_whole_row(logits: Float[Array, "S V"], values: Float[Array, "S C"]) -> Bool[Array, " S"]:
    """Whether the candidates are all tokens of nonzero probability."""
    return (values[:, -1] == -jnp.inf) | (values.shape[1] == logits.shape[1])


def _at(columns: Array, place: Int32[Array, " S"]) -> Array:
    """columns[s, place[s]], with places clipped to the table."""
    place = jnp.clip(place, 0, columns.shape[1] - 1)[:, None]
    return jnp.take_along_axis(columns, place, axis=1, mode="clip")[:, 0]
