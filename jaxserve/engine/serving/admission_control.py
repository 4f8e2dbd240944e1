"""Host: `AdmissionControl`, the door of the queue: who may come in is decided at once, whatever the engine is doing."""

from collections.abc import Callable, Mapping
from math import ceil
from typing import Any

from jaxserve.core.errors import QueueFullError
from jaxserve.core.request import Request
from jaxserve.core.time_window import TimeWindow
from jaxserve.engine.serving.engine_metrics import EngineMetrics
from jaxserve.scheduler.queue_limits import QueueLimits, QueueLoad, queue_cost

WINDOW_S = 30.0  # the queue's pace is that of so many seconds
MAX_RETRY_AFTER_S = 600


class AdmissionControl:
    """Bounds hold over how full the engine was when it told last, and what was let in and has not come to it yet.

    Its methods may be called from any thread, but by one at a time: whoever owns it has a lock for that, which it never
    holds for long.
    """

    def __init__(self, bounds: QueueLimits, meters: EngineMetrics, clock: Callable[[], float]):
        self._bounds, self._meters, self._clock = bounds, meters, clock
        self._coming: dict[object, tuple[int, int]] = {}  # samples and tokens of each that the engine has not got yet
        self._num_coming = self._num_coming_tokens = 0
        self._left = {name: TimeWindow(WINDOW_S, clock()) for name in ("max_num_waiting", "max_waiting_tokens")}

    def check(self, num_samples: int, num_tokens: int) -> None:
        """Raise `QueueFullError` with the time to try again, or `RequestError` where that would never help."""
        load = self._meters.load.with_more(self._num_coming, self._num_coming_tokens)
        try:
            self._bounds.check(load, num_samples, num_tokens)
        except QueueFullError as error:
            self._meters.refuse(error.param or "")
            error.retry_after_s = self._retry_after_s(error)
            raise

    def enter(self, requests: Mapping[Any, Request]) -> None:
        """Let requests in, each by a name of its own: all of them, or raise as `check` does."""
        num_samples, num_tokens = queue_cost(list(requests.values()))
        self.check(num_samples, num_tokens)
        if not self._meters.num_waiting:  # the queue's pace is not that of times in which it was empty
            now = self._clock()
            self._left = {name: TimeWindow(WINDOW_S, now) for name in self._left}
        self._coming.update((who, queue_cost([request])) for who, request in requests.items())
        self._count(num_samples, num_tokens)

    def is_coming(self, who: object) -> bool:
        """Whether it was let in, has not arrived and has not gone."""
        return who in self._coming

    def leave(self, who: object) -> None:
        """One that was let in goes before it has come to the engine; nothing happens if it has come."""
        num_samples, num_tokens = self._coming.pop(who, (0, 0))
        self._count(-num_samples, -num_tokens)

    def arrive(self, who: object, load: QueueLoad) -> None:
        """It has come to the engine, which is this full now."""
        num_samples, num_tokens = self._coming.pop(who, (0, 0))
        self._count(-num_samples, -num_tokens)
        self._meters.load = self._meters.load.with_more(num_samples, num_tokens)
        self.publish(load)

    def publish(self, load: QueueLoad) -> None:
        """The engine is this full now, and nothing has come to it since it told last."""
        before, self._meters.load = self._meters.load, load
        if before.num_waiting or before.num_tokens:
            now = self._clock()
            self._left["max_num_waiting"].add(now, max(0, before.num_waiting - load.num_waiting))
            self._left["max_waiting_tokens"].add(now, max(0, before.num_tokens - load.num_tokens))

    def _count(self, num_samples: int, num_tokens: int) -> None:
        self._num_coming += num_samples
        self._num_coming_tokens += num_tokens
        self._meters.num_coming = self._num_coming

    def _retry_after_s(self, error: QueueFullError) -> int:
        """When as many will have left as are too many; where none has left, after as long again."""
        now, left = self._clock(), self._left[error.param or "max_num_waiting"]
        total, seconds = left.total(now), left.covered_s(now)
        if total:
            seconds *= error.excess / total
        return max(1, min(ceil(seconds), MAX_RETRY_AFTER_S))
