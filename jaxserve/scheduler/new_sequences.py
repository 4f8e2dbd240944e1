"""Host: how new sequences join the queue: when their grammar is compiled and their adapter is in host memory."""

from jaxserve.core.options.lora_request import AdapterFailure
from jaxserve.core.sequence import Sequence, Status
from jaxserve.scheduler.state import SchedulerState


def enqueue_new(state: SchedulerState, sequence: Sequence) -> None:
    """A sequence waits for its turn, or before that for its grammar, and then for its adapter.

    Where others wait for adapters, it asks for its own after them, before the next step.
    """
    if state.adapters is not None:
        state.adapters.gate.expect(sequence.request)
    if sequence.request.adapter is not None and state.preparing:
        status = Status.WAITING_ADAPTER
    else:
        status = _lacking(state, sequence)
    if status is None:
        state.enqueue(sequence)
    else:
        sequence.status = status
        state.preparing[sequence.sequence_id] = sequence


def enqueue_prepared(state: SchedulerState) -> None:
    """Sequences that lack nothing by now join the queue."""
    if state.constraints is not None and not state.preparing:
        state.constraints.forget_trials()
    if state.adapters is not None:
        state.adapters.gate.begin_round()
    for sequence in list(state.preparing.values()):
        if (status := _lacking(state, sequence)) is None:
            del state.preparing[sequence.sequence_id]
            state.enqueue(sequence)
        else:
            sequence.status = status


def take_unprepared(state: SchedulerState) -> list[tuple[Sequence, AdapterFailure]]:
    """Sequences whose adapter cannot be read, and why."""
    if state.adapters is None or not state.preparing:
        return []
    waiting = [
        (sequence, sequence.request.adapter)
        for sequence in state.preparing.values()
        if sequence.status is Status.WAITING_ADAPTER
    ]
    errors = state.adapters.gate.take_errors(adapter.adapter_id for _, adapter in waiting if adapter is not None)
    return [
        (sequence, AdapterFailure(f"adapter {adapter.name!r} cannot be read: {errors[adapter.adapter_id]}"))
        for sequence, adapter in waiting
        if adapter is not None and adapter.adapter_id in errors
    ]


def _lacking(state: SchedulerState, sequence: Sequence) -> Status | None:
    """For what a sequence has to wait."""
    params = sequence.request.constraint
    if params is not None:
        assert state.constraints is not None, "the engine has no grammars"
        if not state.constraints.prepare(params):
            return Status.WAITING_GRAMMAR
    if state.adapters is not None and not state.adapters.gate.prepare(sequence.request):
        return Status.WAITING_ADAPTER
    return None
