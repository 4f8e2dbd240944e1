"""Device: everything that changes logits before a token is drawn, in one fixed order.

Padded ids (`mask_padding`, once, on the raw logits), masks of allowed tokens, edits, penalties. Temperature only scales
distances from the maximum, so it is applied where weights are made (`weights.py`): that saves a pass over the
vocabulary and cannot overflow.

Each change stands behind `lax.cond` on whether any row wants it; for a row that does not, it is the identity bit for
bit, so that batch-mates cannot change a row. XLA lets an untaken `cond` pass its operand through without a copy.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int32

from jaxserve.sampling.batch import SamplingBatch, SlotState
from jaxserve.sampling.counts import read_counts


def mask_padding(logits: Float[Array, "R V"], vocab_size: int) -> Float[Array, "R V"]:
    """Raw logits in float32 with the ids from `vocab_size` on, which only fill the weight's width, at -inf.

    Call it once, where logits are made: it is done in place there, whereas drawing and log-probabilities, which both
    read the result, would each make a copy.
    """
    logits = logits.astype(jnp.float32)
    if vocab_size == logits.shape[1]:
        return logits
    return logits.at[:, vocab_size:].set(-jnp.inf)


def process(
    logits: Float[Array, "S V"],
    batch: SamplingBatch,
    positions: Int32[Array, " S"],
    slots: SlotState,
) -> Float[Array, "S V"]:
    """The logits to draw from; positions[s] is the index of the token to be drawn in its sequence."""
    logits = _if_any(batch.mask_row != 0, lambda x: _apply_masks(x, batch, slots), logits)
    logits = _if_any(batch.has_edits, lambda x: _apply_edits(x, batch, positions, slots), logits)
    return _if_any(batch.has_penalties, lambda x: _apply_penalties(x, batch, slots), logits)


def _if_any(wanted: Bool[Array, " S"], change: Callable[[Array], Array], logits: Float[Array, "S V"]) -> Array:
    return lax.cond(jnp.any(wanted), change, lambda x: x, logits)


def _apply_masks(logits: Float[Array, "S V"], batch: SamplingBatch, slots: SlotState) -> Float[Array, "S V"]:
    words = slots.mask_rows.at[batch.mask_row].get(mode="clip")
    bits = words[:, :, None] >> jnp.arange(32, dtype=jnp.uint32)[None, None, :] & jnp.uint32(1)
    is_allowed = bits.reshape(len(words), -1)[:, : logits.shape[1]] != 0
    return jnp.where(is_allowed, logits, -jnp.inf)


def _apply_edits(
    logits: Float[Array, "S V"], batch: SamplingBatch, positions: Int32[Array, " S"], slots: SlotState
) -> Float[Array, "S V"]:
    until = slots.edit_until.at[batch.slot].get(mode="clip")
    is_active = batch.has_edits[:, None] & (positions[:, None] < until)
    ids = jnp.where(is_active, slots.edit_ids.at[batch.slot].get(mode="clip"), logits.shape[1])
    bias = slots.edit_bias.at[batch.slot].get(mode="clip")
    return logits.at[jnp.arange(len(logits))[:, None], ids].add(bias, mode="drop")


def _apply_penalties(logits: Float[Array, "S V"], batch: SamplingBatch, slots: SlotState) -> Float[Array, "S V"]:
    """Repetition (CTRL, Keskar et al., 2019, section 4.1) over prompt and output; the other two over the output."""

    def column(penalty: Float[Array, " S"], neutral: float) -> Float[Array, "S 1"]:
        return jnp.where(batch.has_penalties, penalty, neutral)[:, None]

    times, is_seen = read_counts(slots.counts, batch.slot)
    repetition = jnp.where(is_seen, column(batch.repetition_penalty, 1.0), 1.0)
    logits = jnp.where(logits > 0, logits / repetition, logits * repetition)
    logits = logits - column(batch.frequency_penalty, 0.0) * times
    return logits - column(batch.presence_penalty, 0.0) * (times > 0).astype(jnp.float32)
