"""Host: tenants, what each was served, and the queue that takes from the one that was served least."""

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace

from jaxserve.core.sequence import Sequence
from jaxserve.scheduler.policy.waiting_queue import Key, WaitingQueue

MAX_TENANTS = 4096  # beyond, what those were served who have nothing here is forgotten
ENTRY = 16  # tokens that the next one who comes is lifted above one who has come


@dataclass(slots=True, eq=False)
class Tenant:
    """served: cost of the tokens on its account, over its weight. running: its sequences in slots, in their order.

    num_living: its sequences that have not ended. number: those that came with nothing here are counted. is_listed: it
    stands in the heap of those that wait.
    """

    weight: float
    waiting: WaitingQueue
    running: list[Sequence] = field(default_factory=list)
    served: float = 0.0
    num_living: int = 0
    number: int = 0
    is_listed: bool = False

    @property
    def turn(self) -> tuple[float, int]:
        """Who was served least goes first; of equals, who came last."""
        return self.served, -self.number

    def charge(self, cost: float) -> None:
        self.served += cost / self.weight

    def rank_of(self, number: int) -> float:
        """The rank of its running sequence with this number: the higher, the more it has for its weight."""
        return number / self.weight


class TenantQueues:
    """One queue a tenant; the next is the first of the tenant that was served least (virtual token counter; Sheng et
    al., "Fairness in Serving Large Language Models", OSDI 2024, algorithm 2).

    A tenant that comes with nothing here is lifted to the least of those that have something: nobody saves up for
    later. It is also lifted some tokens above the one who came before, so that an endless row of new tenants passes
    everybody who waits.
    """

    def __init__(self, key: Callable[[Sequence], Key], weights: Mapping[str, float]):
        self._key, self._weights = key, weights
        self._tenants: dict[str | None, Tenant] = {}
        self._heap: list[tuple[float, int, Tenant]] = []  # turns when listed: by now they may be later, not earlier
        self._num_lifted = self._num_waiting = self.num_tokens = 0
        self._newest = -math.inf  # what the last one was lifted to

    def __len__(self) -> int:
        return self._num_waiting

    def __iter__(self) -> Iterator[Sequence]:
        waiting = [tenant for tenant in self._tenants.values() if tenant.waiting]
        for tenant in sorted(waiting, key=lambda tenant: tenant.turn):
            yield from tenant.waiting

    def first(self) -> Sequence:
        return self._least().waiting.first()

    def peers(self) -> Iterator[Sequence]:
        return self._least().waiting.peers()

    def ahead_of(self, sequence: Sequence) -> Iterator[Sequence]:
        return self.of(sequence).waiting.ahead_of(sequence)

    def enter(self, sequence: Sequence) -> None:
        tenant = self.of(sequence)
        if not tenant.num_living:
            self._lift(tenant)
        tenant.num_living += 1

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

    def start(self, sequence: Sequence) -> None:
        insort(self.of(sequence).running, sequence, key=self._key)

    def leave(self, sequence: Sequence) -> None:
        self.of(sequence).running.remove(sequence)

    def rank(self, sequence: Sequence) -> float:
        """Of a running sequence: how many of the tenant's run before it, over its weight."""
        tenant = self.of(sequence)
        return tenant.rank_of(bisect_left(tenant.running, self._key(sequence), key=self._key))

    def yields_to(self, tenant: Tenant) -> Sequence | None:
        """The last running sequence of the tenant with most for its weight, if that would not be the poorer after it,
        and has its turn later: else it would take the slot back."""
        others = [other for other in self._tenants.values() if other.running and other.turn > tenant.turn]
        richest = max(others, key=lambda other: other.rank_of(len(other.running) - 1), default=None)
        if richest is None or richest.rank_of(len(richest.running) - 1) <= tenant.rank_of(len(tenant.running)):
            return None
        return richest.running[-1]

    def of(self, sequence: Sequence) -> Tenant:
        name = sequence.request.scheduling.tenant
        tenant = self._tenants.get(name)
        if tenant is None:
            weight = 1.0 if name is None else self._weights.get(name, 1.0)
            tenant = self._tenants[name] = Tenant(weight, WaitingQueue(self._key))
        return tenant

    def _lift(self, tenant: Tenant) -> None:
        self._num_lifted += 1
        tenant.number, tenant.is_listed = self._num_lifted, False
        active = {name: other for name, other in self._tenants.items() if other.num_living}
        if not active or len(self._tenants) > MAX_TENANTS:
            name = next(name for name, other in self._tenants.items() if other is tenant)
            self._tenants = active | {name: tenant}
        if not active:  # where nobody waits or runs there is nothing to be fair about
            tenant.served, self._newest = 0.0, -math.inf
            return
        least = min(other.served for other in active.values())
        self._newest = max(least, self._newest + ENTRY / tenant.weight)
        tenant.served = max(tenant.served, self._newest)

    def _least(self) -> Tenant:
        """Entries of the heap are brought up to date as they come to its top, for turns only become later."""
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
