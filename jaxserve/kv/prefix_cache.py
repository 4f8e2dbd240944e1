"""Host: `PrefixCache`, KV pages that outlive their sequences, found again by the tokens that they hold.

A sequence takes over the pages of the longest beginning that is kept, and gives its own whole pages to the cache when
they are committed. Pages that a sequence holds are never evicted: its references are the lock.
"""

from dataclasses import dataclass

import numpy as np

from jaxserve.core.kv_groups import KVGroups
from jaxserve.kv.allocator import PagePool
from jaxserve.kv.eviction import Candidates, EvictionPolicy
from jaxserve.kv.radix import Node, Path, RadixTree


@dataclass(frozen=True, slots=True)
class Match:
    """The longest beginning of some tokens that can be taken over.

    pages[g, j]: where group g has page j; only pages that a token after the match can see count. path: through the
    tree, maybe beyond the match. version: of the cache that was asked.
    """

    num_pages: int
    pages: np.ndarray
    path: Path
    version: int

    def ids(self, groups: KVGroups) -> np.ndarray:
        """The pages that a sequence takes over: whole, or only what its windows still see."""
        start = self.num_pages * groups.page_size
        firsts = [groups.first_page(g, start) for g in range(groups.num_groups)]
        return np.concatenate([line[first:] for line, first in zip(self.pages, firsts, strict=True)])


class PrefixCache:
    """A radix tree over a pool's pages; num_hit counts tokens taken over, num_evicted pages.

    A windowed group's page is gone once no running sequence sees it, unless the cache keeps it; a match therefore ends
    where every windowed group still has its last window. version changes with what is kept: a match of before may not
    hold any more.
    """

    def __init__(self, pool: PagePool, groups: KVGroups, policy: EvictionPolicy):
        self._pool, self._groups = pool, groups
        self._tree = RadixTree(groups.num_groups, groups.page_size)
        self._windowed = [g for g, window in enumerate(groups.windows) if window is not None]
        self._leaves = Candidates(policy, lambda node: node.parent is not None and not node.children)
        self._long = Candidates(policy, lambda node: node.parent is not None)  # may have pages behind windows
        self._time = 0
        self.version = 0
        self.num_hit = self.num_evicted = 0

    def match(self, namespace: object, tokens: np.ndarray) -> Match:
        """What is kept of the beginning of `tokens`, in whole pages; nothing is changed by asking."""
        path = self._tree.walk(namespace, tokens)
        num_pages = sum(count for _, count in path)
        nothing = np.zeros((self._groups.num_groups, 0), np.int32)
        pages = np.concatenate([nothing, *(node.pages[:, :count] for node, count in path)], axis=1)
        end = self._usable(pages, num_pages)
        return Match(end, pages[:, :end], path, self.version)

    def take(self, match: Match) -> None:
        """Hold the match's pages for a sequence."""
        if match.version != self.version:
            raise ValueError("the cache has changed since the match")
        self._pool.retain(match.ids(self._groups))
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
                self._note_length(node)
            kept[:, at : at + count] = np.where(new != 0, had, 0)
            at += count
        if at < pages.shape[1]:
            own = pages[:, at:]
            node = self._tree.add(namespace, node, tokens[at * self._groups.page_size :], own)
            node.last_use = self._time
            self._pool.keep(own[own != 0])
            self.version += 1
            self._leaves.add(node)
            self._note_length(node)
        return kept

    def evict(self, count: int) -> None:
        """Free at least `count` pages that nobody holds; there must be as many."""
        self.version += 1
        wanted = self._pool.num_free + count
        for candidates, drop in ((self._long, self._drop_behind_windows), (self._leaves, self._drop_tail)):
            in_use = []
            while self._pool.num_free < wanted and (node := candidates.pop()) is not None:
                if drop(node, wanted - self._pool.num_free):
                    in_use.append(node)
            for node in in_use:
                node.last_use = self._time
                candidates.add(node)
        if self._pool.num_free < wanted:
            self._drop_anywhere(wanted - self._pool.num_free)

    def clear(self) -> None:
        """Keep nothing any more; pages that sequences hold stay theirs."""
        self.version += 1
        for node in self._tree:
            self._pool.drop(node.pages[node.pages != 0])
        self._tree.clear()
        self._leaves.clear()
        self._long.clear()

    @property
    def kept_pages(self) -> np.ndarray:
        """Every page that is kept, held or not, once for each place in the tree."""
        return np.concatenate([np.zeros(0, np.int32), *(node.pages[node.pages != 0] for node in self._tree)])

    def _usable(self, pages: np.ndarray, num_pages: int) -> int:
        """The most pages, of those that agree, after which every group has all that the next token sees."""
        if pages.all():
            return num_pages
        ends = np.arange(1, num_pages + 1)
        is_usable = np.ones(num_pages, bool)
        for g, line in enumerate(pages):
            last_gap = np.maximum.accumulate(np.where(line == 0, ends - 1, -1))
            is_usable &= last_gap < self._groups.first_page(g, ends * self._groups.page_size)
        return int(ends[is_usable].max(initial=0))

    def _use(self, node: Node, count: int) -> Node:
        """The node of these first pages, which somebody uses now; others of its pages become a node of their own."""
        head = self._tree.split(node, count)
        head.last_use = self._time
        if head is not node:
            self._note_length(head)
        return head

    def _note_length(self, node: Node) -> None:
        if self._windowed:
            self._long.add(node)

    def _is_idle(self, pages: np.ndarray) -> np.ndarray:
        """Which entries are pages that nobody holds."""
        return (pages != 0) & (self._pool.references(pages) == 0)

    def _drop(self, pages: np.ndarray, is_dropped: np.ndarray) -> None:
        """Free the entries named of a node's pages, a view that is written to."""
        ids = pages[is_dropped]
        self._pool.drop(ids)
        self.num_evicted += len(ids)
        pages[is_dropped] = 0

    def _drop_behind_windows(self, node: Node, count: int) -> bool:
        """Free what only sequences that part within the node would need; whether some of it is held.

        count: would do, but these pages are of so little use that all of them go.
        """
        is_held = False
        for g in self._windowed:
            first = self._groups.first_page(g, node.end * self._groups.page_size)
            passed = node.pages[g, : max(0, first - node.start)]
            self._drop(passed, self._is_idle(passed))
            is_held |= bool(passed.any())
        return is_held

    def _drop_tail(self, node: Node, count: int) -> bool:
        """Free about `count` pages, if there are as many, from the end of a leaf; whether a sequence holds its end."""
        is_held = (self._pool.references(node.pages) > 0).any(axis=0)
        last_held = int(np.flatnonzero(is_held).max(initial=-1))
        sizes = np.count_nonzero(node.pages[:, last_held + 1 :], axis=0)[::-1]
        if not len(sizes):
            return True
        num_columns = min(int(np.searchsorted(np.cumsum(sizes), count)) + 1, len(sizes))
        self._leaves.evicted_age = self._long.evicted_age = self._time - node.last_use
        tail = node.pages[:, node.num_pages - num_columns :]
        self._drop(tail, tail != 0)
        parent = self._tree.cut(node, num_columns)
        if node.parent is not None:
            self._leaves.add(node)
        elif parent is not None:
            self._leaves.add(parent)
        return False

    def forget(self, namespace: object, tokens: np.ndarray) -> None:
        """Keep no longer what only this sequence has brought, as far as nobody holds it."""
        self.version += 1
        for node, _ in reversed(self._tree.walk(namespace, tokens)):
            if node.children or self._drop_tail(node, node.pages.size) or node.parent is not None:
                return

    def _drop_anywhere(self, count: int) -> None:
        """Free pages within prefixes whose ends are held: of windows that have passed, or of sequences that hold equal
        pages of their own."""
        for node in self._tree:
            if count <= 0:
                break
            is_idle = self._is_idle(node.pages)
            count -= int(np.count_nonzero(is_idle))
            self._drop(node.pages, is_idle)
