"""Host: forced rows: those with several tokens that their grammar forced, and which of them compute one in a step."""

import numpy as np

from jaxserve.core.buckets import Buckets
from jaxserve.scheduler.state import SchedulerState

MAX_FORCED = 32
"""Tokens of a row. Where more wait, they were drawn, and are computed again after a preemption; or they save enough."""
NONE = np.zeros(0, np.intp)


def single_forced(state: SchedulerState, buckets: Buckets) -> np.ndarray:
    """int[N]: slots that compute one of their forced tokens in this step. Others that have such compute a chunk, as do
    all where other prompts make the step a mixed one in any case."""
    slot_table = state.slot_table
    if not (slot_table.has_grammar & slot_table.is_running).any():
        return NONE
    running = np.flatnonzero(slot_table.is_left)
    starts = slot_table.num_scheduled[running]
    lens = np.maximum(slot_table.num_inputs[running] - starts, 1)
    is_long = lens > 1
    is_forced = is_long & slot_table.has_grammar[running] & (starts >= slot_table.prompt_len[running])
    is_forced &= lens <= MAX_FORCED
    may_start = len(state.waiting) and len(slot_table.free_slots)
    if not is_forced.any() or (is_long & ~is_forced).any() or may_start:
        return NONE
    first_pages = slot_table.first_pages[:, running].min(axis=0)
    num_columns = int((state.groups.end_page(starts + lens) - first_pages).max())
    num_rows, num_tokens = len(running), min(int(lens.sum()), state.limits.max_num_batched_tokens)
    has_chunks = state.forced_chunks.choose(
        state.num_planned,
        buckets.fit(num_rows, num_rows, num_columns, is_decode=True),
        buckets.fit(num_tokens, num_rows, num_columns, is_decode=False),
        num_rows=num_rows,
        num_saved=num_tokens - num_rows,
        has_others=not slot_table.has_grammar[running].all(),
    )
    return NONE if has_chunks else running[is_forced]
