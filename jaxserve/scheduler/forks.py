"""Host: forks: the other samples of a prompt share its pages as soon as the first one has computed them.

The first sample (the leader) runs the prompt. In the step after the one with its last chunk, each sibling gets a slot
that shares the pages before the one that holds the last prompt token, a copy of that one, and a row that computes the
last prompt token again to draw from it. The device runs copies after the step before, hence the leader's chunk may
still be in flight. Later the leader's penalty counts would hold its own tokens, so who cannot be forked now is queued.
"""

import numpy as np

from jaxserve.core.plan import Forks
from jaxserve.core.sequence import Sequence
from jaxserve.scheduler.admission import num_spare
from jaxserve.scheduler.slots import place
from jaxserve.scheduler.state import SchedulerState, StepRows


def num_forks_due(state: SchedulerState) -> int:
    """The most rows that `schedule_forks` will add."""
    due = sum(len(state.siblings.get(leader.sequence_id, ())) for leader in state.leaders)
    return min(due, len(state.columns.free_slots))


def schedule_forks(state: SchedulerState, rows: StepRows) -> None:
    """Fork the siblings of leaders whose last prompt chunk is in the latest plan; queue those that cannot be."""
    for leader in state.leaders:
        for sibling in state.siblings.pop(leader.sequence_id, ()):
            if _can_fork(state, rows, leader):
                _fork(state, rows, leader, sibling)
            else:
                state.waiting.add(sibling)
    state.leaders.clear()


def make_forks(rows: StepRows) -> Forks | None:
    if not rows.fork_slots:
        return None
    src_pages, dst_pages = (np.concatenate(pages).astype(np.int32) for pages in zip(*rows.fork_pages, strict=True))
    src_slots, dst_slots = (np.array(slots, np.int32) for slots in zip(*rows.fork_slots, strict=True))
    return Forks(src_pages, dst_pages, src_slots, dst_slots)


def _can_fork(state: SchedulerState, rows: StepRows, leader: Sequence) -> bool:
    columns, groups, slot = state.columns, state.groups, leader.slot
    if rows.is_short or slot < 0 or not columns.is_running[slot] or not columns.free_slots:
        return False
    firsts = [groups.first_page(g, leader.prompt_len - 1) for g in range(groups.num_groups)]
    is_whole = all(columns.first_pages[g, slot] <= first for g, first in enumerate(firsts))
    return is_whole and num_spare(state) >= groups.num_groups


def _fork(state: SchedulerState, rows: StepRows, leader: Sequence, sibling: Sequence) -> None:
    columns, groups, src = state.columns, state.groups, leader.slot
    dst = place(state, sibling)
    start = leader.prompt_len - 1
    last = start // groups.page_size
    copies = state.pool.allocate(groups.num_groups)
    assert copies is not None, "the caller has counted the pages"
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
    rows.new_slots.append(dst)
    rows.add(dst, 1)
