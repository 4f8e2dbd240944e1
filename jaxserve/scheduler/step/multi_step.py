"""Host: how many tokens the rows of a step draw before it returns, with the pages for them."""

import numpy as np

from jaxserve.core.step_plan import POOLING_FIELD
from jaxserve.scheduler.memory.page_tables import extend
from jaxserve.scheduler.memory.preemption import num_available
from jaxserve.scheduler.state import SchedulerState, StepRows


def plan_rounds(state: SchedulerState, decodes: np.ndarray, rows: StepRows, max_rounds: int) -> np.ndarray:
    """int32[slots]: rounds of each slot's row; 1 for all unless every running sequence decodes and none waits.

    Rounds are as many as free pages allow: nobody is preempted for them. A sequence takes part in those that it needs.
    """
    columns, groups = state.columns, state.groups
    rounds = np.ones(len(columns.is_running), np.int32)
    if max_rounds == 1 or not _are_alone(state, decodes, rows):
        return rounds
    starts, needed = columns.num_scheduled[decodes], columns.max_computed[decodes] - columns.num_scheduled[decodes]
    num_free = num_available(state, rows)
    room = columns.first_pages[:, decodes] + np.array([[table.shape[1]] for table in columns.tables])
    for count in range(max_rounds, 1, -1):
        counts = np.minimum(needed, count)
        end_pages = groups.end_page(starts + counts)
        missing = np.maximum(end_pages - columns.end_page[decodes], 0)
        if missing.sum() * groups.num_groups <= num_free and (end_pages <= room).all():
            for i in np.flatnonzero(missing).tolist():
                extend(state, int(decodes[i]), int(end_pages[i]))
            rounds[decodes] = counts
            break
    return rounds


def _are_alone(state: SchedulerState, decodes: np.ndarray, rows: StepRows) -> bool:
    """Whether a step of these rows serves everybody there is, and each of its rows draws a token that nobody must see
    before the next is drawn."""
    columns = state.columns
    is_left = columns.is_running & (columns.num_scheduled < columns.max_computed)
    return (
        len(decodes) == np.count_nonzero(is_left)
        and not (rows.slots or rows.pledges or state.waiting or state.holding)
        and not columns.is_synchronous[decodes].any()
        and not (columns.num_tokens[decodes] >= columns.max_len[decodes]).any()
        and not columns.sampling[decodes, POOLING_FIELD].any()
    )
