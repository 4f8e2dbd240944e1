"""Host: `Watchdog`: detects a stalled engine from any thread; `EngineHealth`: what it reports."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineHealth:
    """is_dead: no more requests will be served; reason: why. has_work: a request has not ended, or has not reached the
    engine yet. stalled_s: while there is work, seconds since the last step ended, or since the work came."""

    is_dead: bool
    reason: str | None
    has_work: bool
    stalled_s: float


class Watchdog:
    """The time of the last progress while there is work.

    The engine's thread calls `beat` and `rest`, a thread with new work `begin`.
    """

    def __init__(self, clock: Callable[[], float]):
        self._clock = clock
        self._last_s: float | None = None  # None: nothing to do

    def begin(self) -> None:
        """There is work; its time counts from now unless there was work before."""
        if self._last_s is None:
            self._last_s = self._clock()

    def beat(self) -> None:
        """A step has ended."""
        self._last_s = self._clock()

    def rest(self) -> None:
        """There is no work."""
        self._last_s = None

    def health(self, reason: str | None) -> EngineHealth:
        """The health now. reason: why the engine is dead; None: it is not."""
        last_s = self._last_s
        if reason is not None or last_s is None:
            return EngineHealth(reason is not None, reason, False, 0.0)
        return EngineHealth(False, None, True, max(0.0, self._clock() - last_s))
