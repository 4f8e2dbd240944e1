"""Host: `WaitingQueue`: sequences without a slot, sorted by a policy's key."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from itertools import takewhile

from jaxserve.core.sequence import Sequence

Key = tuple[float, ...]
"""Unique for each sequence; the lowest is served first."""


class WaitingQueue:
    """Sorted by a key that never changes: a preempted sequence returns to the place of its arrival.

    num_tokens: prompt tokens and generated tokens of all sequences in the queue.
    """

    def __init__(self, key: Callable[[Sequence], Key]):
        self._key = key
        self._sequences: list[Sequence] = []
        self.num_tokens = 0

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._sequences)

    def first(self) -> Sequence:
        return self._sequences[0]

    def add(self, sequence: Sequence) -> None:
        insort(self._sequences, sequence, key=self._key)
        self.num_tokens += sequence.num_tokens

    def remove(self, sequence: Sequence) -> None:
        del self._sequences[bisect_left(self._sequences, self._key(sequence), key=self._key)]
        self.num_tokens -= sequence.num_tokens

    def peers(self) -> Iterator[Sequence]:
        """The first sequence and those after it of the same priority: among these the prefix cache may choose."""
        priority = self.first().request.scheduling.priority
        return takewhile(lambda other: other.request.scheduling.priority == priority, self._sequences)

    def ahead_of(self, sequence: Sequence) -> Iterator[Sequence]:
        """The sequences before this one, which need not be in the queue."""
        key = self._key(sequence)
        return takewhile(lambda other: self._key(other) < key, self._sequences)
