"""Host: replays requests through the prefix cache alone, and computes the best possible number of hits."""

import heapq
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from jaxserve.bench.prefix.prefix_trace import UnitSequences
from jaxserve.core.kv_groups import KVGroups
from jaxserve.kv.allocator import PagePool
from jaxserve.kv.eviction_policies import EVICTION_POLICIES
from jaxserve.kv.prefix_cache import PrefixCache


@dataclass(frozen=True, slots=True)
class Replay:
    """Result of one replay.

    capacity: units that fit. num_hit: units found. num_skipped: requests that do not fit. host_us: median time to
    match, take and insert a request.
    """

    policy: str
    capacity: int
    num_hit: int
    num_evicted: int
    num_skipped: int
    host_us: float


def replay(rows: UnitSequences, policy: str, capacity: int) -> Replay:
    """Replays one request after the other; its pages are referenced until it is inserted. Longer ones are skipped."""
    pool = PagePool(capacity + 1)
    seconds: list[float] = []
    cache = PrefixCache(pool, KVGroups((None,), 1), EVICTION_POLICIES[policy]())
    for row in rows:
        if len(row) > capacity:
            continue
        started_s = time.perf_counter()
        match = cache.match(None, row)
        cache.take(match)
        taken_s = time.perf_counter()
        missing = len(row) - match.num_pages
        if missing > pool.num_free:
            cache.evict(missing - pool.num_free)
        own = pool.allocate(missing)
        assert own is not None, "eviction frees unreferenced pages"
        inserting_s = time.perf_counter()
        pages = np.concatenate([match.pages[0], own])
        cache.insert(None, row, pages[None])
        seconds.append(time.perf_counter() - inserting_s + taken_s - started_s)
        pool.release(pages)
    num_skipped, host_us = len(rows) - len(seconds), 1e6 * float(np.median(seconds))
    return Replay(policy, capacity, cache.num_hit, cache.num_evicted, num_skipped, host_us)


def unlimited(rows: UnitSequences) -> int:
    """Units found without eviction: all except the first occurrence of each."""
    return sum(map(len, rows)) - num_units(rows)


def num_units(rows: UnitSequences) -> int:
    """The number of different units."""
    return len(np.unique(np.concatenate(rows)))


def farthest(rows: UnitSequences, capacity: int) -> int:
    """Units found by an oracle that evicts the leaf whose next use is farthest in the future (Belady, 1966)."""
    uses: dict[int, list[int]] = defaultdict(list)
    parents: dict[int, int] = {}
    for number, row in enumerate(rows):
        for i, unit in enumerate(row.tolist()):
            uses[unit].append(number)
            parents[unit] = int(row[i - 1]) if i else -1
    kept: set[int] = set()
    num_children: Counter[int] = Counter()
    leaves: list[tuple[int, int]] = []  # heap by next use, the farthest first; outdated entries are skipped
    num_hit = 0

    def next_use(unit: int, number: int) -> int:
        at = bisect_right(uses[unit], number)
        return uses[unit][at] if at < len(uses[unit]) else len(rows)

    def evict(number: int, in_use: set[int]) -> None:
        skipped: list[tuple[int, int]] = []
        while True:
            entry = heapq.heappop(leaves)
            unit = entry[1]
            if unit in kept and not num_children[unit] and -entry[0] == next_use(unit, number):
                if unit not in in_use:
                    break
                skipped.append(entry)
        for entry in skipped:
            heapq.heappush(leaves, entry)
        kept.discard(unit)
        parent = parents[unit]
        num_children[parent] -= 1
        if parent >= 0 and not num_children[parent]:
            heapq.heappush(leaves, (-next_use(parent, number), parent))

    for number, row in enumerate(rows):
        units = row.tolist()
        if len(units) > capacity:
            continue
        hit = next((i for i, unit in enumerate(units) if unit not in kept), len(units))
        num_hit += hit
        for unit in units[hit:]:
            if len(kept) == capacity:
                evict(number, set(units))
            kept.add(unit)
            num_children[parents[unit]] += 1
        if not num_children[units[-1]]:
            heapq.heappush(leaves, (-next_use(units[-1], number), units[-1]))
    return num_hit
