"""Device: `SamplingBatch`, the sampling parameters of a batch's rows."""

import dataclasses
from typing import no_type_check

import jax.numpy as jnp
from flax import struct
from jax import Array, lax
from jaxtyping import Bool, Float, Int32, UInt32

from jaxserve.core.row_layout import FLOAT_FIELDS, ROW_INDEX


@no_type_check  # JAX rebuilds pytrees with leaves that are not arrays, which the jaxtyping hook would reject
@struct.dataclass
class SamplingBatch:
    """The sampling columns of a batch by name (`core.row_layout`), one entry per row.

    A row's token depends on its logits, its position, its own entries here and its slot (`SlotState`), nothing else.
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
    pooling: Int32[Array, " S"]  # core.row_layout.POOLING
    drafts: Int32[Array, "S N"] | None = None  # precede the drawn token, not counted yet; ids from V on: none

    @property
    def has_own_processor(self) -> Bool[Array, " S"]:
        """Rows that are changed one by one."""
        return self.has_edits | self.has_penalties

    @property
    def has_processor(self) -> Bool[Array, " S"]:
        return (self.mask_row != 0) | self.has_own_processor


def read_rows(rows: Int32[Array, "S C"]) -> SamplingBatch:
    """Read packed rows by column name; C = len(ROW_FIELDS), floats are stored as bit patterns."""
    names = [field.name for field in dataclasses.fields(SamplingBatch) if field.name in ROW_INDEX]
    columns = {name: rows[:, ROW_INDEX[name]] for name in names}
    for name in FLOAT_FIELDS:
        columns[name] = lax.bitcast_convert_type(columns[name], jnp.float32)
    for name in ("seed_low", "seed_high"):
        columns[name] = lax.bitcast_convert_type(columns[name], jnp.uint32)
    for name in ("has_penalties", "has_edits"):
        columns[name] = columns[name] != 0
    return SamplingBatch(**columns)
