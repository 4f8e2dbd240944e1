"""Host: `deferred_signals`: a block of code that no signal handler interrupts."""

import signal
import threading
from collections.abc import Callable
from importlib import import_module
from types import FrameType, TracebackType
from typing import Any

_signal: Any = import_module("_signal")  # `signal` without its conversions to enums: 2 µs a block, not 12
_Handler = Callable[[int, FrameType | None], Any]
# Signals whose Python handlers commonly raise: Ctrl-C, requests to end, timers.
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGUSR1", "SIGUSR2")
_SIGNALS = tuple(int(getattr(signal, name)) for name in _NAMES if hasattr(signal, name))


class deferred_signals:
    """Within the block, signals wait; their handlers run at its end, and what they raise leaves the block there.

    Python runs signal handlers between any two bytecodes of the main thread. A step must not end between an executable,
    which has taken the donated state, and the assignment of the state that it returned. Other threads never run
    handlers: there the block costs a comparison; in the main thread it takes 2 µs.
    """

    __slots__ = ("_handlers", "_waiting")

    def __enter__(self) -> None:
        self._handlers: dict[int, _Handler] = {}
        self._waiting: dict[int, FrameType | None] = {}
        if threading.current_thread() is not threading.main_thread():
            return
        try:
            for signum in _SIGNALS:
                handler = _signal.getsignal(signum)
                if callable(handler):  # else the signal ends the process or is ignored, without Python
                    self._handlers[signum] = handler
                    _signal.signal(signum, self._defer)
        except BaseException:
            self._restore()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._handlers:
            return
        handlers = self._handlers.copy()
        self._restore()
        for signum, frame in self._waiting.items():
            handlers[signum](signum, frame)

    def _defer(self, signum: int, frame: FrameType | None) -> None:
        self._waiting[signum] = frame

    def _restore(self) -> None:
        try:
            while self._handlers:
                signum, handler = next(iter(self._handlers.items()))
                _signal.signal(signum, handler)
                del self._handlers[signum]
        finally:
            if self._handlers:  # a handler that has just returned to its place has raised
                self._restore()
