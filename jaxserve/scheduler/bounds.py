"""Host: `QueueBounds`, how much may wait; what would bring more is refused whole, before anything has changed."""

from dataclasses import dataclass

from jaxserve.core.errors import ConfigError, QueueFullError, RequestError
from jaxserve.core.request import Request
from jaxserve.scheduler.sharing import num_held
from jaxserve.scheduler.state import SchedulerState


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """None: no bound. max_num_waiting: sequences beyond those for which a slot is free. max_waiting_tokens: of prompts,
    and what preempted sequences have drawn besides."""

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

    def check(self, state: SchedulerState, requests: list[Request]) -> None:
        """Raise `QueueFullError`, or `RequestError` where an empty queue would not take the requests either."""
        count = sum(request.params.n for request in requests)
        if self.max_num_waiting is not None:
            held = num_held(state)
            waiting, free = len(state.waiting) + held, len(state.columns.free_slots)
            most = len(state.columns.sequences) + self.max_num_waiting
            _check("max_num_waiting", self.max_num_waiting + free, waiting, count, most, "samples")
        if self.max_waiting_tokens is not None:
            num_tokens = sum(request.params.n * len(request.prompt_token_ids) for request in requests)
            held = sum(s.num_tokens for sharing in state.holding for s in sharing.held.values())
            waiting, most = state.waiting.num_tokens + held, self.max_waiting_tokens
            _check("max_waiting_tokens", most, waiting, num_tokens, most, "tokens")


def _check(name: str, room: int, waiting: int, count: int, most: int, noun: str) -> None:
    """room: of `noun` that may wait now. most: that may wait where nobody else does."""
    if count > most:
        raise RequestError(f"{count} {noun} at once; {name} lets at most {most} wait: give fewer, or raise it", name)
    if waiting + count > room:
        raise QueueFullError(
            f"the queue is full: {waiting} {noun} wait, and {count} more are over {name}; try again when some have "
            "started",
            name,
        )
