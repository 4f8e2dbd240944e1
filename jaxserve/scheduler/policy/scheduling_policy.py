"""Host: `SchedulingPolicy`: the base class of policies, which decide the order of starts and preemptions."""

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from typing import ClassVar, Protocol

import numpy as np

from jaxserve.core.sequence import Sequence
from jaxserve.scheduler.policy.waiting_queue import Key


class WaitingSequences(Protocol):
    """Sequences without a slot, in the order of the policy; see `WaitingQueue`."""

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
    """Which sequence is served first; preemption takes its victims from the other end.

    fields: those of `SchedulingOptions` that the policy uses; requests must leave out the others. waiting: the queue.
    """

    fields: ClassVar[tuple[str, ...]] = ()
    waiting: WaitingSequences

    def key(self, sequence: Sequence) -> Key:
        """The place of a sequence among the running ones: the first gets the pages it lacks from the last."""
        raise NotImplementedError

    def chunk_key(self, sequence: Sequence) -> Key:
        """The place of a running prompt among those that share the budget left by decoding sequences."""
        return self.key(sequence)

    def goes_ahead(self, waiting: Sequence, running: Sequence) -> bool:
        """Whether a waiting sequence gets its first chunk before the next chunk of a running prompt."""
        return False

    def victim_for(self, waiting: Sequence) -> Sequence | None:
        """The running sequence to preempt for a waiting one that finds no slot or no pages."""
        return None

    def on_add(self, sequence: Sequence) -> None:
        """A sequence was added; it is not in the queue yet."""

    def on_start(self, sequence: Sequence) -> None:
        """A sequence got a slot."""

    def on_vacate(self, sequence: Sequence) -> None:
        """A sequence lost its slot."""

    def on_end(self, sequence: Sequence) -> None:
        """A sequence ended."""

    def charge_prompt(self, sequence: Sequence, num_tokens: int) -> None:
        """So many tokens of a prompt are computed for the first time."""

    def charge_generated(self, sequences: SequenceOf[Sequence], counts: np.ndarray) -> None:
        """Each sequence has drawn so many tokens: int[len(sequences)]."""


def aged_priority(sequence: Sequence, ageing_s: float) -> Key:
    """Priority that grows with waiting: a step of priority is worth `ageing_s` seconds.

    A request is placed like one of priority 0 that arrives priority · ageing_s later. The key never changes, so no
    queue is sorted again as time passes; and only requests that arrive until then come before it: no starvation.
    """
    request = sequence.request
    waits_since_s = request.arrival_s if request.queued_s is None else request.queued_s
    return waits_since_s + request.scheduling.priority * ageing_s, sequence.sequence_id
