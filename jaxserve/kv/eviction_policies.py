"""Host: eviction policies of the prefix cache, and the heap of nodes that they order."""

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable

from jaxserve.kv.radix_tree import RadixNode


class EvictionPolicy(ABC):
    """The order in which nodes are evicted."""

    @abstractmethod
    def key(self, node: RadixNode, evicted_age: float) -> float:
        """The lowest is evicted first.

        evicted_age: time since the last use of the nodes that are evicted at present, in the cache's time.
        """


class LeastRecentlyUsed(EvictionPolicy):
    """By the time of last use."""

    def key(self, node: RadixNode, evicted_age: float) -> float:
        return node.last_use


class HitsProlong(EvictionPolicy):
    """Least recently used, except that a node with a hit stays longer, by 0.6 times the age at eviction.

    A prefix that was used twice is likelier to be used again: on the Mooncake conversation trace, with capacity for a
    tenth of its blocks, the hit rate is 79 % of that with unlimited capacity, and 76 % with plain recency
    (`jaxserve bench prefix --trace`).
    """

    def key(self, node: RadixNode, evicted_age: float) -> float:
        return node.last_use + 0.6 * evicted_age * (node.num_hits > 0)


EVICTION_POLICIES: dict[str, type[EvictionPolicy]] = {"hits": HitsProlong, "lru": LeastRecentlyUsed}


class EvictionCandidates:
    """A heap of nodes that may be evicted.

    An entry has the key that its node had when it was added. Keys only rise with use, so a key is computed again when
    its entry reaches the top. is_candidate: whether a node may still be evicted; others are removed at the top.
    """

    def __init__(self, policy: EvictionPolicy, is_candidate: Callable[[RadixNode], bool]):
        self._policy, self._is_candidate = policy, is_candidate
        self._heap: list[tuple[float, int, RadixNode]] = []
        self._nodes: set[RadixNode] = set()  # those in the heap
        self._num_added = 0
        self.evicted_age = 0.0

    def add(self, node: RadixNode) -> None:
        """Add a node unless it is in the heap."""
        if node not in self._nodes:
            self._nodes.add(node)
            self._num_added += 1
            heapq.heappush(self._heap, (self._policy.key(node, self.evicted_age), self._num_added, node))

    def pop(self) -> RadixNode | None:
        """Remove and return the node to evict first; None if there is none."""
        while self._heap:
            key, _, node = heapq.heappop(self._heap)
            self._nodes.remove(node)
            if not self._is_candidate(node):
                continue
            if self._policy.key(node, self.evicted_age) <= key:
                return node
            self.add(node)
        return None

    def clear(self) -> None:
        """Remove all nodes."""
        self._heap.clear()
        self._nodes.clear()
