"""Device: `SlotState`, the sampling state of each slot: penalty counts, masks of allowed tokens, logit edits.

A slot is a sequence's row in device state. There is one slot more than there are sequences: the last, the *scratch
slot*, takes the writes of padding rows.
"""

import dataclasses
from typing import no_type_check

import jax.numpy as jnp
from flax import struct
from jax import Array, lax
from jaxtyping import Float, Int, Int16, Int32, UInt32

MASKS_AT_ONCE = 32  # whose bits are computed; with 16 a CPU takes three times as long for 32


@no_type_check
@struct.dataclass
class SlotState:
    """L = slots including the scratch slot, V = padded vocabulary, M = mask rows, W = mask words, E = edits of a slot.

    counts: occurrences of a token in a sequence's output, plus IN_PROMPT (`penalty_counts.py`) where it is in the
    prompt. mask_rows: bit i // W of word i % W allows token i (the bits of 128 neighbours lie in 128 lanes); row 0
    allows every token, the last one takes the writes of padding, and the host says which slot reads which of the
    others. edit_ids, edit_bias, edit_until: `logits[id] += bias` while the drawn position is below `until`; id V: no
    edit.
    """

    counts: Int16[Array, "L V"]
    mask_rows: UInt32[Array, "M W"]
    edit_ids: Int32[Array, "L E"]
    edit_bias: Float[Array, "L E"]
    edit_until: Int32[Array, "L E"]


def num_mask_words(vocab_width: int) -> int:
    """W: whole registers of a TPU, so that the 32 planes of bits lie side by side without being moved."""
    return -(-vocab_width // (32 * 128)) * 128


def init_slot_state(num_slots: int, vocab_width: int, num_edits: int, num_draft_masks: int = 0) -> SlotState:
    """State for `num_slots` sequences and the scratch slot: zero counts, every token allowed, no edits.

    num_draft_masks: mask rows in addition to one for each slot.
    """
    lines = num_slots + 1
    return SlotState(
        counts=jnp.zeros((lines, vocab_width), jnp.int16),
        mask_rows=jnp.full((lines + 1 + num_draft_masks, num_mask_words(vocab_width)), 0xFFFFFFFF, jnp.uint32),
        edit_ids=jnp.full((lines, num_edits), vocab_width, jnp.int32),
        edit_bias=jnp.zeros((lines, num_edits), jnp.float32),
        edit_until=jnp.zeros((lines, num_edits), jnp.int32),
    )


def set_edits(
    state: SlotState,
    slots: Int[Array, " N"],
    ids: Int32[Array, "N E"],
    bias: Float[Array, "N E"],
    until: Int32[Array, "N E"],
) -> SlotState:
    """Replace all edits of these slots; pad with id V, which is dropped."""
    return dataclasses.replace(
        state,
        edit_ids=state.edit_ids.at[slots].set(ids),
        edit_bias=state.edit_bias.at[slots].set(bias),
        edit_until=state.edit_until.at[slots].set(until),
    )


def set_mask(state: SlotState, rows: Int[Array, " N"], masks: UInt32[Array, "N U"]) -> SlotState:
    """Replace rows of allowed tokens; row 0 must not change. Pad with the last row.

    masks: bit i % 32 of word i // 32 allows token i. Some rows at a time: the bits of 256 rows of Llama 3's vocabulary
    took 529 MB on a TPU.
    """
    num_words = state.mask_rows.shape[1]
    shifts = jnp.arange(32, dtype=jnp.uint32)

    def words_of(mask: UInt32[Array, " U"]) -> UInt32[Array, " W"]:
        bits = (mask[:, None] >> shifts[None, :] & jnp.uint32(1)).ravel()
        planes = jnp.pad(bits, (0, 32 * num_words - len(bits))).reshape(32, num_words) << shifts[:, None]
        return jnp.sum(planes, axis=0, dtype=jnp.uint32)

    words: Array = lax.map(words_of, masks, batch_size=MASKS_AT_ONCE)
    return dataclasses.replace(state, mask_rows=state.mask_rows.at[rows].set(words))


def fork_slots(state: SlotState, src: Int32[Array, " F"], dst: Int32[Array, " F"]) -> SlotState:
    """Copy counts and edits of each slot `src[i]` to `dst[i]`. Pad both with the scratch slot.

    One slot at a time, in place: a gather and a scatter would hold F lines of counts.
    """

    def copy_one(i: Array, state: SlotState) -> SlotState:
        def copy(lines: Array) -> Array:
            line: Array = lax.dynamic_index_in_dim(lines, src[i])
            return lax.dynamic_update_index_in_dim(lines, line, dst[i], axis=0)

        return dataclasses.replace(
            state,
            counts=copy(state.counts),
            edit_ids=copy(state.edit_ids),
            edit_bias=copy(state.edit_bias),
            edit_until=copy(state.edit_until),
        )

    return lax.fori_loop(0, len(src), copy_one, state)
