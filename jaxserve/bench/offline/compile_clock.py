"""Wiring: `CompileClock`, how often XLA compiled in this process and for how long."""

from types import TracebackType
from typing import Any

COMPILE_EVENT = "/jax/core/compile/backend_compile_duration"


class CompileClock:
    """Counts while it is entered. seconds: in the compiler, or reading its persistent cache; tracing is apart."""

    def __init__(self) -> None:
        self.num_compiled, self.seconds = 0, 0.0

    def __enter__(self) -> "CompileClock":
        from jax import monitoring

        monitoring.register_event_duration_secs_listener(self._listen)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from jax import monitoring

        monitoring.unregister_event_duration_listener(self._listen)

    def _listen(self, event: str, duration_secs: float, **_: Any) -> None:
        if event == COMPILE_EVENT:
            self.num_compiled += 1
            self.seconds += duration_secs
