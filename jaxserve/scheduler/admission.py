"""Host: admission: waiting sequences get slots in the order of service, while slots, pages and tokens last."""

from jaxserve.core.sequence import Sequence
from jaxserve.scheduler.chunks import chunk_len
from jaxserve.scheduler.forks import fork, num_fork_pages
from jaxserve.scheduler.pages import extend, num_unreserved, num_whole
from jaxserve.scheduler.sharing import hold_back, num_held, source_of
from jaxserve.scheduler.slots import max_computed, place
from jaxserve.scheduler.state import SchedulerState, StepRows


def admit(state: SchedulerState, rows: StepRows) -> None:
    """Start waiting sequences with their first chunk, after the prefix that they share where somebody has its pages.

    Nobody overtakes one for whom there is no room, nor one that is held back: its slot stays free for it. That blocks
    nobody for long, since whoever it waits for is running, and nobody whom the order of service would not.
    """
    if rows.is_short:
        return
    while len(state.waiting) and len(state.columns.free_slots) > num_held(state) and rows.budget > 0:
        sequence = state.waiting.first()
        source = source_of(state, sequence)
        if source is None and hold_back(state, sequence):
            continue
        if not _has_room(state, sequence, is_fork=source is not None):
            return
        state.waiting.pop()
        slot = place(state, sequence)
        if source is not None:
            fork(state, rows, source, slot, state.sharings[sequence.sequence_id].shared_len)
        start = int(state.columns.num_scheduled[slot])
        query_len = chunk_len(state, rows, int(state.columns.num_inputs[slot]) - start)
        extend(state, slot, state.groups.end_page(start + query_len))
        rows.new_slots.append(slot)
        rows.add(slot, query_len)


def _num_spare(state: SchedulerState) -> int:
    """Free pages that running prompts will not need and that do not lie under the watermark."""
    watermark = state.watermark if state.columns.is_running.any() else 0
    return state.pool.num_free - num_unreserved(state) - watermark


def _has_room(state: SchedulerState, sequence: Sequence, *, is_fork: bool) -> bool:
    """Whether the whole prompt fits; its pages are taken chunk by chunk, but a prompt cut short helps nobody."""
    num_inputs = min(sequence.num_tokens, max_computed(state, sequence.request))
    if is_fork:
        needed = num_fork_pages(state, state.sharings[sequence.sequence_id].shared_len, num_inputs)
    else:
        needed = num_whole(state, num_inputs)
    return needed <= _num_spare(state)
