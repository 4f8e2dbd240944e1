"""Host: the order in which sequences are served, and the queue of those that wait."""

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Iterator

from jaxserve.core.sequence import Sequence


class Order(ABC):
    """Who is served first; from the other end come the victims of preemption."""

    @abstractmethod
    def key(self, sequence: Sequence) -> int:
        """Unique for each sequence and never changing; the lower, the earlier served."""


class FirstComeFirstServed(Order):
    def key(self, sequence: Sequence) -> int:
        return sequence.sequence_id


ORDERS: dict[str, type[Order]] = {"fcfs": FirstComeFirstServed}


class WaitingQueue:
    """Sequences without a slot, sorted: a preempted one comes back to where its arrival puts it."""

    def __init__(self, order: Order):
        self._order = order
        self._sequences: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._sequences)

    def first(self) -> Sequence:
        return self._sequences[0]

    def add(self, sequence: Sequence) -> None:
        insort(self._sequences, sequence, key=self._order.key)

    def remove(self, sequence: Sequence) -> None:
        del self._sequences[bisect_left(self._sequences, self._order.key(sequence), key=self._order.key)]
