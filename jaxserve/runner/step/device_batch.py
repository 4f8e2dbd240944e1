"""Device: `DeviceBatch`, a step's buffer unpacked and completed by what only the device knows."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32

from jaxserve.core.row_layout import ROW_INDEX
from jaxserve.models.attention_plan import kind_meta
from jaxserve.runner.device_state import DeviceState
from jaxserve.runner.step.pack import BatchLayout
from jaxserve.sampling.sampling_batch import SamplingBatch, read_rows
from pallas_kernels.paged_attention.batch_meta import AttentionMeta


class StepInputs(NamedTuple):
    """What a batch begins with: the position of each row's first token, and all tokens."""

    starts: Int32[Array, "S"]
    tokens: Int32[Array, "T"]


class DeviceBatch(NamedTuple):
    """One batch's arrays. Row order as planned; `last` is each row's last token, where it draws."""

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
    """Rows in flight at planning time (start -1, token -1) continue from the slot's length and last token.

    They have one token each, so token t of such a row is t == row.
    """
    parts = layout.split(buffer)
    rows, tokens = parts["rows"], parts["tokens"]
    slots, starts = rows[:, ROW_INDEX["slot"]], rows[:, ROW_INDEX["start"]]
    first = tokens[: len(slots)]
    first = jnp.where(first < 0, state.last_tokens[slots], first)
    return StepInputs(jnp.where(starts < 0, state.lengths[slots], starts), tokens.at[: len(slots)].set(first))


@jax.named_scope("unpack")
def unpack(layout: BatchLayout, buffer: Int32[Array, "B"], inputs: StepInputs) -> DeviceBatch:
    """All that the step's functions read."""
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
