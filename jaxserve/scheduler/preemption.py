"""Host: pages for a running row that lacks them, by recompute: the youngest sequences give theirs back."""

import numpy as np

from jaxserve.scheduler.pages import pages_behind_windows
from jaxserve.scheduler.slots import preempt
from jaxserve.scheduler.state import SchedulerState, StepRows


def obtain(state: SchedulerState, rows: StepRows, slot: int, num_pages: int) -> bool:
    """Whether the slot's row may take `num_pages` now. If not, it waits for pages that are on their way back.

    What a row waits for is pledged to it: rows that ask later do not take it. Only sequences younger than the asking
    one are preempted, so the oldest always moves on, and no more of them than needed: pages of sequences that are
    leaving, and behind the windows of rows in flight, return by themselves at a commit.
    """
    if _is_free(state, rows, num_pages):
        return True
    while state.num_idle_pages + _num_returning(state) - rows.num_pledged < num_pages:
        victim = _youngest(state)
        if state.key(victim) <= state.key(slot):
            break
        preempt(state, victim)
        rows.pledges.pop(victim, None)
        rows.has_preempted = True
    if _is_free(state, rows, num_pages):
        return True
    rows.pledges[slot] = num_pages
    return False


def num_available(state: SchedulerState, rows: StepRows) -> int:
    """Pages that are free or cached, and that no row of this step waits for."""
    return max(0, state.num_idle_pages - rows.num_pledged)


def _is_free(state: SchedulerState, rows: StepRows, num_pages: int) -> bool:
    return num_available(state, rows) >= num_pages


def _youngest(state: SchedulerState) -> int:
    return max(np.flatnonzero(state.columns.is_running).tolist(), key=state.key)


def _num_returning(state: SchedulerState) -> int:
    """Pages that the commits of the steps in flight will free."""
    ids = [state.columns.pages(slot) for slot in state.leaving]
    for slot in np.flatnonzero(state.columns.is_running).tolist():
        if state.is_in_flight(slot):
            ids += pages_behind_windows(state, slot)
    return state.pool.num_freed_by(np.concatenate(ids)) if ids else 0
