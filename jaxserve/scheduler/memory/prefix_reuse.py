"""Host: prefix cache: sequences take over cached pages when they get a slot, and insert committed pages."""

import numpy as np

from jaxserve.core.sequence import Sequence
from jaxserve.kv.prefix_cache import PrefixMatch
from jaxserve.scheduler.memory.kept_kv import has_dropped
from jaxserve.scheduler.memory.page_tables import allocate_pages
from jaxserve.scheduler.state import SchedulerState


def find_prefix(state: SchedulerState, sequence: Sequence) -> PrefixMatch | None:
    """The cached prefix of a waiting sequence; looked up once, and again after the cache has changed."""
    cache = state.prefix_cache
    if cache is None:
        return None
    match = state.matches.get(sequence.sequence_id)
    if match is None or match.version != cache.version:
        request = sequence.request
        is_skipped = request.params.skip_reading_prefix_cache or request.pooling is not None
        tokens = sequence.tokens[: 0 if is_skipped else state.num_skippable(sequence)]
        may_load = state.swap_cost.is_load_faster(state.groups.page_size)
        match = cache.match(request.cache_namespace, tokens, may_load=may_load)
        state.matches[sequence.sequence_id] = match
    return match


def take_prefix(state: SchedulerState, slot: int, match: PrefixMatch) -> None:
    """Let a new slot start after the match, whose pages from the connector are loaded before the next step."""
    slot_table, groups, sequence = state.slot_table, state.groups, state.occupant(slot)
    assert state.prefix_cache is not None
    del state.matches[sequence.sequence_id]
    state.prefix_cache.take(match)
    start, pages = match.num_pages * groups.page_size, match.pages
    if match.stored_keys:
        assert state.connector is not None
        is_loaded, pages = pages < 0, pages.copy()
        pages[is_loaded] = allocate_pages(state, match.num_loaded)
        state.connector.load(match.stored_keys, -match.pages[is_loaded], pages[is_loaded])
    for g, table in enumerate(slot_table.page_tables):
        first = groups.first_page(g, start)
        table[slot, : match.num_pages - first] = pages[g, first:]
        slot_table.first_pages[g, slot] = first
    slot_table.end_page[slot] = match.num_pages
    slot_table.num_kept[slot] = match.num_pages - len(match.stored_keys)
    slot_table.num_computed[slot] = slot_table.num_scheduled[slot] = start
    if sequence.num_cached_tokens is None:  # else the sequence was preempted, and finds its own pages
        sequence.num_cached_tokens = start


def num_prefix_pages(state: SchedulerState, match: PrefixMatch, num_inputs: int) -> int:
    """The most idle pages that a sequence takes to compute its first `num_inputs` tokens after a match."""
    missing, total = state.groups.end_page(num_inputs) - match.num_pages, 0
    for group_pages, table in zip(match.pages, state.slot_table.page_tables, strict=True):
        num_idle = int(np.count_nonzero(state.pool.references(group_pages[group_pages > 0]) == 0))
        total += min(missing + num_idle + int(np.count_nonzero(group_pages < 0)), table.shape[1])
    return total


def insert_prefix(state: SchedulerState, slot: int) -> None:
    """Insert the slot's full committed pages into the prefix cache; where it already has equal pages, the slot takes
    those."""
    slot_table, groups, cache = state.slot_table, state.groups, state.prefix_cache
    # The last token's KV is not computed, however many rounds were planned for the sequence.
    end = min(slot_table.num_computed[slot], slot_table.num_tokens[slot] - 1) // groups.page_size
    if cache is None or end <= slot_table.num_kept[slot] or has_dropped(state, slot):
        return
    pages = np.zeros((groups.num_groups, end), np.int32)
    for g, table in enumerate(slot_table.page_tables):
        first = slot_table.first_pages[g, slot]
        pages[g, first:] = table[slot, : max(0, end - first)]
    tokens = slot_table.tokens[slot, : end * groups.page_size]
    kept = cache.insert(state.occupant(slot).request.cache_namespace, tokens, pages)
    slot_table.num_kept[slot] = end
    is_other = kept != pages
    if is_other.any():
        state.pool.retain(kept[is_other])
        state.pool.release(pages[is_other])
        for g, table in enumerate(slot_table.page_tables):
            first = slot_table.first_pages[g, slot]
            table[slot, : max(0, end - first)] = kept[g, first:]


def forget_prefix(state: SchedulerState, slot: int) -> None:
    """Drop a slot's tokens from the cache, as far as no other sequence uses them: the logits were not finite."""
    if state.prefix_cache is not None:
        tokens = state.slot_table.tokens[slot, : state.slot_table.num_kept[slot] * state.groups.page_size]
        state.prefix_cache.forget(state.occupant(slot).request.cache_namespace, tokens)
