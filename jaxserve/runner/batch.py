"""Device: `DeviceBatch`, a step's buffer unpacked and completed by what only the device knows."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32

from jaxserve.core.fields import ROW_INDEX
from jaxserve.models.batch_meta import kind_meta
from jaxserve.runner.pack import BatchLayout
from jaxserve.runner.state import DeviceState
from jaxserve.sampling.batch import SamplingBatch, read_rows
from pallas_kernels.paged_attention.meta import AttentionMeta


class DeviceBatch(NamedTuple):
    """One step's arrays. Row order as planned; `last` is each row's last token, where it draws."""

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


def unpack(layout: BatchLayout, buffer: Int32[Array, "B"], state: DeviceState) -> DeviceBatch:
    """Rows in flight at planning time (start -1, token -1) continue from the slot's length and last token."""
    parts = layout.split(buffer)
    rows = parts["rows"]
    column = {name: rows[:, i] for name, i in ROW_INDEX.items()}
    slots = column["slot"]
    starts = jnp.where(column["start"] < 0, state.lengths[slots], column["start"])
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
    token_rows = metas[0].rows
    tokens = parts["tokens"]
    return DeviceBatch(
        tokens=jnp.where(tokens < 0, state.last_tokens[slots[token_rows]], tokens),
        positions=metas[0].kv_positions,
        token_rows=token_rows,
        is_token=jnp.arange(len(tokens)) < cu_q_lens[-1],
        targets=parts.get("targets"),
        slots=slots,
        starts=starts,
        kv_lens=kv_lens,
        last=jnp.maximum(cu_q_lens[1:] - 1, 0),
        samples=column["samples"] > 0,
        sampling=read_rows(rows),
        metas=metas,
    )
