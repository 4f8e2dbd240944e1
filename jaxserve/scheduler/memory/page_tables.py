"""Host: page tables: pages are added to slots before a step, and counted before a sequence starts."""

import numpy as np

from jaxserve.scheduler.state import SchedulerState


def extend_table(state: SchedulerState, slot: int, end_page: int) -> None:
    """Allocate the slot's pages up to `end_page` in every group; enough pages must be idle."""
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
    """Allocate one more page in every group for each of the slots; enough pages must be idle."""
    slot_table, groups = state.slot_table, state.groups
    ids = allocate_pages(state, len(slots) * groups.num_groups).reshape(groups.num_groups, len(slots))
    for g, table in enumerate(slot_table.page_tables):
        table[slots, slot_table.end_page[slots] - slot_table.first_pages[g, slots]] = ids[g]
    slot_table.end_page[slots] += 1


def allocate_pages(state: SchedulerState, count: int) -> np.ndarray:
    """int32[count] page ids; as many pages must be idle.

    Cached prefixes are evicted first, at least 1/256 of the pool, so that eviction does not run in every step; then
    adapters without users.
    """
    pool, cache, adapters = state.pool, state.prefix_cache, state.adapters
    if count > pool.num_free and cache is not None and state.num_prefix_pages:
        cache.evict(min(max(count - pool.num_free, pool.num_pages // 256), state.num_prefix_pages))
    if count > pool.num_free and adapters is not None:
        adapters.evict(count - pool.num_free)
    ids = pool.allocate(count)
    assert ids is not None, f"{count} pages were counted on, {pool.num_free} are free"
    return ids


def num_lacking_pages(state: SchedulerState) -> int:
    """Pages that running sequences still need for their known tokens."""
    slot_table = state.slot_table
    slots = np.flatnonzero(slot_table.is_running)
    num_inputs = np.minimum(slot_table.num_inputs, slot_table.span_end)[slots]  # later spans need no more pages
    missing = state.groups.end_page(num_inputs) - slot_table.end_page[slots]
    room = slot_table.table_widths - slot_table.num_pages[:, slots]
    return int(np.maximum(np.minimum(missing, room), 0).sum())


def num_spare_pages(state: SchedulerState) -> int:
    """Idle pages above the watermark that running sequences do not need for their known tokens."""
    watermark = state.watermark if state.slot_table.is_running.any() else 0
    return state.num_idle_pages - num_lacking_pages(state) - watermark


def num_new_pages(state: SchedulerState, num_inputs: int, start: int = 0) -> int:
    """The most idle pages that a new slot takes for its first `num_inputs` tokens; it shares those before `start`."""
    missing = state.groups.end_page(num_inputs) - start // state.groups.page_size
    return int(np.minimum(missing, state.slot_table.table_widths).sum())


def table_width(state: SchedulerState, slots: np.ndarray, ends: np.ndarray) -> int:
    """Columns of the widest page table of slots of which a step computes the tokens before `ends`, int[N]."""
    first_pages = state.slot_table.first_pages[:, slots].min(axis=0)
    return int((state.groups.end_page(ends) - first_pages).max())
