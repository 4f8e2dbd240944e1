"""Host: `CommandQueue`, commands on their way to the one thread that carries them out, in order of arrival."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from jaxserve.core.errors import EngineDeadError
from jaxserve.engine.serving.watchdog import Watchdog

CLOSED = "this AsyncLLM is closed: build a new one"


class CommandQueue:
    """Once closed, no command comes behind the last. lock: held for moments only; also for what must go with a command.

    pulse: begins with a command, and rests where there is none and the thread has nothing else to do.
    """

    def __init__(self, pulse: Watchdog):
        self.lock = threading.RLock()
        self.is_closed = False
        self._pulse = pulse
        self._commands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def put(self, command: Callable[[], None]) -> None:
        with self.lock:
            if self.is_closed:
                raise EngineDeadError(CLOSED)
            self._commands.put(command)
            self._pulse.begin()

    def call(self, function: Callable[[], Any]) -> Future[Any]:
        """Its result, or what it raised; it does not run if the future is cancelled before."""
        future: Future[Any] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function())
            except Exception as error:
                future.set_exception(error)

        self.put(run)
        return future

    def close(self) -> bool:
        """Whether it was open."""
        with self.lock:
            was_open, self.is_closed = not self.is_closed, True
            if was_open:
                self._commands.put(None)
            return was_open

    def obey(self, must_wait: bool) -> bool:
        """Carry out the commands that have come; wait for one where there is nothing else to do. False: the last."""
        if must_wait:
            with self.lock:
                if self._commands.empty():
                    self._pulse.rest()
        while True:
            try:
                command = self._commands.get(block=must_wait)
            except queue.Empty:
                return True
            if command is None:
                return False
            command()
            must_wait = False
