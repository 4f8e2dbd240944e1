"""Device: one forward pass of a step: tokens are counted and recorded, their KV is written, and tokens are drawn."""

from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32

from jaxserve.models.params import Params
from jaxserve.models.transformer import forward
from jaxserve.runner.device_state import DeviceState
from jaxserve.runner.drafts.draft_tree import Drafts
from jaxserve.runner.drafts.proposer import TappedTokens
from jaxserve.runner.step.batch_layout import BatchLayout
from jaxserve.runner.step.device_batch import DeviceBatch, StepInputs, unpack
from jaxserve.runner.step.draw import draw
from jaxserve.runner.step.step_output import pack_logprobs
from jaxserve.runner.step.step_settings import StepSettings
from jaxserve.runner.step.step_sharding import replicate
from jaxserve.runner.step.tapped_tokens import tapped_tokens
from jaxserve.sampling.penalty_counts import update_counts
from pallas_kernels.lora_matmul.api import plan
from pallas_kernels.lora_matmul.lora_batch import LoraBatch, RowSpans


class Drawn(NamedTuple):
    """A token for each of the R sampled positions. logprobs: packed, O = R·(2 + 2k)."""

    tokens: Int32[Array, "R"]
    is_bad: Bool[Array, "R"]
    logprobs: Int32[Array, "O"]


class TokenStates(NamedTuple):
    """What a pass has computed of each token: the hidden state after the final norm, and what a proposer that has
    `tap_layers` reads of it (`read_tapped`)."""

    hidden: Float[Array, "T D"]
    tapped: TappedTokens | None


def run_pass(
    settings: StepSettings,
    params: Params,
    state: DeviceState,
    batch: DeviceBatch,
    is_active: Bool[Array, "S"],
    *,
    max_query_len: int | None = None,
    is_recorded: Bool[Array, "T"] | None = None,
    resets: Bool[Array, "S"] | None = None,
    previous: Int32[Array, "T"] | None = None,
    drafts: Drafts | None = None,
) -> tuple[DeviceState, Drawn, TokenStates]:
    """The state but for lengths, last tokens and features; inactive rows rewrite identical KV: a no-op.

    max_query_len: of rows that are all short; None: they may be long. is_recorded: tokens for penalties and history;
    None: all of active rows. resets: as in `update_counts`. previous: as in `TappedTokens`; None: tokens follow each
    other. drafts: of a verify bucket.
    """
    # Tokens are counted when they are read: the same rule serves prompts, drawn tokens and recomputed tokens.
    is_read = batch.is_token & is_active[batch.token_rows]
    is_recorded = is_read if is_recorded is None else is_read & is_recorded
    counts = update_counts(
        state.slots.counts,
        batch.sampling,
        tokens=batch.tokens,
        token_rows=jnp.where(is_recorded, batch.token_rows, len(batch.slots)),
        positions=batch.positions,
        resets=resets,
    )
    slots = replace(state.slots, counts=counts)
    inputs = batch.tokens, batch.positions, batch.metas
    ctx = replace(settings.context, max_query_len=max_query_len)
    taps = () if settings.proposer is None else settings.proposer.tap_layers
    adapters = _adapters(state, batch, max_query_len, is_tiled=settings.tiles is not None)
    hidden, pool, taken = forward(
        ctx, settings.model.config, params, *inputs, state.kv.pool, tap_layers=taps, adapters=adapters
    )
    state = replace(state, kv=replace(state.kv, pool=pool))
    tapped = tapped_tokens(settings, state, batch, taken, is_read, previous) if taps else None
    width = len(batch.heads.samples) // len(is_active)  # sampled positions of a row
    # A row that has ended keeps the state after its last token: its first node may lie before that.
    last_slots = jnp.where(is_active, batch.slots, len(state.last_hidden) - 1)
    last_hidden = state.last_hidden.at[last_slots].set(replicate(settings, hidden[batch.heads.tokens[::width]]))
    is_active = jnp.repeat(is_active, width)
    heads = batch.heads._replace(samples=batch.heads.samples & is_active)
    tokens, is_bad, logprobs = draw(settings, params, heads, hidden, slots, drafts)
    state = replace(
        state,
        slots=slots,
        last_hidden=last_hidden,
        history=_history(state, batch, is_recorded),
    )
    return state, Drawn(tokens, is_bad & heads.samples, pack_logprobs(logprobs)), TokenStates(hidden, tapped)


def _adapters(state: DeviceState, batch: DeviceBatch, max_query_len: int | None, *, is_tiled: bool) -> LoraBatch | None:
    """The adapters of the batch's tokens; None: no row has one. is_tiled: each tile has a batch of its own."""
    if batch.places is None:
        return None
    assert state.adapters is not None
    meta, spans = batch.metas[0], None
    if len(batch.tokens) != len(batch.slots):
        spans = RowSpans(meta.cu_q_lens, meta.num_seqs, meta.num_decodes, max_query_len or len(batch.tokens))
    whole = LoraBatch(batch.places, state.adapters, spans)
    return whole if is_tiled else plan(whole)


def _history(state: DeviceState, batch: DeviceBatch, is_recorded: Bool[Array, "T"]) -> Int32[Array, "slots H"] | None:
    """The history with these of the batch's tokens at their positions."""
    if state.history is None:
        return None
    slots = jnp.where(is_recorded, batch.slots[batch.token_rows], len(state.history) - 1)
    return state.history.at[slots, batch.positions].set(batch.tokens)


def whole_batch(
    settings: StepSettings, layout: BatchLayout, buffer: Int32[Array, "B"], inputs: StepInputs
) -> DeviceBatch:
    """The batch, whole on every device.

    XLA alone divides its columns by rows, as drawing does, and exchanges them where they are used: page tables in every
    layer (160 exchanges in a decode round of Llama 3 8B on four v6e, 71 so), and on TPU7x hidden states, behind two
    products of half of them that each read the whole head.
    """
    return replicate(settings, unpack(layout, buffer, inputs))
