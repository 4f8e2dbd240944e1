"""`Clock`: CPU time of one thread by part of a step; nested parts are subtracted from the outer one."""

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

Nanoseconds = Callable[[], int]


class Clock:
    """Accumulates CPU time of the calling thread, which excludes waiting for the device and other processes.

    now: replaces the clock in tests.
    """

    def __init__(self, now: Nanoseconds = time.thread_time_ns):
        self._now = now
        self._own: dict[str, int] = defaultdict(int)
        self._inside = 0  # time of the parts nested in the running one

    def watch(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps the function so that its calls are timed under this name."""

        def call(*args: Any, **options: Any) -> Any:
            outside, self._inside = self._inside, 0
            started = self._now()
            try:
                return function(*args, **options)
            finally:
                taken = self._now() - started
                self._own[name] += taken - self._inside
                self._inside = outside + taken

        return call

    def take(self) -> dict[str, float]:
        """Returns the microseconds by part since the last call, and resets them."""
        taken = {name: ns / 1e3 for name, ns in self._own.items()}
        self._own.clear()
        return taken
