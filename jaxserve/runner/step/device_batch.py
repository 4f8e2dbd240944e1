"""Device: `DeviceBatch`, a step's input buffer unpacked and completed from device state."""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32

from jaxserve.core.row_layout import ROW_INDEX
from jaxserve.models.attention_metadata import kind_meta, without_drops
from jaxserve.runner.device_state import DeviceState
from jaxserve.runner.step.batch_layout import BatchLayout
from jaxserve.sampling.sampling_batch import SamplingBatch, read_rows
from pallas_kernels.paged_attention.batch_meta import AttentionMeta, sequence_positions


class StepInputs(NamedTuple):
    """The position of each row's first token, the number of its tokens, and the tokens of all rows.

    tree: `tree_bits` of rows whose drafts are trees; else None.
    """

    starts: Int32[Array, "S"]
    query_lens: Int32[Array, "S"]
    tokens: Int32[Array, "T"]
    tree: Int32[Array, "S W words"] | None = None


class Heads(NamedTuple):
    """The R sampled positions of a batch: after each row's last token; in verify buckets after each token of a row.

    tokens: indices of those tokens. positions: of the tokens that follow them, in their sequences. samples: a token is
    drawn. sampling: the parameters of their rows.
    """

    tokens: Int32[Array, "R"]
    positions: Int32[Array, "R"]
    samples: Bool[Array, "R"]
    sampling: SamplingBatch


class DeviceBatch(NamedTuple):
    """One batch's arrays, rows in planned order."""

    tokens: Int32[Array, "T"]
    positions: Int32[Array, "T"]
    token_rows: Int32[Array, "T"]
    is_token: Bool[Array, "T"]  # False: padding
    targets: Int32[Array, "T"] | None
    slots: Int32[Array, "S"]
    starts: Int32[Array, "S"]
    kv_lens: Int32[Array, "S"]
    sampling: SamplingBatch
    heads: Heads
    metas: tuple[AttentionMeta, ...]
    places: Int32[Array, "T"] | None  # of the tokens' adapters; None: no row has one


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
    return StepInputs(
        jnp.where(starts < 0, state.lengths[slots], starts),
        rows[:, ROW_INDEX["query_len"]],
        tokens.at[: len(slots)].set(first),
    )


@jax.named_scope("unpack")
def unpack(layout: BatchLayout, buffer: Int32[Array, "B"], inputs: StepInputs) -> DeviceBatch:
    """The arrays of a batch by name."""
    parts = layout.split(buffer)
    rows = parts["rows"]
    starts, query_lens, tokens, tree = inputs
    kv_lens = starts + query_lens
    cu_q_lens = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(query_lens, dtype=jnp.int32)])
    num_seqs, num_decodes, _ = parts["header"]

    def meta_of(k: int) -> AttentionMeta:
        """The metadata of a kind, by indices of KV: positions less the tokens that a row has dropped."""
        first_pages, kept_lens = parts[f"first_pages{k}"], kv_lens
        if layout.has_drops and layout.groups.windows[layout.kinds[k][0]] is None:
            first_pages, kept_lens = without_drops(first_pages, kv_lens, layout.groups.page_size)
        return kind_meta(
            parts[f"tables{k}"],
            first_pages,
            cu_q_lens=cu_q_lens,
            kv_lens=kept_lens,
            num_seqs=num_seqs,
            num_decodes=num_decodes,
            num_tokens=layout.bucket.num_tokens,
            page_size=layout.groups.page_size,
        )

    metas = tuple(map(meta_of, range(len(layout.kinds))))
    if tree is not None:
        node = jnp.arange(len(tokens), dtype=jnp.int32) - cu_q_lens[metas[0].rows]
        bits = tree[metas[0].rows, jnp.minimum(node, tree.shape[1] - 1)]
        metas = tuple(replace(meta, tree=bits) for meta in metas)
    positions = sequence_positions(metas[0])
    if layout.has_drops:
        positions += (kv_lens - metas[0].kv_lens)[metas[0].rows]
    sampling = read_rows(rows)
    is_token = jnp.arange(len(tokens)) < cu_q_lens[-1]
    places = jnp.where(is_token, rows[metas[0].rows, ROW_INDEX["adapter"]], 0) if layout.has_adapters else None
    return DeviceBatch(
        tokens=tokens,
        positions=positions,
        token_rows=metas[0].rows,
        is_token=is_token,
        targets=parts.get("targets"),
        slots=rows[:, ROW_INDEX["slot"]],
        starts=starts,
        kv_lens=kv_lens,
        sampling=sampling,
        heads=_heads(layout, inputs, rows[:, ROW_INDEX["samples"]] > 0, cu_q_lens, positions, sampling),
        metas=metas,
        places=places,
    )


def _heads(
    layout: BatchLayout,
    inputs: StepInputs,
    samples: Bool[Array, "S"],
    cu_q_lens: Int32[Array, "S1"],
    positions: Int32[Array, "T"],
    sampling: SamplingBatch,
) -> Heads:
    last = jnp.maximum(cu_q_lens[1:] - 1, 0)
    if not layout.bucket.is_verify:
        return Heads(last, inputs.starts + inputs.query_lens, samples, sampling)
    width = 1 + layout.bucket.max_drafts
    node = jnp.arange(width, dtype=jnp.int32)[None]

    def by_node(column: jax.Array) -> jax.Array:
        return jnp.repeat(column, width, axis=0)

    tokens = jnp.minimum(cu_q_lens[:-1, None] + node, last[:, None]).reshape(-1)
    return Heads(
        tokens=tokens,
        positions=positions[tokens] + 1,
        samples=(samples[:, None] & (node < inputs.query_lens[:, None])).reshape(-1),
        sampling=jax.tree.map(by_node, sampling),
    )
