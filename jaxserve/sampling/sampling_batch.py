"""Device: what sampling knows of each row (`SamplingBatch`) and keeps for each slot (`SlotState`).

A slot is a sequence's row in device state. There is one more than there are sequences: the last, the *scratch slot*,
takes the writes of padding rows.
"""

import dataclasses
import typing

import jax.numpy as jnp
from flax import struct
from jax import Array, lax
from jaxtyping import Bool, Float, Int, Int16, Int32, UInt32

from jaxserve.core.row_layout import FLOAT_FIELDS, ROW_INDEX


@typing.no_type_check  # jax rebuilds pytrees with leaves that are not arrays; the jaxtyping hook would refuse them
@struct.dataclass
class SamplingBatch:
    """The sampling columns of a batch by name, one entry a row (see `core.fields`).

    Everything that a row's token depends on, besides its logits and position, stands in its own entries and its slot.
    """

    slot: Int32[Array, " S"]
    temperature: Float[Array, " S"]  # 0: greedy
    top_p: Float[Array, " S"]  # 1: off
    min_p: Float[Array, " S"]  # 0: off
    presence_penalty: Float[Array, " S"]
    frequency_penalty: Float[Array, " S"]
    repetition_penalty: Float[Array, " S"]
    top_k: Int32[Array, " S"]  # 0: off
    seed_low: UInt32[Array, " S"]
    seed_high: UInt32[Array, " S"]
    sample_index: Int32[Array, " S"]
    prompt_len: Int32[Array, " S"]
    num_logprobs: Int32[Array, " S"]
    num_prompt_logprobs: Int32[Array, " S"]
    has_penalties: Bool[Array, " S"]
    has_edits: Bool[Array, " S"]
    mask_row: Int32[Array, " S"]  # 0: every token is allowed
    pooling: Int32[Array, " S"]  # core.fields.POOLING


def read_rows(rows: Int32[Array, "S C"]) -> SamplingBatch:
    """Name the columns of packed rows, C = len(ROW_FIELDS); floats travel as their bit patterns."""
    columns = {field.name: rows[:, ROW_INDEX[field.name]] for field in dataclasses.fields(SamplingBatch)}
    for name in FLOAT_FIELDS:
        columns[name] = lax.bitcast_convert_type(columns[name], jnp.float32)
    for name in ("seed_low", "seed_high"):
        columns[name] = lax.bitcast_convert_type(columns[name], jnp.uint32)
    for name in ("has_penalties", "has_edits"):
        columns[name] = columns[name] != 0
    return SamplingBatch(**columns)


@typing.no_type_check
@struct.dataclass
class SlotState:
    """What sampling keeps on the device for each slot; L = slots with the scratch slot, V = padded vocabulary.

    counts: how often a sequence's output holds a token, plus IN_PROMPT (`penalty_counts.py`) where its prompt does.
    mask_rows: bit i % 32 of word i // 32 allows token i; row 0 allows every token, row `slot + 1` is the slot's.
    edit_ids, edit_bias, edit_until: `logits[id] += bias` while the position drawn is below `until`; id V: no edit.
    """

    counts: Int16[Array, "L V"]
    mask_rows: UInt32[Array, "L+1 W"]
    edit_ids: Int32[Array, "L E"]
    edit_bias: Float[Array, "L E"]
    edit_until: Int32[Array, "L E"]


def init_slot_state(num_slots: int, vocab_width: int, num_edits: int) -> SlotState:
    """State for `num_slots` sequences and the scratch slot: nothing counted, everything allowed, no edits."""
    lines = num_slots + 1
    return SlotState(
        counts=jnp.zeros((lines, vocab_width), jnp.int16),
        mask_rows=jnp.full((lines + 1, -(-vocab_width // 32)), 0xFFFFFFFF, jnp.uint32),
        edit_ids=jnp.full((lines, num_edits), vocab_width, jnp.int32),
        edit_bias=jnp.zeros((lines, num_edits), jnp.float32),
        edit_until=jnp.zeros((lines, num_edits), jnp.int32),
    )


def set_edits(
    state: SlotState,
    slot: Int[Array, ""],
    ids: Int32[Array, " E"],
    bias: Float[Array, " E"],
    until: Int32[Array, " E"],
) -> SlotState:
    """Replace all edits of one slot; fill up with id V, which is dropped."""
    return dataclasses.replace(
        state,
        edit_ids=state.edit_ids.at[slot].set(ids),
        edit_bias=state.edit_bias.at[slot].set(bias),
        edit_until=state.edit_until.at[slot].set(until),
    )


def set_mask(state: SlotState, row: Int[Array, ""], mask: UInt32[Array, " W"]) -> SlotState:
    """Replace one row of allowed tokens; row 0 must stay as it is."""
    return dataclasses.replace(state, mask_rows=state.mask_rows.at[row].set(mask))


def fork_slots(state: SlotState, src: Int32[Array, " F"], dst: Int32[Array, " F"]) -> SlotState:
    """Give each slot `dst[i]` what `src[i]` has: counts, edits and its mask row. Pad both with the scratch slot.

    One line at a time: the state is updated in place, where a gather and a scatter would hold F lines of counts.
    """

    def copy_one(i: Array, state: SlotState) -> SlotState:
        def copy(lines: Array, offset: int = 0) -> Array:
            line = lax.dynamic_index_in_dim(lines, src[i] + offset)
            return lax.dynamic_update_index_in_dim(lines, line, dst[i] + offset, axis=0)

        return SlotState(
            counts=copy(state.counts),
            mask_rows=copy(state.mask_rows, offset=1),
            edit_ids=copy(state.edit_ids),
            edit_bias=copy(state.edit_bias),
            edit_until=copy(state.edit_until),
        )

    return lax.fori_loop(0, len(src), copy_one, state)
