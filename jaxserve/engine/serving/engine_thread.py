"""Host: `EngineThread`: owns a running engine: adds requests to it, steps it, and sends their results."""

import atexit
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from jaxserve.core.errors import AbortedError, EngineDeadError
from jaxserve.engine.inputs.input_processor import InputProcessor
from jaxserve.engine.loop.step_stats import StepRecord
from jaxserve.engine.outputs.output_processor import OutputProcessor
from jaxserve.engine.outputs.output_stream import OutputStream
from jaxserve.engine.outputs.request_state import RequestState
from jaxserve.engine.serving.admission_control import AdmissionControl
from jaxserve.engine.serving.backlog import Backlog, Held
from jaxserve.engine.serving.command_queue import CLOSED, CommandQueue
from jaxserve.engine.serving.engine_metrics import EngineMetrics
from jaxserve.engine.serving.messages import Abort, Add, Call, Command, Output, StepOutput
from jaxserve.engine.serving.result_stream import ResultRouter
from jaxserve.engine.serving.watchdog import EngineHealth, Watchdog
from jaxserve.engine.tasks.embed import embedding_of
from jaxserve.scheduler.queue_limits import QueueLoad


class _Running:
    """A request that was added to the engine. take_new: returns what is new of it, None where nothing is."""

    __slots__ = ("key", "state", "take_new", "wants_pieces")

    def __init__(self, key: int, state: RequestState, add: Add):
        self.key, self.state, self.wants_pieces = key, state, add.wants_pieces
        self.take_new: Callable[[], Output | None] = OutputStream(state).take
        if state.request.pooling is not None:
            self.take_new = lambda: embedding_of(state.sequences[0], add.is_normalized)

    def take(self) -> Output | Exception | None:
        """What to send after a step with tokens of the request; an exception here ends this request alone."""
        try:
            return self.take_new() if self.wants_pieces or self.state.is_finished else None
        except Exception as error:
            return error


class EngineThread:
    """Carries out commands in order of arrival between steps; waits for them when the engine has nothing to do.

    Results go to each event loop in one call per step. When the engine dies every request ends with an
    `EngineDeadError`, and so does every later one; `close` ends the thread, and running requests the same way. death:
    the engine's error, when it dies; not done by `close`.
    """

    def __init__(self, outputs: OutputProcessor, inputs: InputProcessor):
        self._outputs, self._inputs = outputs, inputs
        self._scheduler = outputs.engine.scheduler
        self._backlog = Backlog()
        self._by_key: dict[int, _Running] = {}
        self._by_state: dict[RequestState, _Running] = {}
        self.error: EngineDeadError | None = None
        self.death: Future[EngineDeadError] = Future()
        self.death.set_running_or_notify_cancel()  # so that it cannot be cancelled by one of those who await it
        self._thread = threading.Thread(target=self._run, name="jaxserve-engine", daemon=True)
        outputs.claim(self._thread, self._observe)
        self._watchdog = Watchdog(inputs.clock)
        self.metrics = EngineMetrics(self._load, inputs.clock)
        self.admission = AdmissionControl(self._scheduler.queue_limits, self.metrics, inputs.clock)
        self.commands, self.results = CommandQueue(self._watchdog), ResultRouter()
        atexit.register(self.close)  # a thread that still runs at interpreter exit would crash in device code
        self._thread.start()

    def check_alive(self) -> None:
        """Raise `EngineDeadError` unless commands will be carried out."""
        if self.commands.is_closed:
            raise EngineDeadError(CLOSED)
        if self.error is not None:
            raise _death(self.error)

    def abort(self, keys: list[int]) -> None:
        """End requests and send their streams an `AbortedError` at once, without waiting for the step in progress."""
        for key in keys:
            self.admission.leave(key)
        with suppress(EngineDeadError):
            self.commands.put(Abort(keys))
        self.results.send([StepOutput(key, AbortedError("the request was aborted")) for key in keys])

    def health(self) -> EngineHealth:
        """From any thread, at any moment; waits for nothing."""
        if self.error is not None:
            return self._watchdog.health(str(self.error))
        is_gone = self.commands.is_closed or not self._thread.is_alive()
        return self._watchdog.health(CLOSED if is_gone else None)

    def close(self) -> None:
        """End all requests and the thread, and wait for that."""
        if self.commands.close():
            atexit.unregister(self.close)
        if threading.current_thread() is not self._thread:  # the garbage collector may call this in the thread itself
            self._thread.join()

    def _run(self) -> None:
        is_open = True
        while is_open:
            try:
                for command in self.commands.take(must_wait=not self._has_work):
                    is_open = command is not None
                    if command is not None:
                        self._execute(command)
                if is_open:
                    self._feed()
                if is_open and self._has_work:
                    self._step()
            except Exception as error:  # after an error between steps the engine's state is unknown
                self._die(_death(error))
        self._fail(EngineDeadError("the AsyncLLM was closed while this request ran"))
        self._outputs.release()

    @property
    def _load(self) -> QueueLoad:
        return self._backlog.add_to(QueueLoad.of(self._scheduler.state))

    @property
    def _has_work(self) -> bool:
        return self.error is None and (self._outputs.has_work or bool(self._backlog))

    def _execute(self, command: Command) -> None:
        match command:
            case Add():
                self._backlog.add(command)
                self.admission.arrive(command.keys.start, self._load)
            case Abort():
                for key in command.keys:
                    self._end(key)
                self.admission.publish(self._load)
            case Call():
                _call(command)

    def _feed(self) -> None:
        """Let requests of the backlog join the queue: those that are due, and as many more as there are free slots."""
        backlog, now_s = self._backlog, self._inputs.clock()
        for held in backlog.due(now_s):
            self._add(held)
        while (upcoming := backlog.next()) is not None and self.admission.join(*upcoming):
            self._add(backlog.take_next(now_s))

    def _add(self, held: Held) -> None:
        key, add = held.key, held.call.add
        try:
            if self.error is not None:
                raise _death(self.error)
            (request,) = self._inputs.numbered([held.request], add.first_arrival + key - add.keys.start)
            state = self._outputs.add(request)
            held.call.queued += state.sequences
            self.metrics.begin(state)
            self._by_key[key] = self._by_state[state] = _Running(key, state, add)
        except Exception as error:
            self._send([StepOutput(key, error)])
        finally:
            self.admission.arrive(key, self._load)

    def _end(self, key: int) -> None:
        if (running := self._by_key.get(key)) is not None:
            self._forget(running.state)
            self._outputs.close([running.state])
            self.metrics.drop(running.state)
            self.admission.publish(self._load)
        elif (request := self._backlog.remove(key)) is not None:
            self.metrics.drop_unseen(request)

    def _forget(self, state: RequestState) -> bool:
        """Send nothing more of a request; returns whether anything was still to be sent."""
        running = self._by_state.pop(state, None)
        if running is not None:
            del self._by_key[running.key]
        return running is not None

    def _step(self) -> None:
        update = self._outputs.step()
        if self._scheduler.is_preparing:  # the engine waits for files, and does not hang
            self._watchdog.beat()
        samples = update.samples()
        self.metrics.observe(update, samples)
        self.admission.publish(self._load)
        states = dict.fromkeys([sample.state for sample in samples])
        running = [self._by_state[state] for state in states if state in self._by_state]
        results = [StepOutput(each.key, new) for each in running if (new := each.take()) is not None]
        self._send(results)  # before requests are closed, which may wait for a step in flight
        finished = [state for state in states if state.is_finished and self._forget(state)]
        if finished:
            self._outputs.close(finished)
            self.admission.publish(self._load)
        for key, output in results:
            if isinstance(output, Exception):
                self._end(key)

    def _observe(self, record: StepRecord) -> None:
        self._watchdog.beat()
        self.metrics.observe_step(record)

    def _die(self, error: EngineDeadError) -> None:
        self.error = error
        self._fail(error)
        if not self.death.done():
            self.death.set_result(error)

    def _fail(self, error: EngineDeadError) -> None:
        """End all requests, each with an exception of its own."""
        failed, self._by_key, self._by_state = self._by_state, {}, {}
        held = self._backlog.keys()
        self._send([StepOutput(key, _death(error)) for key in [*(each.key for each in failed.values()), *held]])
        for key in held:
            self._end(key)
        with suppress(Exception):  # where an engine has died, even closing its requests may fail
            self._outputs.close(failed)
            for state in failed:
                self.metrics.drop(state)
            self.admission.publish(self._load)

    def _send(self, results: list[StepOutput]) -> None:
        for key in self.results.send(results):
            self._end(key)


def _call(command: Call) -> None:
    if command.future.set_running_or_notify_cancel():
        try:
            command.future.set_result(command.function())
        except Exception as error:
            command.future.set_exception(error)


def _death(error: Exception) -> EngineDeadError:
    """A new exception with the same reason, so that each task raises its own."""
    is_death = isinstance(error, EngineDeadError)
    death = EngineDeadError(str(error) if is_death else f"the engine loop has ended: {error}")
    death.__cause__ = error.__cause__ if is_death else error
    return death
