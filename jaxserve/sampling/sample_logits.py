"""Device: from a step's logits to its tokens."""

from jax import Array
from jaxtyping import Bool, Float, Int32

from jaxserve.sampling.draw import is_bad, sample
from jaxserve.sampling.logit_processors import process
from jaxserve.sampling.sampling_batch import SamplingBatch, SlotState


def draw(
    logits: Float[Array, "S V"], batch: SamplingBatch, positions: Int32[Array, " S"], slot_state: SlotState
) -> tuple[Int32[Array, " S"], Bool[Array, " S"]]:
    """(tokens, is_bad) for rows that draw the token at index positions[s] of their sequences.

    logits: raw, rows whole (`by_rows`), padding masked (`processors.mask_padding`). Bad rows had logits that are not
    finite, or no token allowed; their token is some id below V.
    """
    processed = process(logits, batch, positions, slot_state)
    return sample(processed, batch, positions), is_bad(processed)
