"""Device: one forward pass of a step: tokens are counted and recorded, their KV is written, and tokens are drawn."""

from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jaxtyping import Array, Bool, Float, Int32

from jaxserve.core.hardware.mesh import replicated
from jaxserve.kv.kv_state import PAGES_SPEC, KVState
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
from jaxserve.sampling.penalty_counts import update_counts


class Drawn(NamedTuple):
    """A token for each of the R sampled positions. logprobs: packed, O = R·(2 + 2k)."""

    tokens: Int32[Array, "R"]
    is_bad: Bool[Array, "R"]
    logprobs: Int32[Array, "O"]


class TokenStates(NamedTuple):
    """What a pass has computed of each token: the hidden state after the final norm, and for a proposer that has
    `tap_layers` the features."""

    hidden: Float[Array, "T D"]
    features: Float[Array, "T F"] | None


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
    """The state but for lengths and last tokens; inactive rows rewrite identical KV: a no-op.

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
    hidden, pool, tapped = forward(ctx, settings.model.config, params, *inputs, state.kv.pool, tap_layers=taps)
    state, features = replace(state, kv=replace(state.kv, pool=pool)), None
    width = len(batch.heads.samples) // len(is_active)  # sampled positions of a row
    # A row that has ended keeps the state after its last token: its first node may lie before that.
    last_slots = jnp.where(is_active, batch.slots, len(state.last_hidden) - 1)
    last = batch.heads.tokens[::width]
    last_hidden = state.last_hidden.at[last_slots].set(replicate(settings, hidden[last]))
    if settings.proposer is not None and taps:
        read = _tapped(settings.model.page_size, tapped, batch, is_read, previous)
        state, features = settings.proposer.read_taps(params, state, read)
        assert state.features is not None
        of_last = replicate(settings, features[last])
        state = replace(state, features=state.features.at[last_slots].set(of_last))
    is_active = jnp.repeat(is_active, width)
    heads = batch.heads._replace(samples=batch.heads.samples & is_active)
    tokens, is_bad, logprobs = draw(settings, params, heads, hidden, slots, drafts)
    state = replace(
        state,
        slots=slots,
        last_hidden=last_hidden,
        history=_history(state, batch, is_recorded),
    )
    return state, Drawn(tokens, is_bad & heads.samples, pack_logprobs(logprobs)), TokenStates(hidden, features)


def _tapped(
    page_size: int,
    taps: Float[Array, "A T D"],
    batch: DeviceBatch,
    is_read: Bool[Array, "T"],
    previous: Int32[Array, "T"] | None,
) -> TappedTokens:
    meta, token = batch.metas[0], jnp.arange(len(batch.tokens), dtype=jnp.int32)
    if previous is None:
        previous = jnp.where(token == meta.cu_q_lens[batch.token_rows], -1, token - 1)
    scratch = token % page_size
    return TappedTokens(
        taps,
        batch.tokens,
        batch.positions,
        previous,
        batch.token_rows,
        batch.slots,
        batch.starts,
        tuple(jnp.where(is_read[None], meta.write_slots, scratch[None]) for meta in batch.metas),
        meta.cu_q_lens[meta.num_seqs],
    )


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


def keep_sharding(settings: StepSettings, state: DeviceState) -> DeviceState:
    """Constrain the state to its sharding between steps.

    XLA alone shards a loop's carry by rows and vocabulary: devices then exchange all penalty counts in every decode
    round, 587 MB for 256 rows of Llama 3 8B on four chips.
    """
    kv: KVState = lax.with_sharding_constraint(state.kv, NamedSharding(settings.model.mesh, PAGES_SPEC))
    return replace(replicate(settings, replace(state, kv=None)), kv=kv)


def replicate[T](settings: StepSettings, tree: T) -> T:
    """Whole on every device."""
    return lax.with_sharding_constraint(tree, replicated(settings.model.mesh))
