"""Wiring: `CompileClock`: counts the programs that JAX compiles in this process and measures how long they take."""

import time
from types import TracebackType
from typing import Any

EVENTS = "/jax/core/compile/"  # tracing, lowering and compiling each end with an event of this prefix
COMPILE_EVENT = EVENTS + "backend_compile_duration"
CACHE_HIT_EVENT = "/jax/compilation_cache/cache_hits"


class CompileClock:
    """Counts from `__enter__` to `__exit__`.

    num_compiled: programs that were compiled or read from the persistent cache. num_cached: those read from it.
    compile_s: seconds in the compiler or reading the cache; tracing and lowering are not part of it.
    """

    def __init__(self) -> None:
        self.num_compiled, self.num_cached, self.compile_s = 0, 0, 0.0
        self._spans: list[tuple[float, float]] = []  # (start, stop) of tracing, lowering and compiling; they may nest

    def __enter__(self) -> "CompileClock":
        from jax import monitoring

        monitoring.register_event_duration_secs_listener(self._on_duration)
        monitoring.register_event_listener(self._on_event)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from jax import monitoring

        monitoring.unregister_event_duration_listener(self._on_duration)
        monitoring.unregister_event_listener(self._on_event)

    @property
    def wall_s(self) -> float:
        """Seconds in which at least one program was traced, lowered or compiled."""
        total_s, last_s = 0.0, 0.0
        for start_s, stop_s in sorted(self._spans):
            total_s += max(0.0, stop_s - max(start_s, last_s))
            last_s = max(last_s, stop_s)
        return total_s

    def _on_duration(self, event: str, duration_secs: float, **_: Any) -> None:
        if event.startswith(EVENTS):
            stop_s = time.monotonic()
            self._spans.append((stop_s - duration_secs, stop_s))
        if event == COMPILE_EVENT:
            self.num_compiled += 1
            self.compile_s += duration_secs

    def _on_event(self, event: str, **_: Any) -> None:
        self.num_cached += event == CACHE_HIT_EVENT
