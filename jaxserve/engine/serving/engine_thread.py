"""Host: `EngineThread`: owns an engine, steps it while there is work, and sends results to event loops."""

import atexit
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

from jaxserve.core.errors import AbortedError, EngineDeadError
from jaxserve.core.request import Request
from jaxserve.engine.inputs.input_processor import InputProcessor
from jaxserve.engine.loop.step_stats import StepRecord
from jaxserve.engine.outputs.output_processor import OutputProcessor
from jaxserve.engine.outputs.request_state import RequestState
from jaxserve.engine.serving.admission_control import AdmissionControl
from jaxserve.engine.serving.command_queue import CLOSED, CommandQueue
from jaxserve.engine.serving.engine_metrics import EngineMetrics
from jaxserve.engine.serving.loop_delivery import Item, ResultReceiver, send
from jaxserve.engine.serving.watchdog import EngineHealth, Watchdog

Entry = tuple[ResultReceiver, str | None, Request]  # who waits, the prompt's text where it has one, the request


class EngineThread:
    """Other threads talk to it by commands, in order of arrival; it waits for them when the engine has nothing to do.

    Requests are let in or refused by the thread that brings them, which never waits for a step. Results go to each loop
    in one call a step. When the engine dies every waiter gets an `EngineDeadError`, and so do later ones; `close` ends
    the thread, and requests under way the same way. death: the engine's, when it comes; not that by `close`.
    """

    def __init__(self, jobs: OutputProcessor, maker: InputProcessor):
        self._jobs, self._maker = jobs, maker
        self._waiters: dict[RequestState, ResultReceiver] = {}
        self._error: EngineDeadError | None = None
        self.death: Future[EngineDeadError] = Future()
        self.death.set_running_or_notify_cancel()  # so that nobody who waits for it can cancel it
        self._thread = threading.Thread(target=self._run, name="jaxserve-engine", daemon=True)
        self.meters, self._pulse = EngineMetrics(jobs.load, maker.clock), Watchdog(maker.clock)
        self._mail = CommandQueue(self._pulse)
        # Whoever asks it holds the mailbox's lock.
        self._admission = AdmissionControl(jobs.claim(self._thread, self._observe), self.meters, maker.clock)
        atexit.register(self.close)  # a thread that ran on while the interpreter ends would crash in the device's code
        self._thread.start()

    def check_room(self, num_samples: int) -> None:
        """Raise as `submit` would for any prompt at all, so that one for which there is no room need not be read."""
        with self._mail.lock:
            self._check_alive()
            self._admission.check(num_samples, num_samples)

    def submit(self, entries: list[Entry]) -> None:
        """Let requests in, as the next ones that arrive, together; or raise at once, and then nothing has changed."""
        with self._mail.lock:
            self._check_alive()
            self._admission.enter({waiter: request for waiter, _, request in entries})
            first = self._maker.arrive([request for _, _, request in entries])
            self._mail.put(partial(self._start_all, entries, first))

    def abort(self, waiter: ResultReceiver) -> None:
        """End what a waiter waits for, and tell it; nothing happens if it has been told an end."""
        if waiter.end is not None:
            return
        with self._mail.lock:
            self._admission.leave(waiter)
            if not self._mail.is_closed:
                self._mail.put(partial(self._end, waiter))
        send([(waiter, AbortedError("the request was aborted"))])

    def call[T](self, function: Callable[[], T]) -> Future[T]:
        """Run something between two steps, in the thread that drives the engine; its result, or what it raised."""
        return self._mail.call(function)

    def health(self) -> EngineHealth:
        """From any thread, at any moment; waits for nothing."""
        if self._error is not None:
            return self._pulse.health(str(self._error))
        is_gone = self._mail.is_closed or not self._thread.is_alive()
        return self._pulse.health(CLOSED if is_gone else None)

    def close(self) -> None:
        """End all requests and the thread, and wait for that."""
        if self._mail.close():
            atexit.unregister(self.close)
        if threading.current_thread() is not self._thread:  # as it may be where the garbage collector calls
            self._thread.join()

    def _check_alive(self) -> None:
        if self._mail.is_closed:
            raise EngineDeadError(CLOSED)
        if self._error is not None:
            raise _death(self._error)

    def _run(self) -> None:
        is_open = True
        while is_open:
            try:
                is_open = self._mail.obey(must_wait=not self._has_work)
                if is_open and self._has_work:
                    self._step()
            except Exception as error:  # a fault between steps leaves nothing that could be trusted
                self._die(_death(error))
        self._fail(EngineDeadError("the AsyncLLM was closed while this request ran"))
        self._jobs.release()

    @property
    def _has_work(self) -> bool:
        return self._error is None and self._jobs.has_work

    def _start_all(self, entries: list[Entry], first: int) -> None:
        for number, (waiter, text, request) in enumerate(entries, first):
            self._start(waiter, text, self._maker.numbered(request, number))

    def _start(self, waiter: ResultReceiver, text: str | None, request: Request) -> None:
        if not self._admission.is_coming(waiter):
            self.meters.drop_unseen(request)
            return
        try:
            if self._error is not None:
                raise _death(self._error)
            job = self._jobs.start(text, request)
            self.meters.begin(job)
            waiter.begin(job)
            self._waiters[job] = waiter
        except Exception as error:
            self._send([(waiter, error)])
        finally:
            with self._mail.lock:
                self._admission.arrive(waiter, self._jobs.load)

    def _end(self, waiter: ResultReceiver) -> None:
        if waiter.job is not None and self._waiters.pop(waiter.job, None) is not None:
            self._jobs.close([waiter.job])
            self.meters.drop(waiter.job)
            self._publish()

    def _step(self) -> None:
        moved = self._jobs.step()
        samples = moved.samples()
        self.meters.observe(moved, samples)
        self._publish()
        jobs = dict.fromkeys([sample.job for sample in samples])
        waiters = [self._waiters[job] for job in jobs if job in self._waiters]
        items = [(waiter, item) for waiter in waiters if (item := waiter.take()) is not None]
        self._send(items)  # before jobs are closed, which may wait for what is in flight of them
        finished = [job for job in jobs if job.is_finished and self._waiters.pop(job, None) is not None]
        if finished:
            self._jobs.close(finished)
            self._publish()
        for waiter, item in items:
            if isinstance(item, Exception):
                self._end(waiter)

    def _observe(self, record: StepRecord) -> None:
        self._pulse.beat()
        self.meters.observe_step(record)

    def _publish(self) -> None:
        with self._mail.lock:
            self._admission.publish(self._jobs.load)

    def _die(self, error: EngineDeadError) -> None:
        self._error = error
        self._fail(error)
        if not self.death.done():
            self.death.set_result(error)

    def _fail(self, error: EngineDeadError) -> None:
        """Tell all waiters, each by an exception of its own, and end their jobs."""
        waiters, self._waiters = self._waiters, {}
        self._send([(waiter, _death(error)) for waiter in waiters.values()])
        with suppress(Exception):  # where an engine has died, even to end its jobs may fail
            self._jobs.close(waiters)
            for job in waiters:
                self.meters.drop(job)
            self._publish()

    def _send(self, items: list[tuple[ResultReceiver, Item]]) -> None:
        for waiter in send(items):
            self._end(waiter)


def _death(error: Exception) -> EngineDeadError:
    """The same reason in an exception of its own, for one task more to raise."""
    is_death = isinstance(error, EngineDeadError)
    death = EngineDeadError(str(error) if is_death else f"the engine loop has ended: {error}")
    death.__cause__ = error.__cause__ if is_death else error
    return death
