"""`Clock`, what parts of a step cost one thread, each without the parts within it."""

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

Nanoseconds = Callable[[], int]


class Clock:
    """Counts processor time of the calling thread: neither waiting for the device nor other processes are in it.

    now: another clock, for tests.
    """

    def __init__(self, now: Nanoseconds = time.thread_time_ns):
        self._now = now
        self._own: dict[str, int] = defaultdict(int)
        self._inside = 0  # taken by the parts within the one that runs

    def watch(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed under this name."""

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
        """Microseconds by part since the last call."""
        taken = {name: ns / 1e3 for name, ns in self._own.items()}
        self._own.clear()
        return taken
