"""Host: `AdmissionControl`: admits or refuses calls of a serving engine at once, while a step is under way."""

import threading
from collections.abc import Callable
from math import ceil

from jaxserve.core.errors import QueueFullError, RequestError
from jaxserve.core.request import Request
from jaxserve.core.time_window import TimeWindow
from jaxserve.engine.serving.engine_metrics import EngineMetrics
from jaxserve.scheduler.queue_limits import QueueLimits, QueueLoad, largest_cost, queue_cost

WINDOW_S = 30.0  # the rate at which the queue empties is that of so many seconds
MAX_RETRY_AFTER_S = 600


class AdmissionControl:
    """Checks the queue's limits for a serving engine; the scheduler's own check serves offline calls alone.

    The load is the last published one plus what was admitted and has not reached the engine. A call with several
    prompts is admitted like the largest of them alone, for the others wait in the `Backlog`. Any thread may call any
    method; the lock is held only briefly.
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

    def enter(self, key: int, requests: list[Request]) -> None:
        """Admit a call, known by the key of its first request, or raise as `check` does."""
        place = largest_cost(requests)
        with self._lock:
            self.check(*place)
            if not self._metrics.num_waiting:  # times in which the queue was empty do not count for its rate
                now = self._clock()
                self._left = {name: TimeWindow(WINDOW_S, now) for name in self._left}
            self._coming[key] = place
            self._count(*place)

    def join(self, key: int, request: Request) -> bool:
        """Admit a request of a call that has its place already, if a slot is free for which no request is queued."""
        cost = queue_cost([request])
        with self._lock:
            load = self._metrics.load.with_more(self._num_coming, self._num_coming_tokens)
            if load.num_waiting >= load.num_free:
                return False
            try:
                self._limits.check(load, *cost)
            except RequestError:
                return False
            self._coming[key] = cost
            self._count(*cost)
            return True

    def leave(self, key: int) -> None:
        """A call goes before it has reached the engine; no effect if it has reached it."""
        with self._lock:
            num_samples, num_tokens = self._coming.pop(key, (0, 0))
            self._count(-num_samples, -num_tokens)

    def arrive(self, key: int, load: QueueLoad) -> None:
        """What was admitted under `key`, if anything, has reached the engine, whose load is `load` now."""
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
