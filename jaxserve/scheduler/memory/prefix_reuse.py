"""Host: what sequences take from the prefix cache when they get a slot, and leave to it once pages are committed."""

import numpy as np

from jaxserve.core.sequence import Sequence
from jaxserve.kv.prefix_cache import PrefixMatch
from jaxserve.scheduler.memory.page_tables import allocate_pages
from jaxserve.scheduler.state import SchedulerState


def find_prefix(state: SchedulerState, sequence: Sequence) -> PrefixMatch | None:
    """What a waiting sequence can take over; looked up once, and again when the cache has changed."""
    cache = state.prefixes
    if cache is None:
        return None
    match = state.matches.get(sequence.sequence_id)
    if match is None or match.version != cache.version:
        tokens = sequence.tokens[: _num_skippable(state, sequence)]
        may_load = state.swap_cost.is_load_sooner(state.groups.page_size)
        match = cache.match(_namespace(sequence), tokens, may_load=may_load)
        state.matches[sequence.sequence_id] = match
    return match


def take_prefix(state: SchedulerState, slot: int, match: PrefixMatch) -> None:
    """Let a slot begin after the match, whose pages in host memory are loaded before the next step."""
    slot_table, groups, sequence = state.slot_table, state.groups, state.occupant(slot)
    assert state.prefixes is not None
    del state.matches[sequence.sequence_id]
    state.prefixes.take(match)
    start, pages = match.num_pages * groups.page_size, match.pages
    if match.host_keys:
        assert state.host is not None
        is_loaded, pages = pages < 0, pages.copy()
        pages[is_loaded] = allocate_pages(state, match.num_loaded)
        state.host.load(match.host_keys, -match.pages[is_loaded], pages[is_loaded])
    for g, table in enumerate(slot_table.page_tables):
        first = groups.first_page(g, start)
        table[slot, : match.num_pages - first] = pages[g, first:]
        slot_table.first_pages[g, slot] = first
    slot_table.end_page[slot] = match.num_pages
    slot_table.num_kept[slot] = match.num_pages - len(match.host_keys)
    slot_table.num_computed[slot] = slot_table.num_scheduled[slot] = start
    if sequence.num_cached_tokens is None:  # else it was preempted, and finds what it left itself
        sequence.num_cached_tokens = start


def num_prefix_pages(state: SchedulerState, match: PrefixMatch, num_inputs: int) -> int:
    """The most idle pages that a sequence takes to compute its first `num_inputs` tokens after a match."""
    missing, total = state.groups.end_page(num_inputs) - match.num_pages, 0
    for line, table in zip(match.pages, state.slot_table.page_tables, strict=True):
        num_idle = int(np.count_nonzero(state.pool.references(line[line > 0]) == 0))
        total += min(missing + num_idle + int(np.count_nonzero(line < 0)), table.shape[1])
    return total


def keep_prefix(state: SchedulerState, slot: int) -> None:
    """Leave the slot's whole committed pages to the cache; where that has equal ones, the slot takes those instead."""
    slot_table, groups, cache = state.slot_table, state.groups, state.prefixes
    # The last token's KV is not computed, whatever rounds were planned for the sequence.
    end = min(slot_table.num_computed[slot], slot_table.num_tokens[slot] - 1) // groups.page_size
    if cache is None or end <= slot_table.num_kept[slot]:
        return
    pages = np.zeros((groups.num_groups, end), np.int32)
    for g, table in enumerate(slot_table.page_tables):
        first = slot_table.first_pages[g, slot]
        pages[g, first:] = table[slot, : max(0, end - first)]
    tokens = slot_table.tokens[slot, : end * groups.page_size]
    kept = cache.insert(_namespace(state.occupant(slot)), tokens, pages)
    slot_table.num_kept[slot] = end
    is_other = kept != pages
    if is_other.any():
        state.pool.retain(kept[is_other])
        state.pool.release(pages[is_other])
        for g, table in enumerate(slot_table.page_tables):
            first = slot_table.first_pages[g, slot]
            table[slot, : max(0, end - first)] = kept[g, first:]


def forget_prefix(state: SchedulerState, slot: int) -> None:
    """Take back what the cache has of a slot's tokens, as far as nobody else uses it: its numbers went wrong."""
    if state.prefixes is not None:
        tokens = state.slot_table.tokens[slot, : state.slot_table.num_kept[slot] * state.groups.page_size]
        state.prefixes.forget(_namespace(state.occupant(slot)), tokens)


def _namespace(sequence: Sequence) -> tuple[int, str | None]:
    """KV depends on the adapter; the salt keeps users apart who must not learn what others asked."""
    return sequence.request.adapter, sequence.request.cache_salt


def _num_skippable(state: SchedulerState, sequence: Sequence) -> int:
    """Tokens that the sequence need not compute, were their KV there: never all, and none that is wanted for more."""
    request = sequence.request
    if request.params.skip_reading_prefix_cache or request.pooling is not None:
        return 0
    count = min(sequence.num_tokens, state.limits.max_computed(request)) - 1
    unscored = sequence.first_unscored
    return count if unscored is None else min(count, unscored - 1)
