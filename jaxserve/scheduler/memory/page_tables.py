"""Host: page tables: which pages a slot holds, grown before a step and freed behind its windows."""

import numpy as np

from jaxserve.scheduler.state import SchedulerState


def extend_table(state: SchedulerState, slot: int, end_page: int) -> None:
    """Let the slot hold the pages up to `end_page` in every group; they must be free."""
    slot_table, groups = state.slot_table, state.groups
    start = int(slot_table.end_page[slot])
    count = end_page - start
    if count <= 0:
        return
    ids = allocate_pages(state, count * groups.num_groups).reshape(groups.num_groups, count)
    for g, table in enumerate(slot_table.page_tables):
        column = start - slot_table.first_pages[g, slot]
        table[slot, column : column + count] = ids[g]
    slot_table.end_page[slot] = end_page


def extend_tables_by_one(state: SchedulerState, slots: np.ndarray) -> None:
    """One more page in every group for each of the slots; they must be free."""
    slot_table, groups = state.slot_table, state.groups
    ids = allocate_pages(state, len(slots) * groups.num_groups).reshape(groups.num_groups, len(slots))
    for g, table in enumerate(slot_table.page_tables):
        table[slots, slot_table.end_page[slots] - slot_table.first_pages[g, slots]] = ids[g]
    slot_table.end_page[slots] += 1


def free_behind_windows(state: SchedulerState, slots: np.ndarray) -> None:
    """Free the pages that no token after the committed ones can see, and close the gap in the tables."""
    slot_table, groups = state.slot_table, state.groups
    if not groups.has_windows:
        return
    slots, freed = slots[slot_table.is_running[slots]], []
    for window in set(groups.windows) - {None}:
        members = [g for g, w in enumerate(groups.windows) if w == window]  # they keep the same positions
        first_pages = slot_table.first_pages[members[0]]
        shifts = groups.first_page(members[0], slot_table.num_computed[slots]) - first_pages[slots]
        moving = np.flatnonzero(shifts)
        if not len(moving):
            continue
        rows, shifts = slots[moving], shifts[moving]
        order = np.arange((slot_table.end_page[rows] - first_pages[rows]).max())
        is_freed = order < shifts[:, None]
        for g in members:
            table = slot_table.page_tables[g]
            freed.append(table[rows, : len(order)][is_freed])
            table[rows, : len(order)] = _shifted(table, rows, shifts, len(order))
        slot_table.first_pages[np.ix_(members, rows)] += shifts
    if freed:
        state.pool.release(np.concatenate(freed))


def read_table(table: np.ndarray, slots: np.ndarray, shifts: np.ndarray, width: int) -> np.ndarray:
    """int32[len(slots), width]: each slot's pages from its column `shifts` on, 0 past the last."""
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


def pages_behind_windows(state: SchedulerState, slot: int) -> list[np.ndarray]:
    """The pages that the commit of all steps in flight will free of a running slot."""
    slot_table, groups = state.slot_table, state.groups
    freed = []
    for g, table in enumerate(slot_table.page_tables):
        end = groups.first_page(g, int(slot_table.num_scheduled[slot])) - slot_table.first_pages[g, slot]
        freed.append(table[slot, :end])
    return freed


def num_lacking_pages(state: SchedulerState) -> int:
    """Pages that running sequences still lack for the tokens they already have."""
    slot_table = state.slot_table
    slots = np.flatnonzero(slot_table.is_running)
    missing = state.groups.end_page(slot_table.num_inputs[slots]) - slot_table.end_page[slots]
    widths = np.array([[table.shape[1]] for table in slot_table.page_tables])
    room = widths - slot_table.num_pages[:, slots]
    return int(np.maximum(np.minimum(missing, room), 0).sum())


def num_spare_pages(state: SchedulerState) -> int:
    """Idle pages that running prompts will not need and that do not lie under the watermark."""
    watermark = state.watermark if state.slot_table.is_running.any() else 0
    return state.num_idle_pages - num_lacking_pages(state) - watermark


def num_prompt_pages(state: SchedulerState, num_tokens: int) -> int:
    """The most pages that computing a prompt of `num_tokens` can hold at once."""
    end = state.groups.end_page(num_tokens)
    return sum(min(end, table.shape[1]) for table in state.slot_table.page_tables)


def allocate_pages(state: SchedulerState, count: int) -> np.ndarray:
    """That many pages, which must be idle; of cached ones some more are evicted, so that it is not done every step."""
    pool, prefixes = state.pool, state.prefixes
    if count > pool.num_free and prefixes is not None:
        prefixes.evict(min(max(count - pool.num_free, pool.num_pages // 256), pool.num_cached))
    ids = pool.allocate(count)
    assert ids is not None, f"{count} pages were counted on, {pool.num_free} are free"
    return ids
