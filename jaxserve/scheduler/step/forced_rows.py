"""Host: forced rows: running sequences with several tokens to compute that their grammar has forced.

Each gets one of them in a step, as a decode row. Once all other rows are known, such rows become longer where chunks
make the step a mixed one in any case, or where they pay.
"""

import numpy as np

from jaxserve.core.buckets import Buckets
from jaxserve.scheduler.memory.page_tables import table_width
from jaxserve.scheduler.state import SchedulerState, StepRows
from jaxserve.scheduler.step.prefill_chunks import chunk_len, lengthen

MAX_FORCED = 32
"""Tokens of a row. Where more wait, they were drawn, and are computed again after a preemption; or they save enough."""


def forced_rows(state: SchedulerState) -> np.ndarray:
    """int[N]: slots of forced rows."""
    slot_table = state.slot_table
    if not (slot_table.has_grammar & slot_table.is_running).any():
        return np.zeros(0, np.intp)
    pending = slot_table.num_inputs - slot_table.num_scheduled
    is_forced = slot_table.has_grammar & slot_table.is_left & (pending > 1) & (pending <= MAX_FORCED)
    return np.flatnonzero(is_forced & (slot_table.num_scheduled >= slot_table.prompt_len))


def lengthen_forced(
    state: SchedulerState, buckets: Buckets, decodes: np.ndarray, rows: StepRows, *, has_rounds: bool
) -> np.ndarray:
    """Give forced rows more of their tokens where that is worth it; returns the decode rows that are left.

    decodes: slots of all rows of one token that `rows` does not contain. has_rounds: without chunks, those among them
    without a grammar draw several tokens.
    """
    forced = decodes[np.isin(decodes, rows.forced)]
    if not len(forced):
        return decodes
    if not rows.slots:
        is_less = has_rounds and not state.slot_table.has_grammar[decodes].all()
        if is_less or not _has_gain(state, buckets, decodes, forced, rows):
            return decodes
    longer = [slot for slot in forced.tolist() if lengthen(state, rows, slot)]
    return decodes[~np.isin(decodes, longer)]


def _has_gain(state: SchedulerState, buckets: Buckets, decodes: np.ndarray, forced: np.ndarray, rows: StepRows) -> bool:
    """Whether a step of these rows is better with chunks."""
    slot_table = state.slot_table
    lens = np.ones(len(slot_table.is_running), np.int32)
    lens[forced] = [max(1, chunk_len(state, rows, slot)) for slot in forced.tolist()]
    num_saved = min(int(lens[decodes].sum()) - len(decodes), rows.budget)
    if num_saved <= 0:
        return False
    width, num_rows = table_width(state, decodes, slot_table.num_scheduled[decodes] + lens[decodes]), len(decodes)
    return state.forced_chunks.choose(
        state.num_planned,
        buckets.fit(num_rows, num_rows, width, is_decode=True),
        buckets.fit(num_rows + num_saved, num_rows, width, is_decode=False),
        num_rows=num_rows,
        num_saved=num_saved,
        has_others=not slot_table.has_grammar[decodes].all(),
    )
