"""Host: commit: what a step produced is appended, sequences end, and what nobody needs any more returns."""

import numpy as np

from jaxserve.core.deltas import NO_TOKEN, TokenDeltas
from jaxserve.core.fields import SAMPLING_FIELDS
from jaxserve.core.plan import Outcome, Plan
from jaxserve.scheduler.pages import free_behind_windows
from jaxserve.scheduler.prompt_results import collect_logprobs, collect_pooled, token_logprobs
from jaxserve.scheduler.slots import end, release
from jaxserve.scheduler.state import SchedulerState

NUM_LOGPROBS = SAMPLING_FIELDS.index("num_logprobs")


def commit(state: SchedulerState, plan: Plan, outcome: Outcome) -> TokenDeltas:
    """Record one step; rows whose sequence has ended meanwhile are dropped by their epoch."""
    if not plan.step_id == outcome.step_id == state.num_committed:
        raise ValueError(f"step {state.num_committed} is next: plan {plan.step_id}, outcome {outcome.step_id}")
    state.num_committed += 1
    columns = state.columns
    live = columns.epoch[plan.slots] == plan.epochs
    columns.num_computed[plan.slots[live]] += plan.query_lens[live]
    if plan.targets is not None and outcome.prompt_logprobs is not None:
        collect_logprobs(state, plan, outcome.prompt_logprobs, live)
    if outcome.pooled is not None:
        collect_pooled(state, plan, outcome.pooled, live)
    is_read = live & ~plan.samples & (columns.num_computed[plan.slots] >= columns.max_computed[plan.slots])
    deltas = _append(state, plan, outcome, np.flatnonzero(live & plan.samples))
    deltas = _end_prompts(state, deltas, plan.slots[is_read])
    slots = plan.slots[live]
    free_behind_windows(state, slots[columns.is_running[slots]])
    for slot in state.leaving.copy():
        if not state.is_in_flight(slot):
            release(state, slot)
    return deltas


def _append(state: SchedulerState, plan: Plan, outcome: Outcome, drawing: np.ndarray) -> TokenDeltas:
    """Append the tokens of the rows `drawing` and end the sequences that end with them."""
    columns, slots = state.columns, plan.slots[drawing]
    sequences = [state.occupant(slot) for slot in slots.tolist()]
    is_bad = outcome.is_bad[drawing]
    tokens = np.where(is_bad, NO_TOKEN, outcome.tokens[drawing])
    good = slots[~is_bad]
    columns.tokens[good, columns.num_tokens[good]] = tokens[~is_bad]
    columns.num_tokens[good] += 1
    if outcome.logprobs is not None:
        wanted = plan.sampling[drawing, NUM_LOGPROBS]
        for i in np.flatnonzero((wanted >= 0) & ~is_bad).tolist():
            logprobs = sequences[i].logprobs
            assert logprobs is not None
            logprobs.append(token_logprobs(outcome.logprobs, drawing[i], wanted[i]))

    num_tokens = columns.num_tokens[slots]
    stops = (columns.stop_ids[slots] == tokens[:, None]).any(axis=1) & (num_tokens > columns.min_len[slots]) & ~is_bad
    is_finished = stops | is_bad | (num_tokens >= columns.max_len[slots])
    for i in np.flatnonzero(is_finished).tolist():
        if is_bad[i]:
            end(state, sequences[i], "error")
        elif stops[i]:
            end(state, sequences[i], "stop", sequences[i].request.stop_reason(int(tokens[i])))
        else:
            end(state, sequences[i], "length")
    return TokenDeltas(sequences, tokens, is_finished)


def _end_prompts(state: SchedulerState, deltas: TokenDeltas, slots: np.ndarray) -> TokenDeltas:
    """End the sequences that were to draw nothing, their prompts computed, and add them to the deltas."""
    if not len(slots):
        return deltas
    sequences = [state.occupant(slot) for slot in slots.tolist()]
    for sequence in sequences:
        end(state, sequence, "length")
    return TokenDeltas(
        deltas.sequences + sequences,
        np.concatenate([deltas.tokens, np.full(len(slots), NO_TOKEN, np.int32)]),
        np.concatenate([deltas.is_finished, np.ones(len(slots), bool)]),
    )
