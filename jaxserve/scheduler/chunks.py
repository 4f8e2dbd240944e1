"""Host: chunks of prompts that are already running, oldest first, as long as the budget and the pages allow."""

import numpy as np

from jaxserve.scheduler.pages import extend
from jaxserve.scheduler.preemption import num_available, obtain
from jaxserve.scheduler.state import SchedulerState, StepRows


def schedule_chunks(state: SchedulerState, rows: StepRows, reserved: int) -> None:
    """Rows for prompts with more than one token to compute; `reserved` tokens of the budget are left for others."""
    columns = state.columns
    pending = columns.num_inputs - columns.num_scheduled
    for slot in sorted(np.flatnonzero(columns.is_running & (pending > 1)).tolist(), key=state.key):
        wanted = chunk_len(state, rows, int(pending[slot]), reserved)
        if wanted == 0:
            break
        if columns.is_running[slot]:  # else preempted for an older one
            _add_chunk(state, rows, slot, wanted)


def chunk_len(state: SchedulerState, rows: StepRows, pending: int, reserved: int = 0) -> int:
    """The next chunk of a prompt with `pending` tokens to compute, by the budget alone."""
    return min(pending, state.limits.max_chunk_tokens, rows.budget - reserved)


def _add_chunk(state: SchedulerState, rows: StepRows, slot: int, wanted: int) -> None:
    """Add as much of the chunk as pages can be had for; at least a page is asked of younger sequences."""
    query_len = min(wanted, _room(state, rows, slot))
    if query_len == 0 and obtain(state, rows, slot, state.groups.num_groups):
        query_len = min(wanted, _room(state, rows, slot))
    if query_len:
        extend(state, slot, state.groups.end_page(int(state.columns.num_scheduled[slot]) + query_len))
        rows.add(slot, query_len)


def _room(state: SchedulerState, rows: StepRows, slot: int) -> int:
    """Tokens for which the slot has pages, or could have by taking all that are available."""
    columns = state.columns
    end_page = int(columns.end_page[slot]) + num_available(state, rows) // state.groups.num_groups
    return end_page * state.groups.page_size - int(columns.num_scheduled[slot])
