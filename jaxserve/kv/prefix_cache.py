"""Host: `PrefixCache`, KV pages that outlive their sequences, found again by the tokens that they hold.

A sequence takes over the pages of the longest beginning that is kept, and gives its own whole pages to the cache when
they are committed. Pages that a sequence holds are never evicted: its references are the lock.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from jaxserve.core.kv_groups import KVGroups
from jaxserve.kv.allocator import PagePool
from jaxserve.kv.eviction_policies import EvictionPolicy
from jaxserve.kv.host_tier import HostTier
from jaxserve.kv.prefix_evictor import PrefixEvictor
from jaxserve.kv.radix_tree import Path, RadixNode, RadixTree, page_keys, root_key


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """The longest beginning of some tokens that can be taken over.

    pages[g, j]: where group g has page j, -h for page h of host memory, 0 for nothing; where no token after the match
    can see a page it is 0 too. path: through the tree, maybe beyond the match. host_keys: of the last pages, those that
    the tree does not have. version: of the cache that was asked.
    """

    num_pages: int
    pages: np.ndarray
    path: Path
    host_keys: list[bytes]
    version: int

    @property
    def in_pool(self) -> np.ndarray:
        """The pages that a sequence takes over."""
        return self.pages[self.pages > 0]

    @property
    def num_loaded(self) -> int:
        """Pages that must come from host memory."""
        return int(np.count_nonzero(self.pages < 0))


class PrefixCache:
    """A radix tree over a pool's pages, and what was evicted of it to host memory; num_hit counts tokens taken over.

    A windowed group's page is gone once no running sequence sees it, unless the cache keeps it; a match therefore ends
    where every windowed group still has its last window. version changes with what is kept: a match of before may not
    hold any more.
    """

    def __init__(self, pool: PagePool, groups: KVGroups, policy: EvictionPolicy, host: HostTier | None = None):
        self._pool, self._groups, self._host = pool, groups, host
        self._tree = RadixTree(groups.num_groups, groups.page_size)
        self._evictor = PrefixEvictor(self._tree, pool, groups, policy, host)
        self._time = 0
        self.version = 0
        self.num_hit = 0

    def match(self, namespace: object, tokens: np.ndarray, *, may_load: bool = True) -> PrefixMatch:
        """What is kept of the beginning of `tokens`, in whole pages; nothing is changed by asking.

        may_load: pages in host memory count too.
        """
        path = self._tree.walk(namespace, tokens)
        nothing = np.zeros((self._groups.num_groups, 0), np.int32)
        pages = np.concatenate([nothing, *(node.pages[:, :count] for node, count in path)], axis=1)
        num_kept, host_keys = pages.shape[1], list[bytes]()
        if self._host is not None and may_load:
            host_keys, host_pages = self._host.find(self._keys_after(namespace, path, tokens))
            pages = np.concatenate([pages, -host_pages], axis=1)
        end = self._usable(pages)
        pages = pages[:, :end]
        for g, line in enumerate(pages):
            line[: self._groups.first_page(g, end * self._groups.page_size)] = 0
        return PrefixMatch(end, pages, path, host_keys[: max(0, end - num_kept)], self.version)

    def take(self, match: PrefixMatch) -> None:
        """Hold the match's pages for a sequence; those in host memory are held until the host tier has loaded them."""
        if match.version != self.version:
            raise ValueError("the cache has changed since the match")
        self._pool.retain(match.in_pool)
        if self._host is not None:
            self._host.hold(match.host_keys)
        self._time += 1
        self.num_hit += match.num_pages * self._groups.page_size
        for node, count in match.path:
            if node.start < match.num_pages:
                self._use(node, min(count, match.num_pages - node.start)).num_hits += 1

    def insert(self, namespace: object, tokens: np.ndarray, pages: np.ndarray) -> np.ndarray:
        """Keep the pages of a sequence that holds them: tokens int32[n x page size], pages int32[G, n], 0 for none.

        Returns where the cache has each page: elsewhere than the sequence, if an equal one came before.
        """
        path = self._tree.walk(namespace, tokens)
        kept, at, node = pages.copy(), 0, None
        self._time += 1
        for whole, count in path:
            node = self._use(whole, count)
            had, new = node.pages, pages[:, at : at + count]
            is_missing = (had == 0) & (new != 0)
            if is_missing.any():
                had[is_missing] = new[is_missing]
                self._pool.keep(new[is_missing])
                self.version += 1
                self._evictor.note_length(node)
            kept[:, at : at + count] = np.where(new != 0, had, 0)
            at += count
        if at < pages.shape[1]:
            own = pages[:, at:]
            node = self._tree.add(namespace, node, tokens[at * self._groups.page_size :], own)
            node.last_use = self._time
            self._pool.keep(own[own != 0])
            self.version += 1
            self._evictor.note_leaf(node)
        return kept

    def evict(self, count: int) -> None:
        """Free at least `count` pages that nobody holds; there must be as many."""
        self.version += 1
        self._evictor.evict(count, self._time)

    def forget(self, namespace: object, tokens: np.ndarray) -> None:
        """Keep no longer what only this sequence has brought, as far as nobody holds it."""
        self.version += 1
        self._evictor.forget([node for node, _ in self._tree.walk(namespace, tokens)])

    def clear(self) -> None:
        """Keep nothing any more; pages that sequences hold stay theirs."""
        self.version += 1
        self._evictor.clear()
        if self._host is not None:
            self._host.clear()

    @property
    def num_evicted(self) -> int:
        """Pages evicted from the pool."""
        return self._evictor.num_evicted

    @property
    def kept_pages(self) -> np.ndarray:
        """Every page that is kept, held or not, once for each place in the tree."""
        return np.concatenate([np.zeros(0, np.int32), *(node.pages[node.pages != 0] for node in self._tree)])

    def _keys_after(self, namespace: object, path: Path, tokens: np.ndarray) -> Iterator[bytes]:
        """The keys of the pages of `tokens` after the path's."""
        size, num_pages = self._groups.page_size, sum(count for _, count in path)
        before = self._tree.keys(path[-1][0])[path[-1][1] - 1] if path else root_key(namespace)
        return page_keys(before, tokens[num_pages * size :], size)

    def _usable(self, pages: np.ndarray) -> int:
        """The most of these pages after which every group has all that the next token sees."""
        num_pages = pages.shape[1]
        if pages.all():
            return num_pages
        ends = np.arange(1, num_pages + 1)
        is_usable = np.ones(num_pages, bool)
        for g, line in enumerate(pages):
            last_gap = np.maximum.accumulate(np.where(line == 0, ends - 1, -1))
            is_usable &= last_gap < self._groups.first_page(g, ends * self._groups.page_size)
        return int(ends[is_usable].max(initial=0))

    def _use(self, node: RadixNode, count: int) -> RadixNode:
        """The node of these first pages, which somebody uses now; others of its pages become a node of their own."""
        head = self._tree.split(node, count)
        head.last_use = self._time
        if head is not node:
            self._evictor.note_length(head)
        return head
