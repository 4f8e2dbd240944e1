"""Host: slots: how a sequence gets a slot, loses it, and ends, and how the slot's pages return."""

import numpy as np

from jaxserve.core.request import Request
from jaxserve.core.row_layout import POOLING, SAMPLING_INDEX, STOP_FIELDS, pack_sampling
from jaxserve.core.sequence import Sequence, Status
from jaxserve.scheduler.logit_edits import draws_late, has_edits, has_penalties, mask_words, may_draft_late, may_force
from jaxserve.scheduler.memory.adapter_pages import PLACE
from jaxserve.scheduler.memory.prefix_reuse import forget_prefix, insert_prefix
from jaxserve.scheduler.state import SchedulerState


def assign_slot(state: SchedulerState, sequence: Sequence) -> int:
    """Take a waiting sequence from the queue into a free slot, with its row of parameters; no pages yet."""
    slot_table, request, params = state.slot_table, sequence.request, sequence.request.params
    state.waiting.remove(sequence)
    slot = slot_table.assign(sequence)
    sequence.status, sequence.pooled = Status.RUNNING, None
    if sequence.started_s is None:
        sequence.started_s = state.now_s
    state.policy.on_start(sequence)
    if (prefix_group := state.prefix_groups.get(sequence.sequence_id)) is not None:
        prefix_group.running.append(sequence)
    slot_table.max_len[slot] = state.limits.max_len(request)
    slot_table.max_computed[slot] = state.limits.max_computed(request)
    slot_table.min_len[slot] = sequence.prompt_len + params.min_tokens
    slot_table.set_stop_ids(slot, request.stop_ids)
    slot_table.is_beam[slot] = sequence.sequence_id in state.beams
    slot_table.has_grammar[slot] = request.constraint is not None
    slot_table.draws_late[slot] = draws_late(request) and not slot_table.is_beam[slot]
    policy = state.kv_policy_of(request)
    is_free = not (slot_table.is_beam[slot] or slot_table.draws_late[slot])
    is_free |= state.limits.has_late_drafts and may_draft_late(request)
    slot_table.may_draft[slot] = request.may_draft and is_free and (policy is None or policy.can_roll_back)
    allowed = None
    if params.allowed_token_ids is not None:
        allowed = mask_words(params.allowed_token_ids, state.limits.vocab_size)
    values = _sampling_values(state, sequence, allowed)
    slot_table.sampling[slot] = pack_sampling(values)
    asks = values["num_logprobs"] >= 0, values["num_prompt_logprobs"] >= 0, values["pooling"] > 0, values["has_edits"]
    slot_table.has_extras[slot] = any(asks) or request.constraint is not None
    if request.constraint is not None:
        assert state.constraints is not None
        state.constraints.begin(sequence, allowed, forces=may_force(request))
    return slot


def _sampling_values(state: SchedulerState, sequence: Sequence, allowed: np.ndarray | None) -> dict[str, float | int]:
    """allowed: the mask of the tokens to which the request is limited."""
    request, params = sequence.request, sequence.request.params
    prompt_logprobs = params.prompt_logprobs if sequence.prompt_logprobs is not None else None
    beam = state.beams.get(sequence.sequence_id)
    logprobs = params.logprobs if beam is None else beam.num_candidates
    return {
        "temperature": params.temperature,
        "top_p": params.top_p,
        "min_p": params.min_p,
        "presence_penalty": params.presence_penalty,
        "frequency_penalty": params.frequency_penalty,
        "repetition_penalty": params.repetition_penalty,
        "top_k": params.top_k,
        "seed_low": request.seed & 0xFFFFFFFF,
        "seed_high": request.seed >> 32 & 0xFFFFFFFF,
        "sample_index": sequence.index,
        "prompt_len": sequence.prompt_len,
        "num_logprobs": _num_logprobs(logprobs, state.limits.vocab_size),
        "num_prompt_logprobs": _num_logprobs(prompt_logprobs, state.limits.vocab_size),
        "has_penalties": has_penalties(request),
        "has_edits": has_edits(request),
        "mask_row": 0 if allowed is None else state.mask_rows.acquire(allowed),
        "pooling": POOLING[request.pooling],
        "min_len": sequence.prompt_len + params.min_tokens,
        "adapter": _place(state, request),
        "owner": 0 if state.earlier_outputs is None else state.earlier_outputs.owner(request),
        **dict(zip(STOP_FIELDS, (*request.stop_ids, *[-1] * len(STOP_FIELDS)), strict=False)),
    }


def _place(state: SchedulerState, request: Request) -> int:
    return 0 if state.adapters is None or request.adapter is None else state.adapters.enter(request.adapter)


def _num_logprobs(asked: int | None, vocab_size: int) -> int:
    """The value of a row, where -1 means none asked, from that of a request, where -1 means the whole vocabulary."""
    if asked is None:
        return -1
    return vocab_size if asked == -1 else asked


def end_sequence(
    state: SchedulerState,
    sequence: Sequence,
    reason: str,
    stop_reason: int | str | None = None,
    keep_tokens: int | None = None,
) -> None:
    """End a sequence of any status; its results in flight will be dropped."""
    slot, slot_table = sequence.slot, state.slot_table
    if sequence.status is Status.WAITING:
        state.waiting.remove(sequence)
    elif sequence.status in (Status.WAITING_GRAMMAR, Status.WAITING_ADAPTER):
        del state.preparing[sequence.sequence_id]
    elif sequence.status is Status.DEFERRED:
        del state.prefix_groups[sequence.sequence_id].deferred[sequence.sequence_id]
    sequence.finish(reason, stop_reason, keep_tokens)
    if state.earlier_outputs is not None:
        state.earlier_outputs.add(sequence)
    if slot >= 0:
        slot_table.epoch[slot] += 1
        if slot_table.is_running[slot]:  # else the slot is leaving already
            vacate_slot(state, slot)
    _remove(state, sequence)


def vacate_slot(state: SchedulerState, slot: int) -> None:
    """Take the slot from its sequence; it returns, with its pages, when no step in flight touches them."""
    sequence = state.occupant(slot)
    state.policy.on_vacate(sequence)
    if (prefix_group := state.prefix_groups.get(sequence.sequence_id)) is not None:
        prefix_group.running.remove(sequence)
    state.slot_table.is_running[slot] = False
    state.leaving.append(slot)
    if not state.is_in_flight(slot):
        release_slot(state, slot)


def release_slot(state: SchedulerState, slot: int) -> None:
    """Return a leaving slot and its pages, which no step in flight touches, and queue its sequence if preempted."""
    sequence = state.occupant(slot)
    state.leaving.remove(slot)
    is_bad = sequence.finish_reason == "error"
    if not is_bad:
        insert_prefix(state, slot)
    state.pool.release(state.slot_table.pages(slot))
    state.mask_rows.release(int(state.slot_table.sampling[slot, SAMPLING_INDEX["mask_row"]]))
    if state.adapters is not None and (place := int(state.slot_table.sampling[slot, PLACE])):
        state.adapters.leave(place)
    if is_bad:
        forget_prefix(state, slot)
    if not sequence.is_finished:
        sequence.detach()
    if sequence.status is Status.PREEMPTED:
        state.enqueue(sequence)
    state.slot_table.free(slot)


def _remove(state: SchedulerState, sequence: Sequence) -> None:
    """Remove an ended sequence from every index."""
    state.policy.on_end(sequence)
    del state.sequences[sequence.sequence_id]
    state.matches.pop(sequence.sequence_id, None)
    state.prefix_groups.pop(sequence.sequence_id, None)
    state.beams.pop(sequence.sequence_id, None)
    if state.constraints is not None:
        state.constraints.drop(sequence.sequence_id)
    samples = state.requests[sequence.request.request_id]
    samples.remove(sequence)
    if not samples:
        del state.requests[sequence.request.request_id]
        if state.adapters is not None:
            state.adapters.gate.drop(sequence.request)
