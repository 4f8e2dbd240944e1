"""Host: commit: what a step produced is appended, sequences end, and what nobody needs any more returns."""

from typing import Any

import numpy as np

from jaxserve.core.step_plan import NUM_LOGPROBS_FIELD, Outcome, StepPlan
from jaxserve.core.token_deltas import NO_TOKEN, TokenDeltas
from jaxserve.scheduler.beams import park
from jaxserve.scheduler.memory.page_tables import free_behind_windows
from jaxserve.scheduler.memory.prefix_reuse import keep_prefix
from jaxserve.scheduler.memory.slots import end, release
from jaxserve.scheduler.prompt_logprobs import collect_logprobs, collect_pooled, token_logprobs
from jaxserve.scheduler.state import SchedulerState


def commit(state: SchedulerState, plan: StepPlan, outcome: Outcome) -> TokenDeltas:
    """Record one step; rows whose sequence has ended meanwhile are dropped by their epoch."""
    if not plan.step_id == outcome.step_id == state.num_committed:
        raise ValueError(f"step {state.num_committed} is next: plan {plan.step_id}, outcome {outcome.step_id}")
    state.num_committed += 1
    columns = state.columns
    live = columns.epoch[plan.slots] == plan.epochs
    rows = np.flatnonzero(live)
    slots, samples = plan.slots[rows], plan.samples[rows]
    columns.num_computed[slots] += plan.num_computed[rows]
    if plan.targets is not None and outcome.prompt_logprobs is not None:
        collect_logprobs(state, plan, outcome.prompt_logprobs, live)
    if outcome.pooled is not None:
        collect_pooled(state, plan, outcome.pooled, live)
    drawing, is_beam = rows[samples], columns.is_beam[slots[samples]]
    deltas = _append(state, plan, outcome, drawing[~is_beam] if is_beam.any() else drawing)
    if is_beam.any():
        deltas = deltas.with_ended(park(state, plan, outcome, drawing[is_beam]))
    if not samples.all():
        reading = slots[~samples]
        deltas = _end_prompts(state, deltas, reading[columns.num_computed[reading] >= columns.max_computed[reading]])
    if state.prefixes is not None:
        _keep_prompts(state, plan, live)
    free_behind_windows(state, slots)
    for slot in state.leaving.copy():
        if not state.is_in_flight(slot):
            release(state, slot)
    return deltas


def _append(state: SchedulerState, plan: StepPlan, outcome: Outcome, drawing: np.ndarray) -> TokenDeltas:
    """Append the tokens of the rows `drawing`, each up to its end, and end the sequences that end with them.

    Most steps have one round and end nobody: they are spared what only others need, 30 of 130 us for 64 rows.
    """
    columns, slots = state.columns, plan.slots[drawing]
    occupants = columns.sequences
    sequences: list[Any] = [occupants[slot] for slot in slots.tolist()]
    rounds, lens, ends = np.arange(plan.num_rounds), columns.num_tokens[slots], plan.rounds[drawing]
    tokens, is_bad = outcome.tokens[drawing, : len(rounds)], outcome.is_bad[drawing, : len(rounds)]
    is_stop = (columns.stop_ids[slots][:, None] == tokens[:, :, None]).any(axis=2)
    if is_stop.any():
        is_stop &= (lens[:, None] + rounds >= columns.min_len[slots][:, None]) & ~is_bad
    is_end = is_stop | is_bad | (rounds >= (columns.max_len[slots] - lens - 1)[:, None])
    if is_end.any():
        ends = np.where(is_end.any(axis=1), is_end.argmax(axis=1) + 1, ends)
    state.order.charge_drawn(sequences, ends)
    if len(rounds) == 1:
        rows, places = np.arange(len(slots)), np.zeros(len(slots), np.intp)
        tokens, is_bad, is_end = tokens[:, 0], is_bad[:, 0], is_end[:, 0]
        columns.tokens[slots, lens] = tokens
    else:
        rows, places = np.nonzero(rounds < ends[:, None])  # one entry a token, row by row
        tokens, is_bad, is_end = tokens[rows, places], is_bad[rows, places], is_end[rows, places]
        columns.tokens[slots[rows], lens[rows] + places] = tokens
    columns.num_tokens[slots] += ends
    if is_bad.any():  # each the last of its row, and not one of its tokens
        columns.num_tokens[slots[rows[is_bad]]] -= 1
    if outcome.logprobs is not None:
        num_rounds, wanted = outcome.tokens.shape[1], plan.sampling[drawing, NUM_LOGPROBS_FIELD]
        for i in np.flatnonzero((wanted[rows] >= 0) & ~is_bad).tolist():
            row = rows[i]
            logprobs = sequences[row].logprobs
            assert logprobs is not None
            place = int(drawing[row]) * num_rounds + places[i]
            logprobs.append(token_logprobs(outcome.logprobs, place, wanted[row]))
    for i in np.flatnonzero(is_end).tolist():
        sequence = sequences[rows[i]]
        if is_bad[i]:
            end(state, sequence, "error")
        elif is_stop[rows[i], places[i]]:
            end(state, sequence, "stop", sequence.request.stop_reason(int(tokens[i])))
        else:
            end(state, sequence, "length")
    if len(rows) > len(sequences):
        sequences = [sequences[row] for row in rows.tolist()]
    return TokenDeltas(sequences, np.where(is_bad, NO_TOKEN, tokens), is_end)


def _keep_prompts(state: SchedulerState, plan: StepPlan, live: np.ndarray) -> None:
    """Leave whole pages of chunks to the prefix cache, before windows pass them: others may need them now."""
    columns = state.columns
    for slot in plan.slots[plan.num_decodes :][live[plan.num_decodes :]].tolist():
        if columns.is_running[slot]:  # others leave all that they have when they return their slot
            keep_prefix(state, slot)


def _end_prompts(state: SchedulerState, deltas: TokenDeltas, slots: np.ndarray) -> TokenDeltas:
    """End the sequences that were to draw nothing, their prompts computed, and add them to the deltas."""
    sequences = [state.occupant(slot) for slot in slots.tolist()]
    for sequence in sequences:
        end(state, sequence, "length")
    return deltas.with_ended(sequences)
