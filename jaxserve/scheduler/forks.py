"""Host: forks: a new slot takes the pages of a prefix from another slot.

It shares the pages before the one that holds the prefix's last token, gets a copy of that one, and computes that last
token again, because what follows it is drawn, or scored, from its hidden state. The device runs the copies after all
steps before, hence the prefix may still be in flight.
"""

import numpy as np

from jaxserve.core.plan import Forks
from jaxserve.scheduler.pages import allocate
from jaxserve.scheduler.state import SchedulerState, StepRows


def num_fork_pages(state: SchedulerState, shared_len: int, num_inputs: int) -> int:
    """The most free pages that a fork takes to compute its first `num_inputs` tokens."""
    missing = state.groups.end_page(num_inputs) - (shared_len - 1) // state.groups.page_size
    return sum(min(missing, table.shape[1]) for table in state.columns.tables)


def fork(state: SchedulerState, rows: StepRows, src: int, dst: int, shared_len: int) -> None:
    """Let slot `dst` begin after the first `shared_len - 1` tokens, which slot `src` has computed."""
    columns, groups = state.columns, state.groups
    start = shared_len - 1
    last = start // groups.page_size
    copies = allocate(state, groups.num_groups)
    originals = np.zeros_like(copies)
    for g, table in enumerate(columns.tables):
        first = groups.first_page(g, start)
        held = table[src, first - columns.first_pages[g, src] :]
        shared = held[: last - first]
        state.pool.retain(shared)
        table[dst, : last - first] = shared
        table[dst, last - first] = copies[g]
        columns.first_pages[g, dst] = first
        originals[g] = held[last - first]
    columns.end_page[dst] = last + 1
    columns.num_computed[dst] = columns.num_scheduled[dst] = start
    rows.fork_pages.append((originals, copies))
    rows.fork_slots.append((src, dst))


def make_forks(rows: StepRows) -> Forks | None:
    if not rows.fork_slots:
        return None
    src_pages, dst_pages = (np.concatenate(pages).astype(np.int32) for pages in zip(*rows.fork_pages, strict=True))
    src_slots, dst_slots = (np.array(slots, np.int32) for slots in zip(*rows.fork_slots, strict=True))
    return Forks(src_pages, dst_pages, src_slots, dst_slots)
