"""Host: `QueueLimits`: how many samples and tokens may wait. Requests above the limits are refused as a whole."""

from dataclasses import dataclass, replace

from jaxserve.core.errors import ConfigError, QueueFullError, RequestError
from jaxserve.core.request import Request
from jaxserve.scheduler.state import SchedulerState


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """The load of an engine at one moment.

    num_waiting, num_tokens: sequences that wait for a slot, and their tokens; num_deferred of them are deferred behind
    a shared prefix. num_running, num_free: of the num_slots. num_held: sequences of admitted calls that wait outside
    the queue, and count for no limit.
    """

    num_waiting: int
    num_tokens: int
    num_running: int
    num_free: int
    num_slots: int
    num_deferred: int = 0
    num_held: int = 0

    @classmethod
    def of(cls, state: SchedulerState) -> "QueueLoad":
        """The current load."""
        num_free, num_slots = len(state.slot_table.free_slots), len(state.slot_table.sequences)
        deferred = [sequence.num_tokens for group in state.deferring for sequence in group.deferred.values()]
        preparing = [sequence.num_tokens for sequence in state.preparing.values()]
        return cls(
            num_waiting=len(state.waiting) + len(deferred) + len(preparing),
            num_tokens=state.waiting.num_tokens + sum(deferred) + sum(preparing),
            num_running=state.num_running,
            num_free=num_free,
            num_slots=num_slots,
            num_deferred=len(deferred),
        )

    def with_more(self, num_waiting: int, num_tokens: int) -> "QueueLoad":
        """The load once these have joined the queue."""
        return replace(self, num_waiting=self.num_waiting + num_waiting, num_tokens=self.num_tokens + num_tokens)


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """max_num_waiting: sequences beyond those for which a slot is free. max_waiting_tokens: prompt tokens, and tokens
    that preempted sequences have generated. None: no limit.
    """

    max_num_waiting: int | None = None
    max_waiting_tokens: int | None = None

    def check_len(self, max_model_len: int) -> None:
        """Raise `ConfigError` unless an empty queue takes the longest prompt."""
        if self.max_waiting_tokens is not None and self.max_waiting_tokens < max_model_len:
            raise ConfigError(
                f"max_waiting_tokens={self.max_waiting_tokens} must be at least max_model_len={max_model_len}, so that "
                "an empty queue takes any prompt",
                param="max_waiting_tokens",
            )

    def check(self, load: QueueLoad, count: int, num_tokens: int) -> None:
        """Raise `QueueFullError`, or `RequestError` if not even an empty queue takes so many samples and tokens."""
        if self.max_num_waiting is not None:
            most = load.num_slots + self.max_num_waiting
            room = self.max_num_waiting + load.num_free
            _check("max_num_waiting", room, load.num_waiting, count, most, "samples")
        if self.max_waiting_tokens is not None:
            most = self.max_waiting_tokens
            _check("max_waiting_tokens", most, load.num_tokens, num_tokens, most, "tokens")


def _check(name: str, room: int, waiting: int, count: int, most: int, noun: str) -> None:
    """room: how many of `noun` may wait now. most: how many may wait in an otherwise empty queue."""
    if count > most:
        raise RequestError(f"{count} {noun} at once; {name} lets at most {most} wait: give fewer, or raise it", name)
    if waiting + count > room:
        raise QueueFullError(
            f"the queue is full: {waiting} {noun} wait, and {count} more are over {name}; try again when some have "
            "started",
            name,
            waiting + count - room,
        )


def queue_cost(requests: list[Request]) -> tuple[int, int]:
    """Samples and tokens that requests add to the queue."""
    counts = [request.params.num_sequences for request in requests]
    tokens = (count * len(request.prompt_token_ids) for count, request in zip(counts, requests, strict=True))
    return sum(counts), sum(tokens)


def largest_cost(requests: list[Request]) -> tuple[int, int]:
    """The most samples and the most tokens that one of these requests adds to the queue."""
    costs = [queue_cost([request]) for request in requests]
    return max(count for count, _ in costs), max(num_tokens for _, num_tokens in costs)
