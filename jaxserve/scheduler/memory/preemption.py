"""Host: preemption by recompute: sequences that are last by policy lose slot and pages to those before them."""

import numpy as np

from jaxserve.core.sequence import Sequence, Status
from jaxserve.scheduler.memory.adapter_pages import PLACE
from jaxserve.scheduler.memory.page_tables import num_spare_pages
from jaxserve.scheduler.memory.prefix_sharing import num_deferred
from jaxserve.scheduler.memory.slots import vacate_slot
from jaxserve.scheduler.memory.window_pages import pages_behind_windows
from jaxserve.scheduler.state import SchedulerState, StepRows


def preempt(state: SchedulerState, slot: int) -> None:
    """Take slot and pages from a running sequence; it will compute its prompt and its own tokens again.

    A token in flight is still appended, at its commit, before the sequence is queued. A paused beam stays paused.
    """
    sequence = state.occupant(slot)
    state.num_preemptions += 1
    sequence.num_preemptions += 1
    if not sequence.is_paused:
        sequence.status = Status.PREEMPTED
    vacate_slot(state, slot)


def obtain_pages(state: SchedulerState, rows: StepRows, slot: int, num_pages: int) -> bool:
    """Whether the slot's row may take `num_pages` now. If not, the pages are reserved for it as they return.

    Only sequences behind the slot's are preempted, so the first by policy always advances, and no more of them than
    needed: pages of leaving slots, and pages behind the windows of rows in flight, return at a commit.
    """
    if num_available_pages(state, rows) >= num_pages:
        return True
    while state.num_idle_pages + num_returning_pages(state) - rows.num_reserved < num_pages:
        victim = _last_running(state, rows)
        if victim is None or state.key(victim) <= state.key(slot):
            break
        preempt(state, victim)
        rows.reservations.pop(victim, None)
        rows.has_preempted = True
    if num_available_pages(state, rows) >= num_pages:
        return True
    rows.reservations[slot] = num_pages
    return False


def preempt_over_served(state: SchedulerState, rows: StepRows, sequence: Sequence, num_pages: int) -> bool:
    """Preempt over-served tenants for a waiting sequence that needs a slot and `num_pages`, as the policy allows.

    Returns whether it has both now; what is in flight returns at a commit. Slots with a chunk in this step are exempt,
    and those that are forked, whose last page is copied when the step begins.
    """
    exempt = {*rows.slots, *(source for source, _ in rows.fork_slots)}
    while not _has_room(state, num_pages, len(state.leaving), num_returning_pages(state)):
        victim = state.policy.victim_for(sequence)
        if victim is None or victim.slot in exempt:
            break
        preempt(state, victim.slot)
    return _has_room(state, num_pages)


def _has_room(state: SchedulerState, num_pages: int, num_returning_slots: int = 0, num_returning: int = 0) -> bool:
    """Whether a slot is free beyond those kept for deferred sequences, and enough pages are, including those that
    return."""
    has_slot = len(state.slot_table.free_slots) + num_returning_slots > num_deferred(state)
    return has_slot and num_pages <= num_spare_pages(state) + num_returning


def num_available_pages(state: SchedulerState, rows: StepRows) -> int:
    """Idle pages that no row of this step has reserved."""
    return max(0, state.num_idle_pages - rows.num_reserved)


def num_returning_pages(state: SchedulerState) -> int:
    """Pages that the commits of the steps in flight will free."""
    ids = [state.slot_table.pages(slot) for slot in state.leaving]
    for slot in np.flatnonzero(state.slot_table.is_running).tolist():
        if state.is_in_flight(slot):
            ids += pages_behind_windows(state, slot)
    num_pages = state.pool.num_freed_by(np.concatenate(ids)) if ids else 0
    if state.adapters is not None:
        num_pages += state.adapters.num_left_by(state.slot_table.sampling[state.leaving, PLACE].tolist())
    return num_pages


def _last_running(state: SchedulerState, rows: StepRows) -> int | None:
    """The running slot whose sequence is last by policy; slots with a chunk in this step are exempt."""
    running: list[int] = np.flatnonzero(state.slot_table.is_running).tolist()
    return max((slot for slot in running if slot not in rows.slots), key=state.key, default=None)
