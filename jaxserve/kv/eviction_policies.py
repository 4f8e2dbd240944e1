"""Host: in which order cached prefixes make room: policies, and the candidates they choose among."""

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable

from jaxserve.kv.radix_tree import RadixNode


class EvictionPolicy(ABC):
    """Says which node is worth least."""

    @abstractmethod
    def key(self, node: RadixNode, evicted_age: float) -> float:
        """The lower, the earlier evicted.

        evicted_age: how long the nodes that are evicted now have not been used, in the tree's time.
        """


class LeastRecentlyUsed(EvictionPolicy):
    def key(self, node: RadixNode, evicted_age: float) -> float:
        return node.last_use


class HitsProlong(EvictionPolicy):
    """Least recently used, where a node that was ever taken over stays longer, by 0.6 times the age of eviction.

    What was used twice is likelier to be used again: on the Mooncake conversation trace with room for a tenth of its
    blocks this hits 79 % as often as unlimited room would, and plain recency 76 % (`jaxserve bench prefix --trace`).
    """

    def key(self, node: RadixNode, evicted_age: float) -> float:
        return node.last_use + 0.6 * evicted_age * (node.num_hits > 0)


EVICTION_POLICIES: dict[str, type[EvictionPolicy]] = {"hits": HitsProlong, "lru": LeastRecentlyUsed}


class EvictionCandidates:
    """Nodes that may be evicted, the least worthy first.

    An entry keeps the key that its node had then, and is looked at again when it comes to the top: keys rise with use.
    is_candidate: whether a node still is one; those that are not are dropped on the way.
    """

    def __init__(self, policy: EvictionPolicy, is_candidate: Callable[[RadixNode], bool]):
        self._policy, self._is_candidate = policy, is_candidate
        self._heap: list[tuple[float, int, RadixNode]] = []
        self._nodes: set[RadixNode] = set()  # those in the heap
        self._num_added = 0
        self.evicted_age = 0.0

    def add(self, node: RadixNode) -> None:
        """Nothing happens if it is there already."""
        if node not in self._nodes:
            self._nodes.add(node)
            self._num_added += 1
            heapq.heappush(self._heap, (self._policy.key(node, self.evicted_age), self._num_added, node))

    def pop(self) -> RadixNode | None:
        """Take out the least worthy; None if there is none."""
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
        self._heap.clear()
        self._nodes.clear()
