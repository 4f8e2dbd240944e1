"""Device: `DeviceBatch`, a step's input buffer unpacked and completed from device state."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32

from jaxserve.core.row_layout import ROW_INDEX
from jaxserve.models.attention_metadata import kind_meta
from jaxserve.runner.device_state import DeviceState
from jaxserve.runner.step.batch_layout import BatchLayout
from jaxserve.sampling.sampling_batch import SamplingBatch, read_rows
from pallas_kernels.paged_attention.batch_meta import AttentionMeta


class StepInputs(NamedTuple):
    """The position of each row's first token, and the tokens of all rows."""

    starts: Int32[Array, "S"]
    tokens: Int32[Array, "T"]


class DeviceBatch(NamedTuple):
    """One batch's arrays, rows in planned order. last: index of each row's last token, whose logits it draws from."""

    tokens: Int32[Array, "T"]
    positions: Int32[Array, "T"]
    token_rows: Int32[Array, "T"]
    is_token: Bool[Array, "T"]  # False: padding
    targets: Int32[Array, "T"] | None
    slots: Int32[Array, "S"]
    starts: Int32[Array, "S"]
    kv_lens: Int32[Array, "S"]
    last: Int32[Array, "S"]
    samples: Bool[Array, "S"]
    sampling: SamplingBatch
    metas: tuple[AttentionMeta, ...]


@jax.named_scope("unpack")
def first_inputs(layout: BatchLayout, buffer: Int32[Array, "B"], state: DeviceState) -> StepInputs:
    """Inputs from the buffer and, for rows in flight at planning time (start -1, token -1), from their slots.

    Such a row continues at its slot's length with its last token. It has one token, whose index is the row's.
    """
    parts = layout.split(buffer)
    rows, tokens = parts["rows"], parts["tokens"]
    slots, starts = rows[:, ROW_INDEX["slot"]], rows[:, ROW_INDEX["start"]]
    first = tokens[: len(slots)]
    first = jnp.where(first < 0, state.last_tokens[slots], first)
    return StepInputs(jnp.where(starts < 0, state.lengths[slots], starts), tokens.at[: len(slots)].set(first))


@jax.named_scope("unpack")
def unpack(layout: BatchLayout, buffer: Int32[Array, "B"], inputs: StepInputs) -> DeviceBatch:
    """The arrays of a batch by name."""
    parts = layout.split(buffer)
    rows = parts["rows"]
    column = {name: rows[:, i] for name, i in ROW_INDEX.items()}
    starts, tokens = inputs
    kv_lens = starts + column["query_len"]
    cu_q_lens = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(column["query_len"], dtype=jnp.int32)])
    num_seqs, num_decodes = parts["header"]

    metas = tuple(
        kind_meta(
            parts[f"tables{k}"],
            parts[f"first_pages{k}"],
            cu_q_lens=cu_q_lens,
            kv_lens=kv_lens,
            num_seqs=num_seqs,
            num_decodes=num_decodes,
            num_tokens=layout.bucket.num_tokens,
            page_size=layout.groups.page_size,
        )
        for k in range(len(layout.kinds))
    )
    return DeviceBatch(
        tokens=tokens,
        positions=metas[0].kv_positions,
        token_rows=metas[0].rows,
        is_token=jnp.arange(len(tokens)) < cu_q_lens[-1],
        targets=parts.get("targets"),
        slots=column["slot"],
        starts=starts,
        kv_lens=kv_lens,
        last=jnp.maximum(cu_q_lens[1:] - 1, 0),
        samples=column["samples"] > 0,
        sampling=read_rows(rows),
        metas=metas,
    )
