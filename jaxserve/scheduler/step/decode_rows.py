"""Host: decode rows: one token for each running sequence, the first and largest part of a step, without a loop."""

import numpy as np

from jaxserve.scheduler.memory.page_tables import extend_tables_by_one
from jaxserve.scheduler.memory.preemption import num_available_pages, obtain_pages
from jaxserve.scheduler.state import SchedulerState, StepRows


def schedule_decodes(state: SchedulerState, rows: StepRows) -> np.ndarray:
    """int[N]: slots whose last known token is not computed yet, or is in flight and draws the next token.

    Each gets exactly one token, as do those of `rows.forced`; only rows that find no page wait. Slots of the
    result may be preempted by rows planned later.
    """
    slots = _ready(state)
    if len(rows.forced):
        slots = np.union1d(slots, rows.forced)
    lacking = slots[state.slot_table.end_page[slots] < state.groups.end_page(state.slot_table.num_scheduled[slots] + 1)]
    each = state.groups.num_groups
    if len(lacking) * each <= num_available_pages(state, rows):
        if len(lacking):
            extend_tables_by_one(state, lacking)
    else:
        waiting: list[int] = []
        for slot in sorted(lacking.tolist(), key=state.key):
            if not state.slot_table.is_running[slot]:
                continue  # preempted for a row before it
            if obtain_pages(state, rows, slot, each):
                extend_tables_by_one(state, np.array([slot]))
            else:
                waiting.append(slot)
        slots = slots[state.slot_table.is_running[slots] & ~np.isin(slots, waiting)]
    rows.budget -= len(slots)
    return slots


def _ready(state: SchedulerState) -> np.ndarray:
    slot_table = state.slot_table
    pending = slot_table.num_inputs - slot_table.num_scheduled  # below 1: the token to compute is still in flight
    return np.flatnonzero(slot_table.is_left & (pending <= 1) & ((pending == 1) | ~slot_table.is_beam))
