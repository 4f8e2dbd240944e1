"""Device: one token for each row from its processed logits."""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int32

from jaxserve.sampling.draw_from_candidates import CandidateDraw, draw_from_candidates
from jaxserve.sampling.draw_from_vocabulary import draw_from_vocabulary
from jaxserve.sampling.largest import argmax, row_max
from jaxserve.sampling.probabilities import each_row
from jaxserve.sampling.random_bits import TOKEN, row_words, uniforms
from jaxserve.sampling.sampling_batch import SamplingBatch
from jaxserve.sampling.truncation import vocabulary_floor


@jax.named_scope("draw")
def sample(logits: Float[Array, "S V"], batch: SamplingBatch, positions: Int32[Array, " S"]) -> Int32[Array, " S"]:
    """Each row's token: its argmax at temperature 0, else drawn from the law that its parameters define.

    The law: softmax(logits / temperature) cut by min-p, then top-k, then top-p on the mass that remains; values equal
    to a threshold stay. A truncated row draws from its best candidates where these hold all that is kept, any other
    row from the whole vocabulary: the row alone decides, so its token never depends on batch-mates. A batch of greedy
    rows pays for the argmax only. Rows that `is_bad` get their argmax.
    """
    greedy = argmax(logits)
    is_drawn = (batch.temperature > 0) & ~is_bad(logits)
    return lax.cond(
        jnp.any(is_drawn),
        lambda: jnp.where(is_drawn, _draw(logits, batch, positions, is_drawn), greedy),
        lambda: greedy,
    )


def is_bad(logits: Float[Array, "S V"]) -> Bool[Array, " S"]:
    """Rows from which no token can be drawn: a NaN or +inf somewhere, or -inf everywhere.

    A maximum may pass over a NaN, a sum cannot; scaled so that finite logits never overflow it.
    """
    return ~jnp.isfinite(row_max(logits)) | jnp.isnan(jnp.sum(logits * jnp.float32(2**-30), axis=1))


def _draw(
    logits: Float[Array, "S V"], batch: SamplingBatch, positions: Int32[Array, " S"], is_drawn: Bool[Array, " S"]
) -> Int32[Array, " S"]:
    """Tokens of the rows that are drawn, anything elsewhere."""
    temperature = jnp.where(is_drawn, batch.temperature, 1.0)
    words = row_words(batch, positions, TOKEN)
    is_truncated = is_drawn & ((batch.top_k > 0) | (batch.top_p < 1) | (batch.min_p > 0))
    candidates = lax.cond(
        jnp.any(is_truncated),
        lambda: draw_from_candidates(logits, batch, temperature, uniforms(words)[0]),
        lambda: CandidateDraw(jnp.zeros_like(positions), is_truncated, temperature, is_truncated, is_truncated),
    )
    is_candidate = is_truncated & candidates.is_valid

    def draw_others() -> Array:
        floor = jnp.where(is_truncated, candidates.floor, -jnp.inf)
        floor = _with_unknown_floors(floor, logits, batch, temperature, is_truncated & ~candidates.is_known)
        top_p = jnp.where(is_truncated & ~candidates.is_whole, batch.top_p, 1.0)
        token = draw_from_vocabulary(logits, row_max(logits), temperature, floor, top_p, words)
        return jnp.where(is_candidate, candidates.token, token)

    return lax.cond(jnp.any(is_drawn & ~is_candidate), draw_others, lambda: candidates.token)


def _with_unknown_floors(
    floor: Float[Array, " S"],
    logits: Float[Array, "S V"],
    batch: SamplingBatch,
    temperature: Float[Array, " S"],
    is_unknown: Bool[Array, " S"],
) -> Float[Array, " S"]:
    columns = (logits, temperature, batch.top_k, batch.min_p, is_unknown)
    return lax.cond(
        jnp.any(is_unknown),
        lambda: jnp.where(is_unknown, each_row(vocabulary_floor, *columns), floor),
        lambda: floor,
    )
