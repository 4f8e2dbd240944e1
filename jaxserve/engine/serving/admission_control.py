"""Host: `AdmissionControl`: admits or refuses requests of a serving engine at once, while a step is under way."""

import threading
from collections.abc import Callable, Mapping
from math import ceil

from jaxserve.core.errors import QueueFullError
from jaxserve.core.request import Request
from jaxserve.core.time_window import TimeWindow
from jaxserve.engine.serving.engine_metrics import EngineMetrics
from jaxserve.scheduler.queue_limits import QueueLimits, QueueLoad, queue_cost

WINDOW_S = 30.0  # the rate at which the queue empties is that of so many seconds
MAX_RETRY_AFTER_S = 600


class AdmissionControl:
    """Checks the queue's limits for a serving engine; the scheduler's own check serves offline calls alone.

    The load is the last published one plus the accepted requests that have not reached the engine. Any thread may call
    any method; the lock is held only briefly.
    """

    def __init__(self, limits: QueueLimits, metrics: EngineMetrics, clock: Callable[[], float]):
        self._limits, self._metrics, self._clock = limits, metrics, clock
        self._lock = threading.RLock()
        self._coming: dict[int, tuple[int, int]] = {}  # samples and tokens by key, until the engine has them
        self._num_coming = self._num_coming_tokens = 0
        self._left = {name: TimeWindow(WINDOW_S, clock()) for name in ("max_num_waiting", "max_waiting_tokens")}

    def check(self, num_samples: int, num_tokens: int) -> None:
        """Raise `QueueFullError` with the time to try again, or `RequestError` where that would never help."""
        with self._lock:
            load = self._metrics.load.with_more(self._num_coming, self._num_coming_tokens)
            try:
                self._limits.check(load, num_samples, num_tokens)
            except QueueFullError as error:
                self._metrics.refuse(error.param or "")
                error.retry_after_s = self._retry_after_s(error)
                raise

    def enter(self, requests: Mapping[int, Request]) -> None:
        """Admit requests by key: all of them, or raise as `check` does."""
        num_samples, num_tokens = queue_cost(list(requests.values()))
        with self._lock:
            self.check(num_samples, num_tokens)
            if not self._metrics.num_waiting:  # times in which the queue was empty do not count for its rate
                now = self._clock()
                self._left = {name: TimeWindow(WINDOW_S, now) for name in self._left}
            self._coming.update((key, queue_cost([request])) for key, request in requests.items())
            self._count(num_samples, num_tokens)

    def is_coming(self, key: int) -> bool:
        """Whether the request was admitted and has neither reached the engine nor left."""
        return key in self._coming

    def leave(self, key: int) -> None:
        """A request goes before it has reached the engine; no effect if it has reached it."""
        with self._lock:
            num_samples, num_tokens = self._coming.pop(key, (0, 0))
            self._count(-num_samples, -num_tokens)

    def arrive(self, key: int, load: QueueLoad) -> None:
        """A request has reached the engine, whose load is `load` now."""
        with self._lock:
            num_samples, num_tokens = self._coming.pop(key, (0, 0))
            self._count(-num_samples, -num_tokens)
            self._metrics.load = self._metrics.load.with_more(num_samples, num_tokens)
            self.publish(load)

    def publish(self, load: QueueLoad) -> None:
        """The engine's load is `load` now, and no request has reached it since the last call."""
        with self._lock:
            before, self._metrics.load = self._metrics.load, load
            if before.num_waiting or before.num_tokens:
                now = self._clock()
                self._left["max_num_waiting"].add(now, max(0, before.num_waiting - load.num_waiting))
                self._left["max_waiting_tokens"].add(now, max(0, before.num_tokens - load.num_tokens))

    def _count(self, num_samples: int, num_tokens: int) -> None:
        self._num_coming += num_samples
        self._num_coming_tokens += num_tokens
        self._metrics.num_coming = self._num_coming

    def _retry_after_s(self, error: QueueFullError) -> int:
        """Seconds until the excess has left the queue at its recent rate; if nothing has left, the length of the
        observed window."""
        now, left = self._clock(), self._left[error.param or "max_num_waiting"]
        total, seconds = left.total(now), left.covered_s(now)
        if total:
            seconds *= error.excess / total
        return max(1, min(ceil(seconds), MAX_RETRY_AFTER_S))
