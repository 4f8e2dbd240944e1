"""Host: how a sequence comes to a slot and leaves it: place, preempt, end, and the return of what it held."""

from jaxserve.core.row_layout import POOLING, STOP_FIELDS, pack_sampling
from jaxserve.core.sequence import Sequence, Status
from jaxserve.scheduler.logit_edits import has_edits, has_penalties, is_synchronous
from jaxserve.scheduler.memory.prefix_reuse import forget_prefix, keep_prefix
from jaxserve.scheduler.state import SchedulerState


def assign_slot(state: SchedulerState, sequence: Sequence) -> int:
    """Give a waiting sequence a free slot and its row of parameters; no pages yet."""
    slot_table, request, params = state.slot_table, sequence.request, sequence.request.params
    slot = slot_table.assign(sequence)
    sequence.status, sequence.pooled = Status.RUNNING, None
    if sequence.started_s is None:
        sequence.started_s = state.now_s
    state.policy.start(sequence)
    if (prefix_group := state.prefix_groups.get(sequence.sequence_id)) is not None:
        prefix_group.running.append(sequence)
    slot_table.max_len[slot] = state.limits.max_len(request)
    slot_table.max_computed[slot] = state.limits.max_computed(request)
    slot_table.min_len[slot] = sequence.prompt_len + params.min_tokens
    slot_table.set_stop_ids(slot, request.stop_ids)
    slot_table.is_beam[slot] = sequence.sequence_id in state.beams
    slot_table.is_synchronous[slot] = slot_table.is_beam[slot] or is_synchronous(request)
    values = _sampling_values(state, sequence, slot)
    slot_table.sampling[slot] = pack_sampling(values)
    asks = values["num_logprobs"] >= 0, values["num_prompt_logprobs"] >= 0, values["pooling"] > 0, values["has_edits"]
    slot_table.has_extras[slot] = any(asks)
    return slot


def _sampling_values(state: SchedulerState, sequence: Sequence, slot: int) -> dict[str, float | int]:
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
        "mask_row": 0 if params.allowed_token_ids is None else slot + 1,
        "adapter": request.adapter,
        "pooling": POOLING[request.pooling],
        "min_len": sequence.prompt_len + params.min_tokens,
        **dict(zip(STOP_FIELDS, (*request.stop_ids, *[-1] * len(STOP_FIELDS)), strict=False)),
    }


def _num_logprobs(asked: int | None, vocab_size: int) -> int:
    """-1 in a request means the whole vocabulary, and none asked in a row."""
    if asked is None:
        return -1
    return vocab_size if asked == -1 else asked


def preempt(state: SchedulerState, slot: int) -> None:
    """Take the slot and pages from a running sequence; it will compute its prompt and its own tokens again.

    A token in flight is still appended, at its commit, before the sequence is queued.
    """
    sequence = state.occupant(slot)
    state.num_preemptions += 1
    sequence.num_preemptions += 1
    sequence.status = Status.WAITING
    vacate_slot(state, slot)


def end_sequence(
    state: SchedulerState,
    sequence: Sequence,
    reason: str,
    stop_reason: int | str | None = None,
    keep_tokens: int | None = None,
) -> None:
    """End a sequence wherever it stands; what it has in flight will be dropped."""
    slot, slot_table = sequence.slot, state.slot_table
    if slot < 0:
        _unqueue(state, sequence)
    sequence.finish(reason, stop_reason, keep_tokens)
    if slot >= 0:
        slot_table.epoch[slot] += 1
        if slot_table.is_running[slot]:  # else it was preempted and is leaving already
            vacate_slot(state, slot)
    _forget(state, sequence)


def vacate_slot(state: SchedulerState, slot: int) -> None:
    """Take the slot from a running sequence; it returns, with its pages, when no step in flight touches them."""
    sequence = state.occupant(slot)
    state.policy.leave(sequence)
    if (prefix_group := state.prefix_groups.get(sequence.sequence_id)) is not None:
        prefix_group.running.remove(sequence)
    state.slot_table.is_running[slot] = False
    state.leaving.append(slot)
    if not state.is_in_flight(slot):
        release_slot(state, slot)


def release_slot(state: SchedulerState, slot: int) -> None:
    """Return a leaving slot and its pages; no step in flight touches them. A preempted sequence goes to the queue,
    unless it is parked."""
    sequence = state.occupant(slot)
    state.leaving.remove(slot)
    is_bad = sequence.finish_reason == "error"
    if not is_bad:
        keep_prefix(state, slot)
    state.pool.release(state.slot_table.pages(slot))
    if is_bad:
        forget_prefix(state, slot)
    if not sequence.is_finished:
        sequence.detach()
        if not state.is_paused(sequence):
            state.waiting.add(sequence)
    state.slot_table.free(slot)


def _unqueue(state: SchedulerState, sequence: Sequence) -> None:
    if state.is_paused(sequence):
        return
    prefix_group = state.prefix_groups.get(sequence.sequence_id)
    if prefix_group is None or prefix_group.deferred.pop(sequence.sequence_id, None) is None:
        state.waiting.remove(sequence)


def _forget(state: SchedulerState, sequence: Sequence) -> None:
    """Drop an ended sequence from the books."""
    state.policy.exit(sequence)
    del state.sequences[sequence.sequence_id]
    state.matches.pop(sequence.sequence_id, None)
    state.prefix_groups.pop(sequence.sequence_id, None)
    state.beams.pop(sequence.sequence_id, None)
    samples = state.requests[sequence.request.request_id]
    samples.remove(sequence)
    if not samples:
        del state.requests[sequence.request.request_id]
