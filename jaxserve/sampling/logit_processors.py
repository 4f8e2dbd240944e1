"""Device: logit processors in one fixed order: padding mask, allowed tokens, edits (biases, bans), penalties.

`mask_padding` runs once, on the raw logits. Temperature only scales distances from the maximum, so it is applied where
weights are computed (`probabilities.py`): that saves a pass over the vocabulary and cannot overflow.

Masks are one pass over all rows: grammars mask most rows of a batch. Rows with edits or penalties are changed one after
the other, in place, and no other row is touched: rows are independent, the cost grows with the rows that have any, and
the temporaries are a few rows. (All rows at once took libtpu 20 s to compile, and six arrays as large as the logits.)
Where no row has a processor, `lax.cond` passes the logits through without a copy.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int32, UInt32

from jaxserve.sampling.penalty_counts import read_counts
from jaxserve.sampling.sampling_batch import SamplingBatch
from jaxserve.sampling.slot_state import SlotState


def mask_padding(logits: Float[Array, "R V"], vocab_size: int) -> Float[Array, "R V"]:
    """Raw logits in float32, with -inf at the padding ids from `vocab_size` on.

    Call it once, where logits are computed: there XLA does it in place; elsewhere it would copy them.
    """
    logits = logits.astype(jnp.float32)
    if vocab_size == logits.shape[1]:
        return logits
    return logits.at[:, vocab_size:].set(-jnp.inf)


@jax.named_scope("process")
def process_logits(
    logits: Float[Array, "S V"],
    batch: SamplingBatch,
    positions: Int32[Array, " S"],
    slots: SlotState,
) -> Float[Array, "S V"]:
    """The logits to draw from; positions[s] is the index of the next token in its sequence."""
    is_changed = batch.has_own_processor
    (changed,) = jnp.nonzero(is_changed, size=len(logits), fill_value=0)

    def change_one(i: Array, logits: Array) -> Array:
        row = changed[i]

        def of_row(column: Array) -> Array:
            return column[row]

        one: SamplingBatch = jax.tree.map(of_row, batch)

        def edit(z: Array) -> Array:
            return _apply_edits(z, one.slot, positions[row], slots)

        def penalize(z: Array) -> Array:
            return _apply_penalties(z, one, slots)

        z: Array = lax.dynamic_index_in_dim(logits, row, keepdims=False)
        z = lax.cond(one.has_edits, edit, _unchanged, z)
        z = lax.cond(one.has_penalties, penalize, _unchanged, z)
        return lax.dynamic_update_index_in_dim(logits, z, row, axis=0)

    def mask(logits: Array) -> Array:
        return _apply_masks(logits, batch.mask_row, slots)

    def change_rows(logits: Array) -> Array:
        return lax.fori_loop(0, jnp.sum(is_changed), change_one, logits)

    is_masked = jnp.any(batch.mask_row != 0)

    def mask_if_asked(logits: Array) -> Array:
        return lax.cond(is_masked, mask, _unchanged, logits)

    def mask_in_place(logits: Array) -> Array:
        return lax.fori_loop(0, is_masked.astype(jnp.int32), lambda _, z: mask(z), logits)

    def process(logits: Array) -> Array:
        # On a GPU a condition would make a second array of logits, 33 MB for 64 rows of Llama 3, and on a TPU7x a loop
        # of one turn or none would make one and a half (jaxlib 0.11.2, libtpu 0.0.48).
        logits = lax.platform_dependent(logits, cuda=mask_in_place, default=mask_if_asked)
        return lax.cond(jnp.any(is_changed), change_rows, _unchanged, logits)

    return lax.cond(jnp.any(batch.has_processor), process, _unchanged, logits)


def _unchanged(x: Array) -> Array:
    return x


def _apply_masks(logits: Float[Array, "S V"], mask_rows: Int32[Array, " S"], slots: SlotState) -> Float[Array, "S V"]:
    words = slots.mask_rows[mask_rows]
    # On a TPU7x the array of all bits would be transposed, in 67 MB for 64 rows of Llama 3; on a CPU its parts one by
    # one take ten times as long.
    bits = lax.platform_dependent(words, tpu=_bits_in_parts, default=_bits_at_once)
    return jnp.where(bits[:, : logits.shape[1]] & jnp.uint32(1) != 0, logits, -jnp.inf)


def _bits_at_once(words: UInt32[Array, "S W"]) -> UInt32[Array, "S 32*W"]:
    """The lowest bits of all words, then the next ones, …; only the lowest bit of each result counts."""
    shifts = jnp.arange(32, dtype=jnp.uint32)
    return (words[:, None, :] >> shifts[None, :, None]).reshape(len(words), -1)


def _bits_in_parts(words: UInt32[Array, "S W"]) -> UInt32[Array, "S 32*W"]:
    """The same."""
    return jnp.concatenate([words >> jnp.uint32(bit) for bit in range(32)], axis=1)


def _apply_edits(
    z: Float[Array, " V"], slot: Int32[Array, ""], position: Int32[Array, ""], slots: SlotState
) -> Float[Array, " V"]:
    ids, bias, until = (
        lax.dynamic_index_in_dim(column, slot, keepdims=False)
        for column in (slots.edit_ids, slots.edit_bias, slots.edit_until)
    )
    return z.at[jnp.where(position < until, ids, len(z))].add(bias, mode="drop")


def _apply_penalties(z: Float[Array, " V"], row: SamplingBatch, slots: SlotState) -> Float[Array, " V"]:
    """Repetition penalty (CTRL, Keskar et al., 2019, section 4.1) over prompt and output, the others over the output.

    row: the sampling columns of one row.
    """
    times, is_seen = read_counts(slots.counts, row.slot)
    if row.drafts is not None:
        drafted = jnp.zeros_like(times).at[row.drafts].add(1.0, mode="drop")
        times, is_seen = times + drafted, is_seen | (drafted > 0)
    repetition = jnp.where(is_seen, row.repetition_penalty, 1.0)
    z = jnp.where(z > 0, z / repetition, z * repetition)
    return z - row.frequency_penalty * times - row.presence_penalty * (times > 0).astype(jnp.float32)
