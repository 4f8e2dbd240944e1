"""Device: drawing tokens from each row's best candidates, where these hold all that the row may draw."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int32

from jaxserve.sampling.largest import top_k
from jaxserve.sampling.probabilities import block_weights, pick, weights_of
from jaxserve.sampling.sampling_batch import SamplingBatch
from jaxserve.sampling.truncation import min_p_floor

# Up to 64 tokens may be drawn; the 65th shows that no value equal to the last of them was left outside.
NUM_CANDIDATES = 65


class CandidateDraw(NamedTuple):
    """A token for each row; `is_valid` where all that the row may draw are candidates.

    floor: the least logit that min-p and top-k leave, where `is_known`; the other rows need `truncation.py`. Where it
    `is_whole`, top-p is in it too.
    """

    token: Int32[Array, " S"]
    is_valid: Bool[Array, " S"]
    floor: Float[Array, " S"]
    is_known: Bool[Array, " S"]
    is_whole: Bool[Array, " S"]


def draw_from_candidates(
    logits: Float[Array, "S V"],
    batch: SamplingBatch,
    temperature: Float[Array, " S"],
    uniforms: Float[Array, " S"],
) -> CandidateDraw:
    """Tokens from the best candidates, by one number in [0, 1) a row."""
    values, ids = top_k(logits, min(NUM_CANDIDATES, logits.shape[1]))
    floor, is_known, is_whole = candidate_floor(logits, values, batch, temperature)
    is_valid = is_whole & (_holds_everything(logits, values) | (floor > values[:, -1]))
    place = pick(weights_of(values, values[:, 0], temperature, floor), uniforms)
    return CandidateDraw(_at(ids, place), is_valid, floor, is_known, is_whole)


def candidate_floor(
    logits: Float[Array, "S V"],
    values: Float[Array, "S C"],
    batch: SamplingBatch,
    temperature: Float[Array, " S"],
) -> tuple[Float[Array, " S"], Bool[Array, " S"], Bool[Array, " S"]]:
    """(least logit, `CandidateDraw.is_known`, `is_whole`) from the C largest logits, `values`.

    Truncation is min-p, then top-k, then top-p on the mass that remains; values equal to a threshold stay.
    """
    vocab_width, num_values = logits.shape[1], values.shape[1]
    top, last = values[:, 0], values[:, -1]

    is_top_k = (batch.top_k > 0) & (batch.top_k < vocab_width)
    kth = jnp.where(is_top_k, _at(values, batch.top_k - 1), -jnp.inf)
    floor = jnp.maximum(min_p_floor(top, temperature, batch.min_p), kth)
    # A top_k beyond the candidates has no threshold here, unless min_p alone is stricter.
    is_known = ~is_top_k | (batch.top_k <= num_values) | (floor > last)

    weights = weights_of(values, top, temperature, floor)
    is_top_p = is_known & (batch.top_p < 1)
    is_mass_beyond = is_top_p & ~_holds_everything(logits, values) & (floor <= last)
    total = lax.cond(
        jnp.any(is_mass_beyond),
        lambda: jnp.sum(block_weights(logits, top, temperature, floor), axis=1),
        lambda: jnp.zeros_like(top),
    )
    total = jnp.where(is_mass_beyond, total, jnp.sum(weights, axis=1))
    before = lax.cumsum(weights, axis=1) - weights
    num_kept = jnp.sum(before < (batch.top_p * total)[:, None], axis=1, dtype=jnp.int32)
    is_wide = is_mass_beyond & (num_kept == num_values)  # a nucleus of more tokens than there are candidates
    floor = jnp.where(is_top_p & ~is_wide, jnp.maximum(floor, _at(values, num_kept - 1)), floor)
    return floor, is_known, is_known & ~is_wide


def _holds_everything(logits: Float[Array, "S V"], values: Float[Array, "S C"]) -> Bool[Array, " S"]:
    return (values[:, -1] == -jnp.inf) | (values.shape[1] == logits.shape[1])


def _at(columns: Array, place: Int32[Array, " S"]) -> Array:
    """columns[s, place[s]], the nearest one if there is no such place."""
    place = jnp.clip(place, 0, columns.shape[1] - 1)[:, None]
    return jnp.take_along_axis(columns, place, axis=1, mode="clip")[:, 0]
