"""Host: `PrefixEvictor`: frees cached pages of the prefix cache, in the order of the eviction policy."""

import numpy as np

from jaxserve.core.kv_groups import KVGroups
from jaxserve.kv.allocator import PagePool
from jaxserve.kv.eviction_policies import EvictionCandidates, EvictionPolicy
from jaxserve.kv.kv_connector import KVConnector
from jaxserve.kv.radix_tree import RadixNode, RadixTree


class PrefixEvictor:
    """Evicts pages behind windows first, then pages from the ends of prefixes; num_evicted counts them.

    connector: receives copies of the latter, if there is one. Referenced pages are never evicted.
    """

    def __init__(
        self, tree: RadixTree, pool: PagePool, groups: KVGroups, policy: EvictionPolicy, connector: KVConnector | None
    ):
        self._tree, self._pool, self._groups, self._connector = tree, pool, groups, connector
        self._windowed = [g for g, window in enumerate(groups.windows) if window is not None]
        self._leaves = EvictionCandidates(policy, lambda node: node.parent is not None and not node.children)
        self._long = EvictionCandidates(policy, lambda node: node.parent is not None)  # may have pages behind windows
        self.num_evicted = 0

    def on_leaf(self, node: RadixNode) -> None:
        """A new leaf was added."""
        self._leaves.add(node)
        self.on_changed(node)

    def on_changed(self, node: RadixNode) -> None:
        """A node has other pages than before."""
        if self._windowed:
            self._long.add(node)

    def evict(self, count: int, now: int) -> None:
        """Free at least `count` cached pages; there must be as many. now: the cache's time."""
        wanted = self._pool.num_free + count
        for candidates, drop in ((self._long, self._drop_behind_windows), (self._leaves, self._evict_tail)):
            in_use: list[RadixNode] = []
            while self._pool.num_free < wanted and (node := candidates.pop()) is not None:
                if drop(node, wanted - self._pool.num_free, now):
                    in_use.append(node)
            for node in in_use:
                node.last_use = now
                candidates.add(node)
        if self._pool.num_free < wanted:
            self._drop_anywhere(wanted - self._pool.num_free)

    def forget(self, nodes: list[RadixNode]) -> None:
        """Drop the last of these nodes, each the parent of the next, until one has references or children."""
        for node in reversed(nodes):
            if self._connector is not None:
                self._connector.forget(self._tree.keys(node))
        for node in reversed(nodes):
            if node.children or not (num_columns := self._num_idle(node)):
                return
            self._drop_tail(node, num_columns)
            if node.parent is not None:
                return

    def clear(self) -> None:
        """Drop all pages; referenced ones stay with their sequences."""
        for node in self._tree:
            self._pool.drop(node.pages[node.pages != 0])
        self._tree.clear()
        self._leaves.clear()
        self._long.clear()

    def _drop_behind_windows(self, node: RadixNode, count: int, now: int) -> bool:
        """Free pages that only sequences branching off within the node would see; returns whether some are referenced.

        count: would be enough, but these pages are of so little use that all of them are freed.
        """
        is_referenced = False
        for g in self._windowed:
            first = self._groups.first_page(g, node.end * self._groups.page_size)
            passed = node.pages[g, : max(0, first - node.start)]
            self._drop(passed, self._is_idle(passed))
            is_referenced |= bool(passed.any())
        return is_referenced

    def _evict_tail(self, node: RadixNode, count: int, now: int) -> bool:
        """Free up to about `count` pages from the end of a leaf; returns whether a sequence references that end."""
        num_idle = self._num_idle(node)
        if not num_idle:
            return True
        sizes = np.count_nonzero(node.pages[:, node.num_pages - num_idle :], axis=0)[::-1]
        num_columns = min(int(np.searchsorted(np.cumsum(sizes), count)) + 1, num_idle)
        self._leaves.evicted_age = self._long.evicted_age = now - node.last_use
        if self._connector is not None:
            self._connector.save(self._tree.keys(node)[-num_columns:], node.pages[:, -num_columns:])
        self._drop_tail(node, num_columns)
        return False

    def _num_idle(self, node: RadixNode) -> int:
        """Columns at the end of a node without a referenced page."""
        is_referenced = (self._pool.references(node.pages) > 0).any(axis=0)
        return node.num_pages - 1 - int(np.flatnonzero(is_referenced).max(initial=-1))

    def _drop_tail(self, node: RadixNode, num_columns: int) -> None:
        tail = node.pages[:, node.num_pages - num_columns :]
        self._drop(tail, tail != 0)
        parent = self._tree.cut(node, num_columns)
        if node.parent is not None:
            self._leaves.add(node)
        elif parent is not None:
            self._leaves.add(parent)

    def _drop_anywhere(self, count: int) -> None:
        """Free cached pages within prefixes whose ends are referenced: behind windows, or where sequences reference
        equal pages of their own."""
        for node in self._tree:
            if count <= 0:
                break
            is_idle = self._is_idle(node.pages)
            count -= int(np.count_nonzero(is_idle))
            self._drop(node.pages, is_idle)

    def _is_idle(self, pages: np.ndarray) -> np.ndarray:
        """Which entries are pages without references."""
        return (pages != 0) & (self._pool.references(pages) == 0)

    def _drop(self, pages: np.ndarray, is_dropped: np.ndarray) -> None:
        """Free these entries of a node's pages, which is a view and is set to 0 there."""
        ids = pages[is_dropped]
        self._pool.drop(ids)
        self.num_evicted += len(ids)
        pages[is_dropped] = 0
