"""Host: displacing: where the order of service divides slots, one that waits takes those of others, and their pages."""

from jaxserve.core.sequence import Sequence
from jaxserve.scheduler.memory.page_tables import num_spare_pages
from jaxserve.scheduler.memory.preemption import num_returning_pages
from jaxserve.scheduler.memory.prefix_sharing import num_deferred
from jaxserve.scheduler.memory.slots import preempt
from jaxserve.scheduler.state import SchedulerState, StepRows


def preempt_over_served(state: SchedulerState, rows: StepRows, sequence: Sequence, num_pages: int) -> bool:
    """Preempt running sequences until one that waits will find a slot and `num_pages`, or none must yield to it.

    Whether it finds them now; what is in flight returns with a commit. Who has a chunk in this step keeps its slot.
    """
    while not _is_enough(state, num_pages, len(state.leaving), num_returning_pages(state)):
        victim = state.policy.yields_to(sequence)
        if victim is None or victim.slot in rows.slots:
            break
        preempt(state, victim.slot)
    return _is_enough(state, num_pages)


def _is_enough(state: SchedulerState, num_pages: int, more_slots: int = 0, more_pages: int = 0) -> bool:
    has_slot = len(state.slot_table.free_slots) + more_slots > num_deferred(state)
    return has_slot and num_pages <= num_spare_pages(state) + more_pages
