"""Host: prefill chunks: running prompts advance in the order of the policy, while budget and pages last."""

import numpy as np

from jaxserve.core.sequence import Sequence
from jaxserve.scheduler.memory.page_tables import extend_table
from jaxserve.scheduler.memory.preemption import num_available_pages, obtain_pages
from jaxserve.scheduler.state import SchedulerState, StepRows


def running_prompts(state: SchedulerState, rows: StepRows) -> list[int]:
    """Slots with more than one token to compute, and no chunk in this step yet."""
    slot_table = state.slot_table
    slots: list[int] = np.flatnonzero(
        slot_table.is_running & (slot_table.num_inputs - slot_table.num_scheduled > 1)
    ).tolist()
    return [slot for slot in slots if slot not in rows.slots and slot not in rows.forced]


def schedule_chunks(state: SchedulerState, rows: StepRows, num_withheld: int) -> None:
    """Add chunks of running prompts; `num_withheld` tokens of the budget are left for sequences that fork."""
    slot_table = state.slot_table
    for slot in sorted(running_prompts(state, rows), key=lambda slot: state.policy.chunk_key(state.occupant(slot))):
        wanted = chunk_len(state, rows, slot, num_withheld)
        if wanted <= 0:
            break
        if slot_table.is_running[slot]:  # else preempted for one before it
            _obtain_chunk(state, rows, slot, wanted)


def chunk_len(state: SchedulerState, rows: StepRows, slot: int, num_withheld: int = 0) -> int:
    """Length of the next chunk of a slot's prompt, by the budget alone."""
    slot_table = state.slot_table
    end = min(slot_table.num_inputs[slot], slot_table.span_end[slot])
    pending = int(end - slot_table.num_scheduled[slot])
    return min(pending, state.limits.max_chunk_tokens, rows.budget - num_withheld)


def lengthen(state: SchedulerState, rows: StepRows, slot: int) -> bool:
    """Make a chunk of a slot's decode row, which is planned already, as far as budget and idle pages last; False where
    they do not."""
    rows.budget += 1
    query_len = min(chunk_len(state, rows, slot), _room(state, rows, slot))
    if query_len > 1:
        add_chunk(state, rows, slot, query_len)
        return True
    rows.budget -= 1
    return False


def add_chunk(state: SchedulerState, rows: StepRows, slot: int, query_len: int) -> None:
    """Add a row for the slot's next tokens; enough pages must be idle."""
    end = int(state.slot_table.num_scheduled[slot]) + query_len
    extend_table(state, slot, state.groups.end_page(end))
    rows.add(slot, query_len)
    _charge(state, state.occupant(slot), end - query_len, end)


def _charge(state: SchedulerState, sequence: Sequence, start: int, end: int) -> None:
    """Charge for the prompt tokens of a chunk, without those computed before a preemption."""
    end = min(end, sequence.prompt_len)
    num_tokens = end - max(start, sequence.num_charged)
    if num_tokens > 0:
        sequence.num_charged = end
        state.policy.charge_prompt(sequence, num_tokens)


def _obtain_chunk(state: SchedulerState, rows: StepRows, slot: int, wanted: int) -> None:
    """Add as much of the chunk as finds pages; only for the first page of it are sequences preempted."""
    query_len = min(wanted, _room(state, rows, slot))
    if query_len == 0 and obtain_pages(state, rows, slot, state.groups.num_groups):
        query_len = min(wanted, _room(state, rows, slot))
    if query_len:
        add_chunk(state, rows, slot, query_len)


def _room(state: SchedulerState, rows: StepRows, slot: int) -> int:
    """Tokens for which the slot has pages, or could take available ones."""
    slot_table = state.slot_table
    end_page = int(slot_table.end_page[slot]) + num_available_pages(state, rows) // state.groups.num_groups
    return end_page * state.groups.page_size - int(slot_table.num_scheduled[slot])
