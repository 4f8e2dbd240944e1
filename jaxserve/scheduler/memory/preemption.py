"""Host: pages for a running row that lacks them, by recompute: the last in the order of service give theirs back."""

import numpy as np

from jaxserve.scheduler.memory.page_tables import pages_behind_windows
from jaxserve.scheduler.memory.slots import preempt
from jaxserve.scheduler.state import SchedulerState, StepRows


def obtain_pages(state: SchedulerState, rows: StepRows, slot: int, num_pages: int) -> bool:
    """Whether the slot's row may take `num_pages` now. If not, it waits for pages that are on their way back.

    What a row waits for is pledged to it: rows that ask later do not take it. Only sequences behind the asking one are
    preempted, so the first always moves on, and no more of them than needed: pages of sequences that are leaving, and
    behind the windows of rows in flight, return by themselves at a commit.
    """
    if _is_free(state, rows, num_pages):
        return True
    while state.num_idle_pages + num_returning_pages(state) - rows.num_reserved < num_pages:
        victim = last_running(state, rows)
        if victim is None or state.key(victim) <= state.key(slot):
            break
        preempt(state, victim)
        rows.reservations.pop(victim, None)
        rows.has_preempted = True
    if _is_free(state, rows, num_pages):
        return True
    rows.reservations[slot] = num_pages
    return False


def num_available_pages(state: SchedulerState, rows: StepRows) -> int:
    """Pages that are free or cached, and that no row of this step waits for."""
    return max(0, state.num_idle_pages - rows.num_reserved)


def _is_free(state: SchedulerState, rows: StepRows, num_pages: int) -> bool:
    return num_available_pages(state, rows) >= num_pages


def last_running(state: SchedulerState, rows: StepRows) -> int | None:
    """The running slot whose sequence is the last in the order of service; not one that has a chunk in this step."""
    running = np.flatnonzero(state.slot_table.is_running).tolist()
    return max((slot for slot in running if slot not in rows.slots), key=state.key, default=None)


def num_returning_pages(state: SchedulerState) -> int:
    """Pages that the commits of the steps in flight will free."""
    ids = [state.slot_table.pages(slot) for slot in state.leaving]
    for slot in np.flatnonzero(state.slot_table.is_running).tolist():
        if state.is_in_flight(slot):
            ids += pages_behind_windows(state, slot)
    return state.pool.num_freed_by(np.concatenate(ids)) if ids else 0
