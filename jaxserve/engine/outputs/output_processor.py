"""Host: `OutputProcessor`: routes each step's tokens to running requests and detokenizes them."""

import threading
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import contextmanager

import numpy as np

from jaxserve.core.deferred_signals import deferred_signals
from jaxserve.core.outputs import RequestMetrics
from jaxserve.core.request import Request
from jaxserve.core.sequence import Sequence
from jaxserve.core.token_deltas import NO_TOKEN
from jaxserve.engine.loop.engine import Engine
from jaxserve.engine.loop.step_stats import Observer
from jaxserve.engine.outputs.request_state import RequestState, SequenceOutput, StepUpdate
from jaxserve.text.detokenize import Detokenizer
from jaxserve.text.output_text import OutputText
from jaxserve.text.stop_strings import StopStrings


class OutputProcessor:
    """Adds requests to the engine, steps it, and ends samples whose text holds a stop string.

    Callers may add sequences of their own through `exclusive`; their tokens are not processed here. One thread at a
    time steps; after `claim` only the claiming thread may. Signal handlers, which may raise, run between these methods.
    """

    def __init__(self, engine: Engine, detokenizer: Detokenizer | None):
        self.engine, self.detokenizer = engine, detokenizer
        self._by_sequence: dict[int, SequenceOutput] = {}  # those that have not ended
        self._watched: set[int] = set()  # sequences whose next token must be examined
        # Rows to examine: place, sequence, token, whether it ended. Survives an interrupt in the middle of a step.
        self._arrived: deque[tuple[int, Sequence, int, bool]] = deque()
        self._closed: deque[RequestState] = deque()
        self._lock = threading.Lock()
        self._owner: threading.Thread | None = None

    def claim(self, owner: threading.Thread, observer: Observer) -> None:
        """Let only `owner` add requests and step from now on; `observer` gets the record of each step."""
        if self._owner is not None or self._by_sequence:
            busy = "an AsyncLLM drives it" if self._owner is not None else "a stream has not ended"
            raise RuntimeError(f"the engine is in use: {busy}; close that first")
        self._owner, self.engine.observer = owner, observer

    def release(self) -> None:
        """Undo `claim`."""
        self._owner, self.engine.observer = None, None

    def check_caller(self) -> None:
        """Raise RuntimeError where another thread has claimed the engine."""
        if self._owner is not None and self._owner is not threading.current_thread():
            raise RuntimeError("an AsyncLLM drives this engine: await its methods instead, or close it first")

    @property
    def has_work(self) -> bool:
        """Whether `step` would do anything."""
        return self.engine.has_work or bool(self._arrived)

    def check(self, requests: list[Request]) -> None:
        """Raise `QueueFullError` or `EngineDeadError` unless all of these checked requests can be added now."""
        with self.exclusive() as engine:
            engine.live().check(requests)

    @contextmanager
    def exclusive(self) -> Generator[Engine]:
        """The engine between two steps, for callers that add and read sequences of their own."""
        self.check_caller()
        with deferred_signals(), self._lock:
            yield self.engine

    def add(self, request: Request) -> RequestState:
        """Queue an admitted request."""
        self.check_caller()
        params, prompt_ids = request.params, request.prompt_token_ids.tolist()
        detokenizer = self.detokenizer if params.detokenize else None
        outputs: list[OutputText | None] = [None] * params.num_sequences
        if detokenizer is not None:
            stops = StopStrings.shared(params.stop, params.include_stop_str_in_output) if params.stop else None
            shown = params.skip_special_tokens, tuple(params.shown_special_ids)
            streams = [detokenizer.stream(prompt_ids, *shown) for _ in outputs]
            outputs = [OutputText(stream, params, stops) for stream in streams]
        state = RequestState(request, prompt_ids, [], detokenizer, RequestMetrics(arrival_s=request.arrival_s))
        with deferred_signals(), self._lock:
            sequences = self.engine.add(request)
            state.samples += [SequenceOutput(state, sequence, outputs[sequence.index]) for sequence in sequences]
            self._by_sequence.update((sample.sequence.sequence_id, sample) for sample in state.samples)
            self._watched.update(sequence.sequence_id for sequence in sequences)  # the first token's time is noted
        return state

    def abort(self, requests: Iterable[Request]) -> None:
        """End those that have not ended; when nothing else runs, all pages return now."""
        with deferred_signals(), self._lock:
            for request in requests:
                self.engine.scheduler.abort(request.request_id)
            self._settle()

    def step(self) -> StepUpdate:
        """One step of the engine, and what it changed."""
        self.check_caller()
        with deferred_signals(), self._lock:
            self._drop_closed()
            self._examine(StepUpdate([], {}, self.engine.clock()))  # rows that an interrupt has left
            deltas = self.engine.step()
            sequences, is_finished = deltas.sequences, deltas.is_finished
            update = StepUpdate(sequences, self._by_sequence, self.engine.clock())
            rows = np.flatnonzero(is_finished).tolist()
            if watched := self._watched:
                rows = [i for i, s in enumerate(sequences) if s.sequence_id in watched or is_finished[i]]
            self._arrived.extend((i, sequences[i], int(deltas.tokens[i]), bool(is_finished[i])) for i in rows)
            self._examine(update)
            return update

    def _examine(self, update: StepUpdate) -> None:
        """Process tokens that end a sample, or may."""
        while self._arrived:
            row, sequence, token, is_finished = self._arrived.popleft()
            sample = self._by_sequence.get(sequence.sequence_id)
            has_ended = sample is not None and self._extend(sample, token, is_finished, update.now_s)
            update.note(row, sample, token, has_ended)

    def close(self, states: Iterable[RequestState]) -> None:
        """Forget requests, and abort those that have not ended; when nothing else runs, all pages return now.

        May be called by a finalizer in the middle of a step, or from another thread during one: it then takes effect
        with the next step.
        """
        with deferred_signals():
            self._closed.extend(states)
            if self._lock.acquire(blocking=False):
                try:
                    self._drop_closed()
                    self._settle()
                finally:
                    self._lock.release()

    def _drop_closed(self) -> None:
        while self._closed:
            state = self._closed[0]
            for sequence in state.sequences:
                self._by_sequence.pop(sequence.sequence_id, None)
                self._watched.discard(sequence.sequence_id)
            self.engine.scheduler.abort(state.request.request_id)
            self._closed.popleft()

    def _settle(self) -> None:
        """Commit what was in flight when the last sequence ended."""
        while self.engine.has_work and not self.engine.scheduler.has_work:
            self.engine.step()

    def _extend(self, sample: SequenceOutput, token: int, is_finished: bool, now_s: float) -> bool:
        """Process one token; a stop string that it completes ends the sample here. Returns whether it has ended."""
        sequence, metrics = sample.sequence, sample.state.metrics
        if metrics.first_token_s is None and token != NO_TOKEN:
            metrics.first_token_s = now_s
        # Without is_finished, a later token of the same step may have ended the sequence.
        if sample.has_stops and (stop := sample.push(token, sequence.finish_reason if is_finished else None)):
            stop_string, num_tokens = stop
            if sequence.is_finished:  # by a limit that this token, or a later one, reached
                sequence.finish("stop", stop_string, num_tokens)
            self.engine.scheduler.finish(sequence.sequence_id, "stop", num_tokens, stop_string)
            is_finished = True
        if is_finished:
            metrics.finish_s = now_s
            del self._by_sequence[sequence.sequence_id]
        if is_finished or not sample.has_stops:
            self._watched.discard(sequence.sequence_id)
        return is_finished
