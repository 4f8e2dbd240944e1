"""Host: streaming sequences keep the KV of their first tokens, the sinks, and of their last ones (StreamingLLM).

    2 sinks, at most 10 tokens, pages of 4                        first_pages     table                  spare page
    before token 10     0 1 2 3 | 4 5 6 7 | 8 9                             0     A         B         C           S
    with it             0 1 6 7 | 8 9 10                                    1     S         C                     A

A row computes tokens up to `span_end` with the same KV. Then its second page B is dropped: the device copies what
remains of it (6 7) to the sequence's own page S, and the sinks from A, where they stay as they were written; their keys
are rotated to the distance at which the next tokens see them (`sink_copies`). Pages A and B may be shared. When a page
is dropped depends on positions alone, hence not on chunks, batches and preemption.
"""

import numpy as np

from jaxserve.core.device_ops import PageDrops
from jaxserve.scheduler.memory.page_tables import allocate_pages
from jaxserve.scheduler.state import SchedulerState


def begin_span(state: SchedulerState, slot: int) -> None:
    """Give a new slot its first span, and its own page in each group; enough pages must be idle."""
    if not state.occupant(slot).request.is_streaming:
        return
    groups = state.groups.unwindowed
    state.slot_table.span_end[slot] = state.capacity
    state.slot_table.spare_pages[groups, slot] = allocate_pages(state, len(groups))


def drop_pages(state: SchedulerState) -> None:
    """Drop a page of each running slot whose next token begins a new span.

    The pages return at once: whatever takes them is dispatched after the copies.
    """
    if state.limits.streaming is None:
        return
    slot_table = state.slot_table
    for slot in np.flatnonzero(slot_table.is_left & (slot_table.num_scheduled >= slot_table.span_end)).tolist():
        for g in state.groups.unwindowed:
            _drop_page(state, slot, g)
        slot_table.span_end[slot] += state.groups.page_size


def has_dropped(state: SchedulerState, slot: int) -> bool:
    """Whether the slot's pages are not those that other sequences with its tokens have."""
    return bool(state.slot_table.first_pages[state.groups.unwindowed, slot].any())


def take_drops(state: SchedulerState) -> list[PageDrops]:
    """The copies of all drops since the last plan."""
    if not state.drops:
        return []
    columns = np.array(state.drops, np.int32).T
    state.drops.clear()
    return [PageDrops(*columns)]


def _drop_page(state: SchedulerState, slot: int, group: int) -> None:
    slot_table = state.slot_table
    table, firsts, spares = slot_table.page_tables[group], slot_table.first_pages[group], slot_table.spare_pages[group]
    first, second = int(table[slot, 0]), int(table[slot, 1])
    sinks, own = int(spares[slot]), first
    if firsts[slot] == 0:
        sinks, own = first, sinks
        spares[slot] = sinks
    num_columns = int(slot_table.end_page[slot] - firsts[slot])
    table[slot, 1 : num_columns - 1] = table[slot, 2:num_columns].copy()
    table[slot, num_columns - 1] = 0
    table[slot, 0] = own
    firsts[slot] += 1
    state.drops.append((group, sinks, second, own, int(firsts[slot]) * state.groups.page_size))
    state.pool.release(np.array([second], np.int32))
