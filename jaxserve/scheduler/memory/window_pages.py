"""Host: sliding windows: pages behind a window are freed at commit, and rows read the pages that their windows see."""

import numpy as np

from jaxserve.scheduler.state import SchedulerState


def free_behind_windows(state: SchedulerState, slots: np.ndarray) -> None:
    """Free the pages that no token after the committed ones sees, and move the others to the front of the tables."""
    slot_table, groups = state.slot_table, state.groups
    if not groups.has_windows:
        return
    slots = slots[slot_table.is_running[slots]]
    freed: list[np.ndarray] = []
    for window in set(groups.windows) - {None}:
        members = [g for g, w in enumerate(groups.windows) if w == window]  # they keep the same positions
        first_pages = slot_table.first_pages[members[0]]
        shifts = groups.first_page(members[0], slot_table.num_computed[slots]) - first_pages[slots]
        moving = np.flatnonzero(shifts)
        if not len(moving):
            continue
        rows, shifts = slots[moving], shifts[moving]
        columns = np.arange(int((slot_table.end_page[rows] - first_pages[rows]).max()))
        is_freed = columns < shifts[:, None]
        for g in members:
            table = slot_table.page_tables[g]
            freed.append(table[rows, : len(columns)][is_freed])
            table[rows, : len(columns)] = _shifted(table, rows, shifts, len(columns))
        slot_table.first_pages[np.ix_(members, rows)] += shifts
    if freed:
        state.pool.release(np.concatenate(freed))


def pages_behind_windows(state: SchedulerState, slot: int) -> list[np.ndarray]:
    """The pages of a running slot that the commits of all steps in flight will free, by group."""
    slot_table, groups = state.slot_table, state.groups
    freed: list[np.ndarray] = []
    for g, table in enumerate(slot_table.page_tables):
        end = groups.first_page(g, int(slot_table.num_scheduled[slot])) - slot_table.first_pages[g, slot]
        freed.append(table[slot, : max(0, end)])  # below 0 where a streaming slot has dropped pages
    return freed


def read_table(table: np.ndarray, slots: np.ndarray, shifts: np.ndarray, width: int) -> np.ndarray:
    """int32[len(slots), width]: the pages of each slot from its column `shifts` on, 0 past the last."""
    out = table[slots, :width]
    shifted = np.flatnonzero(shifts)
    if len(shifted):
        out[shifted] = _shifted(table, slots[shifted], shifts[shifted], width)
    return out


def _shifted(table: np.ndarray, slots: np.ndarray, shifts: np.ndarray, width: int) -> np.ndarray:
    sources = np.arange(width) + shifts[:, None]
    out = table[slots[:, None], np.minimum(sources, table.shape[1] - 1)]
    out[sources >= table.shape[1]] = 0
    return out
