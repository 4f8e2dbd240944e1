"""The host tier: found pages were saved and are still there, for any order of copies; the oldest are replaced first."""

from unittest.mock import patch

import numpy as np
import pytest

from jaxserve.core.device_ops import PageSave
from jaxserve.core.kv_groups import KVGroups
from jaxserve.kv.allocator import PagePool
from jaxserve.kv.eviction_policies import EVICTION_POLICIES
from jaxserve.kv.host_tier import HostTier
from jaxserve.kv.prefix_cache import PrefixCache
from tests.support.fakes.cached_pages import used_host_pages

PAGE, NUM_GROUPS = 3, 2


def columns(*lines: list[int]) -> np.ndarray:
    return np.array(lines, np.int32).reshape(len(lines), -1)


def tokens_of(*pages: int) -> np.ndarray:
    return np.repeat(np.array(pages, np.int32), PAGE)


def found(host: HostTier, *keys: bytes) -> int:
    return len(host.find(keys)[0])


def test_the_end_of_a_prefix_is_replaced_first():
    host = HostTier(4, 1)
    host.save([b"a", b"ab", b"abc"], columns([1, 2, 3]))
    host.save([b"x", b"xy"], columns([4, 5]))
    assert (found(host, b"a", b"ab", b"abc"), found(host, b"x", b"xy")) == (2, 2)
    host.save([b"a"], columns([6]))  # saved already: only its last use changes
    host.save([b"p", b"q"], columns([7, 8]))
    assert (found(host, b"a", b"ab"), found(host, b"x", b"xy"), found(host, b"p", b"q")) == (1, 1, 2)
    assert host.num_saved == 7


def test_an_entry_does_not_replace_itself():
    host = HostTier(1, NUM_GROUPS)
    host.save([b"a"], columns([1], [2]))
    assert host.find([b"a"])[1].tolist() == [[1], [0]]
    host.save([b"b"], columns([0], [3]))
    assert (found(host, b"a"), host.find([b"b"])[1].tolist()) == (0, [[0], [1]])


def cache_with_host(num_pages: int = 40, num_host_pages: int = 40) -> tuple[PrefixCache, PagePool, HostTier]:
    pool, host = PagePool(num_pages), HostTier(num_host_pages, 1)
    return PrefixCache(pool, KVGroups((None,), PAGE), EVICTION_POLICIES["lru"](), host), pool, host


def insert(cache: PrefixCache, pool: PagePool, tokens: np.ndarray, namespace: str = "") -> None:
    pages = pool.allocate(len(tokens) // PAGE)
    assert pages is not None
    cache.insert(namespace, tokens, pages[None])
    pool.release(pages)


def test_an_evicted_prefix_is_matched_only_with_the_same_tokens_before_it():
    cache, pool, _ = cache_with_host()
    insert(cache, pool, tokens_of(1, 2, 3, 4), namespace="a")
    cache.evict(2)
    match = cache.match("a", tokens_of(1, 2, 3, 4, 5))
    assert ((match.pages[0] > 0).tolist(), match.num_loaded) == ([True, True, False, False], 2)
    assert cache.match("a", tokens_of(1, 2, 3, 4), may_load=False).num_pages == 2
    cache.evict(2)
    for namespace, pages, expected in [("a", (1, 2, 3), 3), ("a", (9, 2, 3), 0), ("a", (3, 4), 0), ("b", (1, 2), 0)]:
        assert cache.match(namespace, tokens_of(*pages)).num_pages == expected, (namespace, pages)


def test_a_failed_sequence_leaves_nothing_in_host_memory():
    cache, pool, host = cache_with_host()
    insert(cache, pool, tokens_of(1, 2))
    insert(cache, pool, tokens_of(1, 2, 3))
    cache.evict(1)
    assert host.num_used == 1
    insert(cache, pool, tokens_of(1, 2, 3))
    cache.forget("", tokens_of(1, 2, 3))
    assert (host.num_used, cache.match("", tokens_of(1, 2, 3)).num_pages) == (0, 0)


class Memory:
    """Contents of the pool and of host memory after the recorded copies; pages of the pool are labelled by the test."""

    def __init__(self) -> None:
        self.pool: dict[int, tuple[bytes, int]] = {}
        self.host: dict[int, tuple[bytes, int]] = {}

    def copy(self, host: HostTier) -> None:
        for transfer in host.take_transfers():
            for page, host_page in zip(transfer.pages.tolist(), transfer.host_pages.tolist(), strict=True):
                if isinstance(transfer, PageSave):
                    self.host[host_page] = self.pool[page]
                else:
                    self.pool[page] = self.host[host_page]


def run_randomly(seed: int, num_operations: int = 1500) -> None:
    """Random saves, loads and removals of entries; copies are made from time to time, in their order."""
    draw, host, memory = np.random.default_rng(seed), HostTier(12, NUM_GROUPS), Memory()
    page = 0
    for _ in range(num_operations):
        keys = [bytes([n]) for n in draw.choice(12, draw.integers(1, 5), replace=False)]
        operation = str(draw.choice(["save", "load", "forget", "copy"], p=[0.45, 0.4, 0.05, 0.1]))
        if operation == "save":
            pages = np.zeros((NUM_GROUPS, len(keys)), np.int32)
            for (g, j), is_there in np.ndenumerate(draw.random(pages.shape) < 0.8):
                if is_there:
                    page, pages[g, j] = page + 1, page + 1
                    memory.pool[page] = keys[j], g
            host.save(keys, pages)
        elif operation == "load":
            keys, host_pages = host.find(keys)
            host.pin(keys)
            # Pages are allocated now and evict others, whose copies must not replace pinned entries.
            evicted = [bytes([n]) for n in draw.choice(12, 2, replace=False)]
            for key in evicted:
                page += 1
                memory.pool[page] = key, 0
            host.save(evicted, columns([page - 1, page], [0, 0]))
            wanted = host_pages > 0
            targets = np.arange(page + 1, page + 1 + np.count_nonzero(wanted), dtype=np.int32)
            page += len(targets)
            host.load(keys, host_pages[wanted], targets)
            memory.copy(host)
            labels = [(keys[j], int(g)) for g, j in np.argwhere(wanted)]
            assert [memory.pool[target] for target in targets.tolist()] == labels
        elif operation == "forget":
            host.forget(keys)
        else:
            memory.copy(host)
        used = used_host_pages(host)
        assert len(used) == len(set(used)) == host.num_used <= host.num_pages
    assert host.num_loaded > num_operations / 4


@pytest.mark.parametrize("seed", range(3))
def test_loaded_pages_are_those_saved(seed):
    run_randomly(seed)


def pin_nothing(host: HostTier, keys: list[bytes]) -> None:
    host._pinned.update((key, host._entries[key]) for key in keys)


def test_the_random_run_finds_that_nothing_is_pinned():
    with patch.object(HostTier, "pin", pin_nothing), pytest.raises((AssertionError, KeyError)):
        run_randomly(seed=0)
