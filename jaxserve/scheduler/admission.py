"""Host: admission: waiting sequences get slots in the order of service, while slots, pages and tokens last."""

from jaxserve.core.sequence import Sequence
from jaxserve.scheduler.chunks import chunk_len
from jaxserve.scheduler.pages import extend, num_unreserved, num_whole
from jaxserve.scheduler.slots import place
from jaxserve.scheduler.state import SchedulerState, StepRows


def admit(state: SchedulerState, rows: StepRows) -> None:
    """Start waiting sequences with the first chunk of their prompt. Nobody overtakes one for whom there is no room."""
    if rows.is_short:
        return
    while len(state.waiting) and state.columns.free_slots and rows.budget > 0:
        if not _has_room(state, state.waiting.first()):
            return
        sequence = state.waiting.pop()
        slot = place(state, sequence)
        query_len = chunk_len(state, rows, sequence.num_tokens)
        extend(state, slot, state.groups.end_page(query_len))
        rows.new_slots.append(slot)
        rows.add(slot, query_len)


def num_spare(state: SchedulerState) -> int:
    """Free pages that running prompts will not need and that do not lie under the watermark."""
    watermark = state.watermark if state.columns.is_running.any() else 0
    return state.pool.num_free - num_unreserved(state) - watermark


def _has_room(state: SchedulerState, sequence: Sequence) -> bool:
    """Whether the whole prompt fits; its pages are taken chunk by chunk, but a prompt cut short helps nobody."""
    return num_whole(state, sequence.num_tokens) <= num_spare(state)
