"""Host: forks: a new slot takes over the pages of a prefix from another slot.

Full pages are shared; a partial last page is copied. The device makes the copies after all steps before, so the prefix
may still be in flight.
"""

from typing import NamedTuple

import numpy as np

from jaxserve.core.device_ops import Forks
from jaxserve.scheduler.memory.page_tables import allocate_pages
from jaxserve.scheduler.state import SchedulerState, StepRows


class ForkSource(NamedTuple):
    """The slot to fork from, of whose tokens the fork takes over the first `start`."""

    slot: int
    start: int


def fork(state: SchedulerState, rows: StepRows, source: ForkSource, dst: int) -> None:
    """Let the new slot `dst` start after the source's tokens."""
    slot_table, groups = state.slot_table, state.groups
    src, start = source
    last, num_partial = divmod(start, groups.page_size)
    copies = allocate_pages(state, groups.num_groups if num_partial else 0)
    originals = np.zeros_like(copies)
    for g, table in enumerate(slot_table.page_tables):
        first = groups.first_page(g, start)
        pages = table[src, first - slot_table.first_pages[g, src] :]
        shared = pages[: last - first]
        state.pool.retain(shared)
        table[dst, : last - first] = shared
        slot_table.first_pages[g, dst] = first
        if num_partial:
            table[dst, last - first] = copies[g]
            originals[g] = pages[last - first]
    slot_table.end_page[dst] = groups.end_page(start)
    slot_table.num_computed[dst] = slot_table.num_scheduled[dst] = start
    rows.fork_pages.append((originals, copies))
    rows.fork_slots.append((src, dst))


def make_forks(rows: StepRows) -> list[Forks]:
    """The copies of the step's forks."""
    if not rows.fork_slots:
        return []
    src_pages, dst_pages = (np.concatenate(pages).astype(np.int32) for pages in zip(*rows.fork_pages, strict=True))
    src_slots, dst_slots = (np.array(slots, np.int32) for slots in zip(*rows.fork_slots, strict=True))
    return [Forks(src_pages, dst_pages, src_slots, dst_slots)]
