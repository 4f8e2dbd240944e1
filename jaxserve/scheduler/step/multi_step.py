"""Host: multi-step decoding: how many tokens each row of a step draws before the step returns, with their pages."""

import numpy as np

from jaxserve.core.row_layout import SAMPLING_INDEX
from jaxserve.scheduler.memory.page_tables import extend_table
from jaxserve.scheduler.memory.preemption import num_available_pages
from jaxserve.scheduler.state import SchedulerState, StepRows


def plan_rounds(state: SchedulerState, decodes: np.ndarray, rows: StepRows, max_rounds: int) -> np.ndarray:
    """int32[slots]: rounds of each slot's row; 1 for all unless every running sequence decodes and none waits.

    The number of rounds is limited by idle pages: no sequence is preempted for them. A sequence takes part in as many
    as it needs.
    """
    slot_table, groups = state.slot_table, state.groups
    rounds = np.ones(len(slot_table.is_running), np.int32)
    if max_rounds == 1 or not _are_alone(state, decodes, rows):
        return rounds
    starts = slot_table.num_scheduled[decodes]
    needed = slot_table.max_computed[decodes] - starts
    num_idle = num_available_pages(state, rows)
    room = slot_table.first_pages[:, decodes] + slot_table.table_widths
    for count in range(max_rounds, 1, -1):
        counts = np.minimum(needed, count)
        end_pages = groups.end_page(starts + counts)
        missing = np.maximum(end_pages - slot_table.end_page[decodes], 0)
        if missing.sum() * groups.num_groups <= num_idle and (end_pages <= room).all():
            for i in np.flatnonzero(missing).tolist():
                extend_table(state, int(decodes[i]), int(end_pages[i]))
            rounds[decodes] = counts
            break
    return rounds


def _are_alone(state: SchedulerState, decodes: np.ndarray, rows: StepRows) -> bool:
    """Whether these rows serve every sequence, and the host need not see a token before the next is drawn."""
    slot_table = state.slot_table
    return (
        len(decodes) == np.count_nonzero(slot_table.is_left)
        and not (rows.slots or rows.reservations or state.waiting or state.deferring)
        and not slot_table.is_synchronous[decodes].any()
        and not (slot_table.num_tokens[decodes] >= slot_table.max_len[decodes]).any()
        and not slot_table.sampling[decodes, SAMPLING_INDEX["pooling"]].any()
    )
