"""Host: `Driver`, the thread that owns an engine: it steps while there is work and sends what is new to event loops."""

import atexit
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

from jaxserve.core.errors import EngineDeadError
from jaxserve.core.request import Request
from jaxserve.engine.job import Job
from jaxserve.engine.jobs import Jobs
from jaxserve.engine.requests import RequestMaker
from jaxserve.engine.results import Reader
from jaxserve.engine.waiters import Item, Waiter, send


class Driver:
    """Other threads talk to it by commands, in order of arrival; it waits for them when the engine has nothing to do.

    Results go to each loop in one call a step. When the engine dies every waiter gets an `EngineDeadError`, and so do
    later ones; `close` ends the thread, and requests under way the same way.
    """

    def __init__(self, jobs: Jobs, maker: RequestMaker):
        self._jobs, self._maker = jobs, maker
        self._waiters: dict[Job, Waiter] = {}
        self._error: EngineDeadError | None = None
        self._commands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._is_closed, self._gate = False, threading.RLock()  # once closed, no command comes behind the last
        self._thread = threading.Thread(target=self._run, name="jaxserve-engine", daemon=True)
        jobs.claim(self._thread)
        atexit.register(self.close)  # a thread that ran on while the interpreter ends would crash in the device's code
        self._thread.start()

    def start(self, waiter: Waiter, text: str | None, make: Callable[[], Request]) -> None:
        """Start what `make` makes in the driver's thread, in which requests are counted."""
        self._command(partial(self._start, waiter, text, make))

    def call(self, function: Callable[[], Any]) -> Future[Any]:
        """Run something between two steps, in the thread that drives the engine; its result, or what it raised."""
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(function())
            except Exception as error:
                future.set_exception(error)

        self._command(run)
        return future

    def _command(self, command: Callable[[], None]) -> None:
        with self._gate:
            if self._is_closed:
                raise EngineDeadError("this AsyncLLM is closed: build a new one")
            self._commands.put(command)

    def abort(self, waiter: Waiter) -> None:
        """End what a waiter no longer waits for; nothing happens if it has ended."""
        self._commands.put(partial(self._end, waiter))

    def close(self) -> None:
        """End all requests and the thread, and wait for that."""
        with self._gate:
            if not self._is_closed:
                self._is_closed = True
                atexit.unregister(self.close)
                self._commands.put(None)
        if threading.current_thread() is not self._thread:  # as it may be where the garbage collector calls
            self._thread.join()

    def _run(self) -> None:
        is_open = True
        while is_open:
            try:
                is_open = self._obey()
                if is_open and self._has_work:
                    self._step()
            except Exception as error:  # a fault between steps leaves nothing that could be trusted
                self._error = _death(error)
                self._fail(self._error)
        self._fail(EngineDeadError("the AsyncLLM was closed while this request ran"))
        self._jobs.release()

    @property
    def _has_work(self) -> bool:
        return self._error is None and self._jobs.has_work

    def _obey(self) -> bool:
        """Carry out the commands that have come; wait for one where there is nothing else to do. False: the last."""
        must_wait = not self._has_work
        while True:
            try:
                command = self._commands.get(block=must_wait)
            except queue.Empty:
                return True
            if command is None:
                return False
            command()
            must_wait = False

    def _start(self, waiter: Waiter, text: str | None, make: Callable[[], Request]) -> None:
        try:
            if self._error is not None:
                raise _death(self._error)
            waiter.job = self._jobs.start(text, make())
            self._maker.count(1)
            waiter.reader = Reader(waiter.job)
            self._waiters[waiter.job] = waiter
        except Exception as error:
            self._send([(waiter, error)])

    def _end(self, waiter: Waiter) -> None:
        if waiter.job is not None and self._waiters.pop(waiter.job, None) is not None:
            self._jobs.close([waiter.job])

    def _step(self) -> None:
        moved = dict.fromkeys(job for job, _ in self._jobs.step())
        waiters = [self._waiters[job] for job in moved if job in self._waiters]
        self._send([(waiter, item) for waiter in waiters if (item := waiter.take()) is not None])
        for job in moved:
            if job.is_finished and self._waiters.pop(job, None) is not None:
                self._jobs.close([job])

    def _fail(self, error: EngineDeadError) -> None:
        """Tell all waiters, each by an exception of its own, and end their jobs."""
        waiters, self._waiters = self._waiters, {}
        self._send([(waiter, _death(error)) for waiter in waiters.values()])
        with suppress(Exception):  # where an engine has died, even to end its jobs may fail
            self._jobs.close(waiters)

    def _send(self, items: list[tuple[Waiter, Item]]) -> None:
        for waiter in send(items):
            self._end(waiter)


def _death(error: Exception) -> EngineDeadError:
    """The same reason in an exception of its own, for one task more to raise."""
    is_death = isinstance(error, EngineDeadError)
    death = EngineDeadError(str(error) if is_death else f"the engine loop has ended: {error}")
    death.__cause__ = error.__cause__ if is_death else error
    return death
