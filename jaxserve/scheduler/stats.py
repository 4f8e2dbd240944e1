"""Host: `SchedulerStats`: counts of preemptions, KV pages and adapters since the scheduler was built."""

from dataclasses import dataclass

import numpy as np

from jaxserve.core.slot_table import SlotTable
from jaxserve.scheduler.state import SchedulerState


@dataclass(frozen=True, slots=True)
class SchedulerStats:
    """num_pages_free, num_pages_cached, num_pages_referenced: the pages of the pool; cached ones hold a prefix or an
    adapter, and no sequence references them. num_pages_referenced_by_group: those of each KV group that running
    sequences reference, a shared page counted once. num_pages_host: pages in host memory. num_cached_tokens: prompt
    tokens taken over from the prefix cache. num_evicted, num_saved, num_loaded: pages evicted from the prefix cache,
    copied to host memory, and copied back. num_adapters: adapters on the device, with num_pages_adapters pages in all;
    num_adapters_loaded, num_adapters_evicted: copied there, and evicted.
    """

    num_preemptions: int
    num_pages_free: int
    num_pages_cached: int
    num_pages_referenced: int
    num_pages_referenced_by_group: list[int]
    num_pages_host: int
    num_cached_tokens: int
    num_evicted: int
    num_saved: int
    num_loaded: int
    num_adapters: int
    num_pages_adapters: int
    num_adapters_loaded: int
    num_adapters_evicted: int


def collect_stats(state: SchedulerState) -> SchedulerStats:
    """The current counts. May be called from any thread; another thread's counts may lag by one step."""
    cache, connector, adapters = state.prefix_cache, state.connector, state.adapters
    return SchedulerStats(
        num_preemptions=state.num_preemptions,
        num_pages_free=state.pool.num_free,
        num_pages_cached=state.pool.num_cached,
        num_pages_referenced=max(0, state.pool.num_referenced),  # below 0 while another thread moves pages
        num_pages_referenced_by_group=_referenced_by_group(state.slot_table),
        num_pages_host=0 if connector is None else connector.num_used,
        num_cached_tokens=0 if cache is None else cache.num_hit,
        num_evicted=0 if cache is None else cache.num_evicted,
        num_saved=0 if connector is None else connector.num_saved,
        num_loaded=0 if connector is None else connector.num_loaded,
        num_adapters=0 if adapters is None else len(adapters.places),
        num_pages_adapters=0 if adapters is None else adapters.num_pages,
        num_adapters_loaded=0 if adapters is None else adapters.num_loaded,
        num_adapters_evicted=0 if adapters is None else adapters.num_evicted,
    )


def _referenced_by_group(slot_table: SlotTable) -> list[int]:
    columns = zip(slot_table.page_tables, slot_table.num_pages, slot_table.spare_pages, strict=True)
    return [
        len(np.unique(np.append(table[np.arange(table.shape[1]) < counts[:, None]], spares[spares > 0])))
        for table, counts, spares in columns
    ]
