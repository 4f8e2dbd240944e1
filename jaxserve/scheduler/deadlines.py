"""Host: `Deadlines`: the times at which sequences end unless they have started, or ended, before."""

from heapq import heappop, heappush

from jaxserve.core.sequence import Sequence


class Deadlines:
    """A heap of times on the clock of the arrival times; a step without a late sequence costs one comparison."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, bool]] = []  # time, sequence id, whether a started sequence is exempt

    def watch(self, sequence: Sequence) -> None:
        """Add the queue timeout and the deadline of a sequence, if it has them."""
        arrival_s, scheduling = sequence.request.arrival_s, sequence.request.scheduling
        if scheduling.queue_timeout_s is not None:
            heappush(self._heap, (arrival_s + scheduling.queue_timeout_s, sequence.sequence_id, True))
        if scheduling.deadline_s is not None:
            heappush(self._heap, (arrival_s + scheduling.deadline_s, sequence.sequence_id, False))

    def take_late(self, sequences: dict[int, Sequence], now_s: float) -> list[Sequence]:
        """Remove all times up to `now_s`; returns the sequences that are late, each once.

        sequences: those that have not ended, by id.
        """
        late: dict[int, Sequence] = {}
        while self._heap and self._heap[0][0] <= now_s:
            _, sequence_id, is_exempt_once_started = heappop(self._heap)
            sequence = sequences.get(sequence_id)
            if sequence is not None and not (is_exempt_once_started and sequence.has_started):
                late[sequence_id] = sequence
        return list(late.values())
