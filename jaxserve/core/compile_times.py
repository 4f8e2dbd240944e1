"""Host: `CompileTimes`: which programs a process compiles now, and the time that it has spent so."""

import itertools
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

from jaxserve.core.deferred_signals import deferred_signals


class CompileTimes:
    """Written by the threads that compile, read by whatever shows progress or measures a rate."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys = itertools.count()
        self._running: dict[int, tuple[str, float]] = {}  # name and start, the oldest first
        self._busy_since_s = 0.0
        self._busy_s = 0.0  # in which at least one program was compiled, up to `_busy_since_s`
        self._num_done, self._done_s = 0, 0.0

    @contextmanager
    def compiling(self, name: str) -> Generator[None]:
        """A program is compiled within it."""
        key = next(self._keys)
        try:  # an interrupt leaves nothing behind that would be compiled for ever
            with deferred_signals(), self._lock:
                self._begin(key, name)
            yield
        finally:
            with deferred_signals(), self._lock:
                if key in self._running:
                    self._end(key)

    def work_s(self) -> float:
        """A monotonic clock that stands still while anything is compiled: rates by it leave compilation out."""
        with self._lock:
            now_s = self._busy_since_s if self._running else time.monotonic()
            return now_s - self._busy_s

    def status(self) -> str:
        """What is compiled now, and for how long; empty where nothing is."""
        with self._lock:
            return f"compiling {self._oldest()[0]} for {self._oldest()[1]:.0f} s" if self._running else ""

    def left(self) -> str:
        """How long that takes still if it takes as long as those before on average; empty where none was before."""
        with self._lock:
            if not self._running or not self._num_done:
                return ""
            left_s = self._done_s / self._num_done - self._oldest()[1]
        return about_left(left_s) if left_s >= 1 else ""

    def _begin(self, key: int, name: str) -> None:
        started_s = time.monotonic()
        if not self._running:
            self._busy_since_s = started_s
        self._running[key] = name, started_s

    def _end(self, key: int) -> None:
        stopped_s = time.monotonic()
        _, started_s = self._running.pop(key)
        self._num_done += 1
        self._done_s += stopped_s - started_s
        if not self._running:
            self._busy_s += stopped_s - self._busy_since_s

    def _oldest(self) -> tuple[str, float]:
        name, started_s = next(iter(self._running.values()))
        return name, time.monotonic() - started_s


def about_left(seconds: float) -> str:
    """An estimate of the time left, in no more digits than it deserves."""
    for unit_s, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * unit_s:
            return f"about {seconds / unit_s:.0f} {unit} left"
    return f"about {seconds:.0f} s left"


COMPILE_TIMES = CompileTimes()  # of this process, as its standard error has one line for progress
