"""Host: `CommandQueue`: commands for the one thread that carries them out, in order of arrival."""

import queue
import threading
from collections.abc import Iterator

from jaxserve.core.errors import EngineDeadError
from jaxserve.engine.serving.messages import Command
from jaxserve.engine.serving.watchdog import Watchdog

CLOSED = "this AsyncLLM is closed: build a new one"


class CommandQueue:
    """Takes commands from any thread until it is closed.

    lock: held only briefly, here and around what must be atomic with a command. watchdog: begins with a command,
    and rests where the queue is empty and the thread has nothing else to do.
    """

    def __init__(self, watchdog: Watchdog):
        self.lock = threading.RLock()
        self.is_closed = False
        self._watchdog = watchdog
        self._commands: queue.SimpleQueue[Command | None] = queue.SimpleQueue()

    def put(self, command: Command) -> None:
        """Raises `EngineDeadError` once closed."""
        with self.lock:
            if self.is_closed:
                raise EngineDeadError(CLOSED)
            self._commands.put(command)
            self._watchdog.begin()

    def close(self) -> bool:
        """Accept no more commands; returns whether it was open."""
        with self.lock:
            was_open, self.is_closed = not self.is_closed, True
            if was_open:
                self._commands.put(None)
            return was_open

    def take(self, must_wait: bool) -> Iterator[Command | None]:
        """The commands that have come, after waiting for the first one if `must_wait`; None is the last of all."""
        if must_wait:
            with self.lock:
                if self._commands.empty():
                    self._watchdog.rest()
        while True:
            try:
                command = self._commands.get(block=must_wait)
            except queue.Empty:
                return
            yield command
            if command is None:
                return
            must_wait = False
