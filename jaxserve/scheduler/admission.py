"""Host: admission: waiting sequences get slots in the order of service, while slots, pages and tokens last."""

from functools import partial
from itertools import islice, takewhile

from jaxserve.core.sequence import Sequence
from jaxserve.kv.prefix_cache import Match
from jaxserve.scheduler.chunks import chunk_len
from jaxserve.scheduler.forks import Source, fork, num_fork_pages
from jaxserve.scheduler.pages import extend, num_unreserved, num_whole
from jaxserve.scheduler.prefixes import find_prefix, num_prefix_pages, take_prefix
from jaxserve.scheduler.sharing import hold_back, num_held, source_of
from jaxserve.scheduler.slots import place
from jaxserve.scheduler.state import SchedulerState, StepRows

LOOK_AHEAD = 8  # sequences at the head of the queue, of which the one with the longest cached prefix goes first
MAX_OVERTAKEN = 8  # times that one may be overtaken so


def admit(state: SchedulerState, rows: StepRows) -> None:
    """Start waiting sequences with their first chunk, after what a running one or the prefix cache has of the prompt.

    Those that find more in the prefix cache overtake others a few times, before it is evicted. Besides, nobody
    overtakes one for whom there is no room, nor one that is held back: its slot stays free for it. That blocks nobody
    for long, since whoever it waits for is running, and nobody whom the order of service would not.
    """
    if rows.is_short:
        return
    while len(state.waiting) and len(state.columns.free_slots) > num_held(state) and rows.budget > 0:
        sequence = _next(state)
        source = source_of(state, sequence)
        if source is None and hold_back(state, sequence):
            continue
        match = find_prefix(state, sequence) if source is None else None
        if not _has_room(state, sequence, match, source):
            return
        state.waiting.remove(sequence)
        for overtaken in takewhile(partial(_is_before, state, sequence), state.waiting):
            overtaken.num_overtaken += 1
        slot = place(state, sequence)
        if source is not None:
            fork(state, rows, source, slot)
        elif match is not None:
            take_prefix(state, slot, match)
        start = int(state.columns.num_scheduled[slot])
        query_len = chunk_len(state, rows, int(state.columns.num_inputs[slot]) - start)
        extend(state, slot, state.groups.end_page(start + query_len))
        rows.new_slots.append(slot)
        rows.add(slot, query_len)


def _next(state: SchedulerState) -> Sequence:
    """Whose turn it is."""
    first = state.waiting.first()
    if state.prefixes is None or first.num_overtaken >= MAX_OVERTAKEN or first.sequence_id in state.sharings:
        return first
    lens = {s: match.num_pages for s in islice(state.waiting, LOOK_AHEAD) if (match := find_prefix(state, s))}
    best = max(lens, key=lens.__getitem__)  # the first of equals
    return best if _has_room(state, best, state.matches[best.sequence_id]) else first


def _is_before(state: SchedulerState, sequence: Sequence, other: Sequence) -> bool:
    return state.order.key(other) < state.order.key(sequence)


def _num_spare(state: SchedulerState) -> int:
    """Idle pages that running prompts will not need and that do not lie under the watermark."""
    watermark = state.watermark if state.columns.is_running.any() else 0
    return state.num_idle_pages - num_unreserved(state) - watermark


def _has_room(state: SchedulerState, sequence: Sequence, match: Match | None, source: Source | None = None) -> bool:
    """Whether the whole prompt fits; its pages are taken chunk by chunk, but a prompt cut short helps nobody."""
    num_inputs = min(sequence.num_tokens, state.limits.max_computed(sequence.request))
    if source is not None:
        needed = num_fork_pages(state, source, num_inputs)
    else:
        needed = num_whole(state, num_inputs) if match is None else num_prefix_pages(state, match, num_inputs)
    return needed <= _num_spare(state)
