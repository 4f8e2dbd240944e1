"""Host: replays requests through the prefix cache alone, and says what could have been hit."""

import heapq
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from jaxserve.bench.prefix.prefix_trace import Rows
from jaxserve.core.kv_groups import KVGroups
from jaxserve.kv.allocator import PagePool
from jaxserve.kv.eviction_policies import EVICTION_POLICIES
from jaxserve.kv.prefix_cache import PrefixCache


@dataclass(frozen=True, slots=True)
class Replay:
    """capacity: units that fit. num_hit: units found. host_us: median time of match, take and insert a request."""

    policy: str
    capacity: int
    num_hit: int
    num_evicted: int
    host_us: float


def replay(rows: Rows, policy: str, capacity: int) -> Replay:
    """One request after the other, each held until it is inserted; one that does not fit is left out."""
    pool, seconds = PagePool(capacity + 1), []
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
        assert own is not None, "what nobody holds was evicted"
        inserting_s = time.perf_counter()
        pages = np.concatenate([match.pages[0], own])
        cache.insert(None, row, pages[None])
        seconds.append(time.perf_counter() - inserting_s + taken_s - started_s)
        pool.release(pages)
    return Replay(policy, capacity, cache.num_hit, cache.num_evicted, 1e6 * float(np.median(seconds)))


def unlimited(rows: Rows) -> int:
    """Units found where nothing is ever evicted: each but the first time that it comes."""
    return sum(map(len, rows)) - num_units(rows)


def num_units(rows: Rows) -> int:
    """Different units."""
    return len(np.unique(np.concatenate(rows)))


def farthest(rows: Rows, capacity: int) -> int:
    """Units found by whoever knows the future, and evicts the leaf whose next use is farthest (Belady, 1966)."""
    uses: dict[int, list[int]] = defaultdict(list)
    parents: dict[int, int] = {}
    for number, row in enumerate(rows):
        for i, unit in enumerate(row.tolist()):
            uses[unit].append(number)
            parents[unit] = int(row[i - 1]) if i else -1
    kept: set[int] = set()
    num_children: Counter[int] = Counter()
    leaves: list[tuple[int, int]] = []  # by next use, the farthest first; entries of before a use are passed over
    num_hit = 0

    def next_use(unit: int, number: int) -> int:
        at = bisect_right(uses[unit], number)
        return uses[unit][at] if at < len(uses[unit]) else len(rows)

    def evict(number: int, in_use: set[int]) -> None:
        held = []
        while True:
            entry = heapq.heappop(leaves)
            unit = entry[1]
            if unit in kept and not num_children[unit] and -entry[0] == next_use(unit, number):
                if unit not in in_use:
                    break
                held.append(entry)
        for entry in held:
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
