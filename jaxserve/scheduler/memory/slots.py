"""Host: how a sequence comes to a slot and leaves it: place, preempt, end, and the return of what it held."""

from jaxserve.core.row_layout import POOLING, STOP_FIELDS, pack_sampling
from jaxserve.core.sequence import Sequence, Status
from jaxserve.scheduler.logit_edits import has_edits, has_penalties, is_synchronous
from jaxserve.scheduler.memory.prefix_reuse import forget_prefix, keep_prefix
from jaxserve.scheduler.state import SchedulerState


def place(state: SchedulerState, sequence: Sequence) -> int:
    """Give a waiting sequence a free slot and its row of parameters; no pages yet."""
    columns, request, params = state.columns, sequence.request, sequence.request.params
    slot = columns.take(sequence)
    sequence.status, sequence.pooled = Status.RUNNING, None
    if sequence.started_s is None:
        sequence.started_s = state.now_s
    state.order.start(sequence)
    if (sharing := state.sharings.get(sequence.sequence_id)) is not None:
        sharing.running.append(sequence)
    columns.max_len[slot] = state.limits.max_len(request)
    columns.max_computed[slot] = state.limits.max_computed(request)
    columns.min_len[slot] = sequence.prompt_len + params.min_tokens
    columns.set_stop_ids(slot, request.stop_ids)
    columns.is_beam[slot] = sequence.sequence_id in state.beams
    columns.is_synchronous[slot] = columns.is_beam[slot] or is_synchronous(request)
    values = _sampling_values(state, sequence, slot)
    columns.sampling[slot] = pack_sampling(values)
    asks = values["num_logprobs"] >= 0, values["num_prompt_logprobs"] >= 0, values["pooling"] > 0, values["has_edits"]
    columns.is_special[slot] = any(asks)
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
    leave(state, slot)


def end(
    state: SchedulerState,
    sequence: Sequence,
    reason: str,
    stop_reason: int | str | None = None,
    keep_tokens: int | None = None,
) -> None:
    """End a sequence wherever it stands; what it has in flight will be dropped."""
    slot, columns = sequence.slot, state.columns
    if slot < 0:
        _unqueue(state, sequence)
    sequence.finish(reason, stop_reason, keep_tokens)
    if slot >= 0:
        columns.epoch[slot] += 1
        if columns.is_running[slot]:  # else it was preempted and is leaving already
            leave(state, slot)
    _forget(state, sequence)


def leave(state: SchedulerState, slot: int) -> None:
    """Take the slot from a running sequence; it returns, with its pages, when no step in flight touches them."""
    sequence = state.occupant(slot)
    state.order.leave(sequence)
    if (sharing := state.sharings.get(sequence.sequence_id)) is not None:
        sharing.running.remove(sequence)
    state.columns.is_running[slot] = False
    state.leaving.append(slot)
    if not state.is_in_flight(slot):
        release(state, slot)


def release(state: SchedulerState, slot: int) -> None:
    """Return a leaving slot and its pages; no step in flight touches them. A preempted sequence goes to the queue,
    unless it is parked."""
    sequence = state.occupant(slot)
    state.leaving.remove(slot)
    is_bad = sequence.finish_reason == "error"
    if not is_bad:
        keep_prefix(state, slot)
    state.pool.release(state.columns.pages(slot))
    if is_bad:
        forget_prefix(state, slot)
    if not sequence.is_finished:
        sequence.detach()
        if not state.is_parked(sequence):
            state.waiting.add(sequence)
    state.columns.give_back(slot)


def _unqueue(state: SchedulerState, sequence: Sequence) -> None:
    if state.is_parked(sequence):
        return
    sharing = state.sharings.get(sequence.sequence_id)
    if sharing is None or sharing.held.pop(sequence.sequence_id, None) is None:
        state.waiting.remove(sequence)


def _forget(state: SchedulerState, sequence: Sequence) -> None:
    """Drop an ended sequence from the books."""
    state.order.exit(sequence)
    del state.sequences[sequence.sequence_id]
    state.matches.pop(sequence.sequence_id, None)
    state.sharings.pop(sequence.sequence_id, None)
    state.beams.pop(sequence.sequence_id, None)
    samples = state.requests[sequence.request.request_id]
    samples.remove(sequence)
    if not samples:
        del state.requests[sequence.request.request_id]
