"""Host: how new sequences join the queue: those with a grammar when it is compiled, the others at once."""

from jaxserve.core.sequence import Sequence, Status
from jaxserve.scheduler.state import SchedulerState


def enqueue_new(state: SchedulerState, sequence: Sequence) -> None:
    """A sequence waits for its turn, or before that for its grammar."""
    if _is_prepared(state, sequence):
        state.enqueue(sequence)
    else:
        sequence.status = Status.WAITING_GRAMMAR
        state.preparing[sequence.sequence_id] = sequence


def enqueue_prepared(state: SchedulerState) -> None:
    """Sequences whose grammar is compiled by now join the queue."""
    if state.constraints is not None and not state.preparing:
        state.constraints.forget_trials()
    for sequence in list(state.preparing.values()):
        if _is_prepared(state, sequence):
            del state.preparing[sequence.sequence_id]
            state.enqueue(sequence)


def _is_prepared(state: SchedulerState, sequence: Sequence) -> bool:
    params = sequence.request.constraint
    if params is None:
        return True
    assert state.constraints is not None, "the engine has no grammars"
    return state.constraints.prepare(params)
