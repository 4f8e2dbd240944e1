"""Host: the orders in which sequences are served: by arrival, or by priority that grows with waiting."""

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from typing import ClassVar, Protocol

import numpy as np

from jaxserve.core.options.policy_options import PRIORITY_AGEING_S
from jaxserve.core.sequence import Sequence
from jaxserve.scheduler.policy.waiting_queue import Key, WaitingQueue


class WaitingSequences(Protocol):
    """Sequences without a slot, in the order of service; see `WaitingQueue`."""

    @property
    def num_tokens(self) -> int: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Sequence]: ...
    def first(self) -> Sequence: ...
    def add(self, sequence: Sequence) -> None: ...
    def remove(self, sequence: Sequence) -> None: ...
    def peers(self) -> Iterator[Sequence]: ...
    def ahead_of(self, sequence: Sequence) -> Iterator[Sequence]: ...


class SchedulingPolicy:
    """Who is served first; from the other end come the victims of preemption.

    fields: those of a request's `Service` that it goes by; others must be left out. waiting: the queue.
    """

    fields: ClassVar[tuple[str, ...]] = ()
    waiting: WaitingSequences

    def key(self, sequence: Sequence) -> Key:
        """The place of a sequence among those that run: who is first gets what it lacks from the last."""
        raise NotImplementedError

    def chunk_key(self, sequence: Sequence) -> Key:
        """The place of a running prompt among those that share what decoding sequences leave of a step's budget."""
        return self.key(sequence)

    def goes_ahead(self, waiting: Sequence, running: Sequence) -> bool:
        """Whether one that waits gets its first chunk before the next one of a running prompt."""
        return False

    def yields_to(self, waiting: Sequence) -> Sequence | None:
        """The running one that must give its slot and pages to one that waits and finds none."""
        return None

    def enter(self, sequence: Sequence) -> None:
        """It has come; it is not in the queue yet."""

    def start(self, sequence: Sequence) -> None:
        """It has got a slot."""

    def leave(self, sequence: Sequence) -> None:
        """It has lost its slot."""

    def exit(self, sequence: Sequence) -> None:
        """It has ended."""

    def charge_read(self, sequence: Sequence, num_tokens: int) -> None:
        """So many tokens of its prompt are computed for the first time."""

    def charge_drawn(self, sequences: SequenceOf[Sequence], counts: np.ndarray) -> None:
        """Each has drawn so many tokens."""


class FirstComeFirstServed(SchedulingPolicy):
    """In the order of arrival."""

    def __init__(self) -> None:
        self.waiting = WaitingQueue(self.key)

    def key(self, sequence: Sequence) -> Key:
        return (sequence.sequence_id,)


class ByPriority(SchedulingPolicy):
    """By priority, the lower the earlier; a step of priority is worth `priority_ageing_s` of waiting.

    So a request stands where one of priority 0 would that came priority · priority_ageing_s later. Its place never
    changes, and of those to come only so many can stand before it as come until then: it ages, and nothing is sorted
    again as time passes.
    """

    fields = ("priority",)

    def __init__(self, priority_ageing_s: float = PRIORITY_AGEING_S):
        self._ageing_s = priority_ageing_s
        self.waiting = WaitingQueue(self.key)

    def key(self, sequence: Sequence) -> Key:
        request = sequence.request
        return request.arrival_s + request.scheduling.priority * self._ageing_s, sequence.sequence_id
