"""Host: `EngineStats`: counters of an engine's scheduler, for `LLM.stats` and the metrics of a server."""

from dataclasses import dataclass

from jaxserve.scheduler.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class EngineStats:
    """num_pages_held: by KV group, a page that several sequences hold counted once. num_pages_cached: pages of prefixes
    that no sequence uses at the moment. num_pages_host: pages in use in host memory. num_cached_tokens: tokens of all
    prompts that were found in either. num_evicted, num_saved, num_loaded: pages that left the cache, those that were
    copied to host memory, and those copied back."""

    num_preemptions: int
    num_pages_free: int
    num_pages_cached: int
    num_pages_held: list[int]
    num_pages_host: int
    num_cached_tokens: int
    num_evicted: int
    num_saved: int
    num_loaded: int


def engine_stats(scheduler: Scheduler) -> EngineStats:
    """Counters now. Reads plain numbers, so any thread may call it at any moment without waiting for a step; each
    number is then right by itself, though a step may change the next one before it is read."""
    prefixes, host = scheduler.state.prefixes, scheduler.state.host
    return EngineStats(
        num_preemptions=scheduler.num_preemptions,
        num_pages_free=scheduler.num_pages_free,
        num_pages_cached=scheduler.num_pages_cached,
        num_pages_held=scheduler.num_pages_held,
        num_pages_host=0 if host is None else host.num_used,
        num_cached_tokens=scheduler.num_cached_tokens,
        num_evicted=0 if prefixes is None else prefixes.num_evicted,
        num_saved=0 if host is None else host.num_saved,
        num_loaded=0 if host is None else host.num_loaded,
    )
