"""Host: sequences without a slot, sorted."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from itertools import takewhile

from jaxserve.core.sequence import Sequence

Key = tuple[float, ...]
"""Of an order: unique for each sequence; the lower, the earlier served."""


class WaitingQueue:
    """By a key that never changes: a preempted sequence comes back to where its arrival puts it.

    num_tokens: prompts and what preempted sequences have drawn, all together.
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
        """The first one and those behind it up to another priority: among these the cache may choose."""
        priority = self.first().request.scheduling.priority
        return takewhile(lambda other: other.request.scheduling.priority == priority, self._sequences)

    def ahead_of(self, sequence: Sequence) -> Iterator[Sequence]:
        """Those that stand, or stood, before it."""
        key = self._key(sequence)
        return takewhile(lambda other: self._key(other) < key, self._sequences)
