"""Host: `TenantQueues`: one queue and one counter of received service per tenant.

Virtual token counter (Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024, algorithm 2).
"""

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace

from jaxserve.core.sequence import Sequence
from jaxserve.scheduler.policy.waiting_queue import Key, WaitingQueue

MAX_TENANTS = 4096  # above this, counters of idle tenants are dropped
ENTRY = 16  # tokens by which the counter of each returning tenant is lifted above that of the one before


@dataclass(slots=True, eq=False)
class Tenant:
    """served: cost of its tokens, over its weight. running: its sequences in running slots, by key.

    num_living: its sequences that have not ended. number: counts the tenants that became active. is_listed: the tenant
    is in the heap of tenants with waiting sequences.
    """

    weight: float
    waiting: WaitingQueue
    running: list[Sequence] = field(default_factory=list[Sequence])
    served: float = 0.0
    num_living: int = 0
    number: int = 0
    is_listed: bool = False

    @property
    def turn(self) -> tuple[float, int]:
        """The tenant that was served least goes first; of equals, the one that became active last."""
        return self.served, -self.number

    def charge(self, cost: float) -> None:
        """Add the cost of tokens."""
        self.served += cost / self.weight

    def rank_of(self, number: int) -> float:
        """The rank of its running sequence with this number: the higher, the more the tenant runs for its weight."""
        return number / self.weight


class TenantQueues:
    """The next sequence is the first of the tenant that was served least.

    The counter of a tenant that becomes active rises to the minimum of the active ones: idle time earns no credit. It
    also rises `ENTRY` tokens above that of the tenant that became active before, so an endless series of new tenants
    does not starve those that wait.
    """

    def __init__(self, key: Callable[[Sequence], Key], weights: Mapping[str, float]):
        self._key, self._weights = key, weights
        self._tenants: dict[str | None, Tenant] = {}
        self._heap: list[tuple[float, int, Tenant]] = []  # turns when listed; the current ones are equal or later
        self._num_lifted = self._num_waiting = self.num_tokens = 0
        self._newest = -math.inf  # counter of the tenant that became active last, at that moment

    def __len__(self) -> int:
        return self._num_waiting

    def __iter__(self) -> Iterator[Sequence]:
        waiting = [tenant for tenant in self._tenants.values() if tenant.waiting]
        for tenant in sorted(waiting, key=lambda tenant: tenant.turn):
            yield from tenant.waiting

    def first(self) -> Sequence:
        return self._least_served().waiting.first()

    def peers(self) -> Iterator[Sequence]:
        return self._least_served().waiting.peers()

    def ahead_of(self, sequence: Sequence) -> Iterator[Sequence]:
        return self.of(sequence).waiting.ahead_of(sequence)

    def add(self, sequence: Sequence) -> None:
        tenant = self.of(sequence)
        tenant.waiting.add(sequence)
        self._num_waiting += 1
        self.num_tokens += sequence.num_tokens
        if not tenant.is_listed:
            tenant.is_listed = True
            heappush(self._heap, (*tenant.turn, tenant))

    def remove(self, sequence: Sequence) -> None:
        self.of(sequence).waiting.remove(sequence)
        self._num_waiting -= 1
        self.num_tokens -= sequence.num_tokens

    def on_add(self, sequence: Sequence) -> None:
        """Count a new sequence; its tenant may become active."""
        tenant = self.of(sequence)
        if not tenant.num_living:
            self._activate(tenant)
        tenant.num_living += 1

    def on_start(self, sequence: Sequence) -> None:
        """Count a sequence as running."""
        insort(self.of(sequence).running, sequence, key=self._key)

    def rank(self, sequence: Sequence) -> float:
        """How many sequences of the tenant run before this running one, over the tenant's weight."""
        tenant = self.of(sequence)
        return tenant.rank_of(bisect_left(tenant.running, self._key(sequence), key=self._key))

    def victim_for(self, tenant: Tenant) -> Sequence | None:
        """The last running sequence of the tenant that runs most for its weight.

        None unless that tenant still runs at least as much afterwards, and has its turn later: otherwise it would take
        the slot back.
        """
        others = [other for other in self._tenants.values() if other.running and other.turn > tenant.turn]
        richest = max(others, key=lambda other: other.rank_of(len(other.running) - 1), default=None)
        if richest is None or richest.rank_of(len(richest.running) - 1) <= tenant.rank_of(len(tenant.running)):
            return None
        return richest.running[-1]

    def of(self, sequence: Sequence) -> Tenant:
        """The tenant of a sequence, new if it has none yet."""
        name = sequence.request.scheduling.tenant
        tenant = self._tenants.get(name)
        if tenant is None:
            weight = 1.0 if name is None else self._weights.get(name, 1.0)
            tenant = self._tenants[name] = Tenant(weight, WaitingQueue(self._key))
        return tenant

    def _activate(self, tenant: Tenant) -> None:
        self._num_lifted += 1
        tenant.number, tenant.is_listed = self._num_lifted, False
        active = {name: other for name, other in self._tenants.items() if other.num_living}
        if not active or len(self._tenants) > MAX_TENANTS:
            name = next(name for name, other in self._tenants.items() if other is tenant)
            self._tenants = active | {name: tenant}
        if not active:  # no other tenant to be compared with
            tenant.served, self._newest = 0.0, -math.inf
            return
        least = min(other.served for other in active.values())
        self._newest = max(least, self._newest + ENTRY / tenant.weight)
        tenant.served = max(tenant.served, self._newest)

    def _least_served(self) -> Tenant:
        """Heap entries are updated as they reach the top, because turns only become later."""
        while True:
            served, number, tenant = self._heap[0]
            if -number != tenant.number:
                heappop(self._heap)
            elif not tenant.waiting:
                heappop(self._heap)
                tenant.is_listed = False
            elif served < tenant.served:
                heapreplace(self._heap, (*tenant.turn, tenant))
            else:
                return tenant
