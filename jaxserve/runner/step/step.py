"""Device: `step`, the jitted function from (weights, state, buffer) to (state, output) that runs prefill, decode, mixed
and verify batches."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Int32

from jaxserve.core.row_layout import ROW_INDEX
from jaxserve.kv.page_copies import copy_pages
from jaxserve.models.params import Params
from jaxserve.runner.device_state import DeviceState, features_before
from jaxserve.runner.drafts.proposer import ReadTokens
from jaxserve.runner.step.batch_layout import BatchLayout
from jaxserve.runner.step.decode_loop import run_decode_rounds
from jaxserve.runner.step.device_batch import DeviceBatch, StepInputs, first_inputs
from jaxserve.runner.step.draw import score_states
from jaxserve.runner.step.forward_pass import Drawn, run_pass, whole_batch
from jaxserve.runner.step.prompt_outputs import pooled_states, prompt_logprobs
from jaxserve.runner.step.step_output import ExtraOutputs, pack_output
from jaxserve.runner.step.step_settings import StepSettings
from jaxserve.runner.step.step_sharding import keep_sharding, replicate
from jaxserve.runner.step.tapped_tokens import (
    RoundTaps,
    no_taps,
    of_round,
    read_rounds,
    read_tapped,
    with_features,
)
from jaxserve.runner.step.verify_step import verify_step
from jaxserve.sampling.slot_state import fork_slots


def step(
    settings: StepSettings, layout: BatchLayout, params: Params, state: DeviceState, buffer: Int32[Array, "B"]
) -> tuple[DeviceState, Int32[Array, "O"], ExtraOutputs]:
    """Run a batch: write its keys and values, draw a token for each row that samples, keep both on the device.

    A decode or verify bucket repeats this for as many rounds as its rows are planned for (multi-step decoding).
    """
    if layout.bucket.is_verify:
        return verify_step(settings, layout, params, state, buffer)
    if layout.bucket.is_decode:
        return _decode(settings, layout, params, state, buffer)
    batch = whole_batch(settings, layout, buffer, first_inputs(layout, buffer, state))
    all_active = jnp.ones_like(batch.heads.samples)
    state, drawn, states = run_pass(settings, params, state, batch, all_active, resets=batch.starts == 0)
    state, features = read_tapped(settings, params, state, states.tapped)
    state = with_features(settings, state, features, batch.heads.tokens, batch.slots)
    state = _advanced(state, batch, drawn, all_active)
    if settings.proposer is not None:
        read = ReadTokens(batch.tokens, batch.positions, batch.slots, batch.starts, batch.kv_lens, batch.metas)
        state = settings.proposer.read(params, state, read)
    num_tokens = batch.heads.samples.astype(jnp.int32)
    output = pack_output(jnp.int32(1), num_tokens, drawn.tokens[None], drawn.is_bad[None])
    scored = prompt_logprobs(partial(score_states, settings, params), batch, states.hidden, settings.max_logprobs)
    return state, output, ExtraOutputs(drawn.logprobs, scored, pooled_states(batch, states.hidden))


def _decode(
    settings: StepSettings, layout: BatchLayout, params: Params, state: DeviceState, buffer: Int32[Array, "B"]
) -> tuple[DeviceState, Int32[Array, "O"], ExtraOutputs]:
    def advance(
        state: DeviceState, inputs: StepInputs, is_active: jax.Array
    ) -> tuple[DeviceState, Drawn, RoundTaps | None]:
        state, inputs, is_active = keep_sharding(settings, state), *replicate(settings, (inputs, is_active))
        batch = whole_batch(settings, layout, buffer, inputs)
        state, drawn, states = run_pass(settings, params, state, batch, is_active)
        kept = None if taps is None else of_round(states.tapped)
        if kept is None:
            state, features = read_tapped(settings, params, state, states.tapped)
            state = with_features(settings, state, features, batch.heads.tokens, jnp.where(is_active, slots, -1))
        state = _advanced(state, batch, drawn, is_active)
        return keep_sharding(settings, state), *replicate(settings, (drawn, kept))

    inputs = first_inputs(layout, buffer, state)
    slots = layout.split(buffer)["rows"][:, ROW_INDEX["slot"]]
    before = None if state.features is None else features_before(state, slots, inputs.starts)
    taps = no_taps(settings, layout)
    state, rounds = run_decode_rounds(advance, layout, buffer, state, inputs, settings.max_logprobs, taps)
    if rounds.taps is not None and before is not None:
        counts = rounds.num_rounds, rounds.num_tokens
        state = read_rounds(settings, params, state, rounds.taps, before, counts, slots)
    output = pack_output(rounds.num_rounds, rounds.num_tokens, rounds.tokens, rounds.is_bad)
    return state, output, ExtraOutputs(rounds.logprobs.reshape(-1), None, None)


def _advanced(state: DeviceState, batch: DeviceBatch, drawn: Drawn, is_active: Bool[Array, "S"]) -> DeviceState:
    """The state after all tokens of the batch and, where rows sample, the drawn ones."""
    samples = batch.heads.samples & is_active
    last_tokens = jnp.where(samples, drawn.tokens, state.last_tokens[batch.slots])
    # What a slot's former sequence had is not this one's.
    draft_lens = None if state.draft_lens is None else state.draft_lens.at[batch.slots].min(batch.starts)
    return replace(
        state,
        last_tokens=state.last_tokens.at[batch.slots].set(last_tokens),
        lengths=state.lengths.at[batch.slots].set(batch.kv_lens),
        draft_lens=draft_lens,
    )


def fork(
    mesh: Mesh,
    state: DeviceState,
    src_pages: Int32[Array, "C"],
    dst_pages: Int32[Array, "C"],
    src_slots: Int32[Array, "F"],
    dst_slots: Int32[Array, "F"],
) -> DeviceState:
    """Copy the partial pages and slot state of forked sequences; pairs of page 0 or of scratch slots are padding."""

    def forked(columns: jax.Array | None) -> jax.Array | None:
        return None if columns is None else columns.at[dst_slots].set(columns[src_slots])

    return replace(
        state,
        kv=copy_pages(mesh, state.kv, src_pages, dst_pages),
        slots=fork_slots(state.slots, src_slots, dst_slots),
        lengths=forked(state.lengths),
        history=forked(state.history),
        features=forked(state.features),
        draft_lens=forked(state.draft_lens),
    )
