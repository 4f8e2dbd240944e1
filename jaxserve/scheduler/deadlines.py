"""Host: `Deadlines`, the moments at which sequences end unless they have started, or ended, before."""

from heapq import heappop, heappush

from jaxserve.core.sequence import Sequence


class Deadlines:
    """A heap of moments on the clock that requests arrive by; a step costs one comparison while none has passed."""

    def __init__(self) -> None:
        self._moments: list[tuple[float, int, bool]] = []  # moment, sequence id, whether it is spared once started

    def watch(self, sequence: Sequence) -> None:
        arrival_s, service = sequence.request.arrival_s, sequence.request.scheduling
        if service.queue_timeout_s is not None:
            heappush(self._moments, (arrival_s + service.queue_timeout_s, sequence.sequence_id, True))
        if service.deadline_s is not None:
            heappush(self._moments, (arrival_s + service.deadline_s, sequence.sequence_id, False))

    def take_late(self, sequences: dict[int, Sequence], now_s: float) -> list[Sequence]:
        """Those of the living sequences whose moment has come, each once; their moments are forgotten."""
        late: dict[int, Sequence] = {}
        while self._moments and self._moments[0][0] <= now_s:
            _, sequence_id, is_spared = heappop(self._moments)
            sequence = sequences.get(sequence_id)
            if sequence is not None and not (is_spared and sequence.has_started):
                late[sequence_id] = sequence
        return list(late.values())
