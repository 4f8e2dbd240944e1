"""Host: `PrefixCache`: KV pages that outlive their sequences and are found by their tokens.

A sequence takes over the pages of its longest cached prefix, and inserts its own full pages as they are committed.
Referenced pages are never evicted.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from jaxserve.core.kv_groups import KVGroups
from jaxserve.kv.allocator import PagePool
from jaxserve.kv.eviction_policies import EvictionPolicy
from jaxserve.kv.kv_connector import KVConnector
from jaxserve.kv.prefix_evictor import PrefixEvictor
from jaxserve.kv.radix_tree import Path, RadixNode, RadixTree, page_keys, root_key


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """The longest prefix of some tokens that can be taken over.

    pages[g, j]: page j of KV group g; -p for place p of the connector; 0 for none, or where no token after the match
    sees it. path: through the tree, possibly beyond the match. stored_keys: keys of the last pages, which only the
    connector has. version: of the cache when it was asked.
    """

    num_pages: int
    pages: np.ndarray
    path: Path
    stored_keys: list[bytes]
    version: int

    @property
    def in_pool(self) -> np.ndarray:
        """The pages of the pool that a sequence takes over."""
        return self.pages[self.pages > 0]

    @property
    def num_loaded(self) -> int:
        """Pages to load from the connector."""
        return int(np.count_nonzero(self.pages < 0))


class PrefixCache:
    """A radix tree over a pool's pages, whose evicted pages go to a connector. num_hit: tokens taken over; num_evicted:
    pages evicted from the pool.

    A windowed group's page is freed once no running sequence sees it, unless the cache keeps it. A match therefore ends
    where every windowed group still has its last window. version changes with the content; a match of another version
    may not be valid.
    """

    def __init__(self, pool: PagePool, groups: KVGroups, policy: EvictionPolicy, connector: KVConnector | None = None):
        self._pool, self._groups, self._connector = pool, groups, connector
        self._tree = RadixTree(groups.num_groups, groups.page_size)
        self._evictor = PrefixEvictor(self._tree, pool, groups, policy, connector)
        self._time = 0
        self.version = 0
        self.num_hit = 0

    @property
    def num_evicted(self) -> int:
        return self._evictor.num_evicted

    def match(self, namespace: object, tokens: np.ndarray, *, may_load: bool = True) -> PrefixMatch:
        """The cached prefix of `tokens`, in full pages; changes nothing.

        may_load: include pages of the connector.
        """
        path = self._tree.walk(namespace, tokens)
        nothing = np.zeros((self._groups.num_groups, 0), np.int32)
        pages = np.concatenate([nothing, *(node.pages[:, :count] for node, count in path)], axis=1)
        num_kept, stored_keys = pages.shape[1], list[bytes]()
        if self._connector is not None and may_load:
            stored_keys, places = self._connector.find(self._keys_after(namespace, path, tokens))
            pages = np.concatenate([pages, -places], axis=1)
        end = self._num_usable(pages)
        pages = pages[:, :end]
        for g, line in enumerate(pages):
            line[: self._groups.first_page(g, end * self._groups.page_size)] = 0
        return PrefixMatch(end, pages, path, stored_keys[: max(0, end - num_kept)], self.version)

    def take(self, match: PrefixMatch) -> None:
        """Reference the match's pages for a sequence; those of the connector are pinned until they are loaded."""
        if match.version != self.version:
            raise ValueError("the cache has changed since the match")
        self._pool.retain(match.in_pool)
        if self._connector is not None:
            self._connector.pin(match.stored_keys)
        self._time += 1
        self.num_hit += match.num_pages * self._groups.page_size
        for node, count in match.path:
            if node.start < match.num_pages:
                self._use(node, min(count, match.num_pages - node.start)).num_hits += 1

    def insert(self, namespace: object, tokens: np.ndarray, pages: np.ndarray) -> np.ndarray:
        """Keep the pages of a sequence that references them: tokens int32[n x page size], pages int32[G, n], 0: none.

        Returns the page that the cache has for each: another one if an equal page was inserted before.
        """
        path = self._tree.walk(namespace, tokens)
        kept, at, node = pages.copy(), 0, None
        self._time += 1
        for whole, count in path:
            node = self._use(whole, count)
            old, new = node.pages, pages[:, at : at + count]
            is_missing = (old == 0) & (new != 0)
            if is_missing.any():
                old[is_missing] = new[is_missing]
                self._pool.keep(new[is_missing])
                self.version += 1
                self._evictor.on_changed(node)
            kept[:, at : at + count] = np.where(new != 0, old, 0)
            at += count
        if at < pages.shape[1]:
            own = pages[:, at:]
            node = self._tree.add(namespace, node, tokens[at * self._groups.page_size :], own)
            node.last_use = self._time
            self._pool.keep(own[own != 0])
            self.version += 1
            self._evictor.on_leaf(node)
        return kept

    def evict(self, count: int) -> None:
        """Free at least `count` cached pages; there must be as many."""
        self.version += 1
        self._evictor.evict(count, self._time)

    def forget(self, namespace: object, tokens: np.ndarray) -> None:
        """Drop the end of a prefix, as far as only this sequence has inserted it and no sequence references it."""
        self.version += 1
        self._evictor.forget([node for node, _ in self._tree.walk(namespace, tokens)])

    def clear(self) -> None:
        """Drop all pages, the connector's too; referenced pages stay with their sequences."""
        self.version += 1
        self._evictor.clear()
        if self._connector is not None:
            self._connector.clear()

    def _keys_after(self, namespace: object, path: Path, tokens: np.ndarray) -> Iterator[bytes]:
        """Keys of the pages of `tokens` after the path."""
        size, num_pages = self._groups.page_size, sum(count for _, count in path)
        before = self._tree.keys(path[-1][0])[path[-1][1] - 1] if path else root_key(namespace)
        return page_keys(before, tokens[num_pages * size :], size)

    def _num_usable(self, pages: np.ndarray) -> int:
        """The longest prefix of these pages after which every group has all pages that the next token sees."""
        num_pages = int(pages.shape[1])
        if pages.all():
            return num_pages
        ends = np.arange(1, num_pages + 1)
        is_usable = np.ones(num_pages, bool)
        for g, line in enumerate(pages):
            last_gap = np.maximum.accumulate(np.where(line == 0, ends - 1, -1))
            is_usable &= last_gap < self._groups.first_page(g, ends * self._groups.page_size)
        return int(ends[is_usable].max(initial=0))

    def _use(self, node: RadixNode, count: int) -> RadixNode:
        """The node of the first `count` pages, marked as used now; the other pages become a node of their own, which
        the paths of earlier matches do not know."""
        head = self._tree.split(node, count)
        head.last_use = self._time
        if head is not node:
            self.version += 1
            self._evictor.on_changed(head)
        return head
