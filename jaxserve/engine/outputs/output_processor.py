"""Host: `OutputProcessor`: routes the tokens of each step to the running requests and turns them into text."""

import threading
from collections import deque
from collections.abc import Iterable

import numpy as np

from jaxserve.core.outputs import RequestMetrics
from jaxserve.core.request import Request
from jaxserve.core.sequence import Sequence, TokenLogprobs
from jaxserve.core.token_deltas import NO_TOKEN
from jaxserve.engine.loop.engine import Engine
from jaxserve.engine.loop.step_stats import Observer
from jaxserve.engine.outputs.request_state import RequestState, SequenceOutput, StepUpdate
from jaxserve.scheduler.queue_limits import QueueLimits, QueueLoad
from jaxserve.text.detokenize import Detokenizer
from jaxserve.text.output_text import OutputText
from jaxserve.text.stop_strings import StopStrings


class OutputProcessor:
    """Starts jobs, steps the engine, turns tokens into text and ends samples whose text holds a stop string.

    Sequences that are nobody's job may run in the same engine: what they bring is left to whoever added them. One
    thread at a time steps; after `claim` only the claiming one may.
    """

    def __init__(self, engine: Engine, detokenizer: Detokenizer | None):
        self._engine, self.detokenizer = engine, detokenizer
        self._by_sequence: dict[int, SequenceOutput] = {}  # those that have not ended
        self._watched: set[int] = set()  # sequences whose next token must be looked at
        # Rows to look at: place, sequence, token, whether it ended. Survives an interrupt in the middle of a step.
        self._arrived: deque[tuple[int, Sequence, int, bool]] = deque()
        self._closed: deque[RequestState] = deque()
        self._lock = threading.Lock()
        self._owner: threading.Thread | None = None
        self._bounds = QueueLimits()

    def claim(self, owner: threading.Thread, observer: Observer) -> QueueLimits:
        """From now on only this thread starts and steps, and `observer` is told of each step.

        Returns the queue's bounds: the owner keeps them where requests come from, and nobody else does any more.
        """
        if self._owner is not None or self._by_sequence:
            busy = "an AsyncLLM drives it" if self._owner is not None else "a stream has not ended"
            raise RuntimeError(f"the engine is in use: {busy}; close that first")
        scheduler = self._engine.scheduler
        self._owner, self._engine.observer = owner, observer
        self._bounds, scheduler.queue_limits = scheduler.queue_limits, QueueLimits()
        return self._bounds

    def release(self) -> None:
        self._owner, self._engine.observer, self._engine.scheduler.queue_limits = None, None, self._bounds

    def check_caller(self) -> None:
        if self._owner is not None and self._owner is not threading.current_thread():
            raise RuntimeError("an AsyncLLM drives this engine: await its methods instead, or close it first")

    @property
    def has_work(self) -> bool:
        """Whether `step` would do anything."""
        return self._engine.has_work or bool(self._arrived)

    @property
    def load(self) -> QueueLoad:
        """How full the engine is."""
        return self._engine.scheduler.load

    def check(self, requests: list[Request]) -> None:
        """Raise `RequestError`, a `QueueFullError` perhaps, unless all of the requests could be started now."""
        self.check_caller()
        with self._lock:
            self._engine.check(requests)

    def start(self, prompt: str | None, request: Request) -> RequestState:
        """Queue a request; `prompt` is its text where that is known."""
        self.check_caller()
        params, prompt_ids = request.params, request.prompt_token_ids.tolist()
        detokenizer = self.detokenizer if params.detokenize else None
        outputs: list[OutputText | None] = [None] * params.n
        if detokenizer is not None:
            stops = StopStrings.shared(params.stop, params.include_stop_str_in_output) if params.stop else None
            streams = [detokenizer.stream(prompt_ids, params.skip_special_tokens) for _ in outputs]
            outputs = [OutputText(stream, params, stops) for stream in streams]
        job = RequestState(request, prompt, prompt_ids, [], detokenizer, RequestMetrics(arrival_s=request.arrival_s))
        with self._lock:
            sequences = self._engine.add(request)
            job.samples += [SequenceOutput(job, sequence, outputs[sequence.index]) for sequence in sequences]
            self._by_sequence.update((sample.sequence.sequence_id, sample) for sample in job.samples)
            self._watched.update(sequence.sequence_id for sequence in sequences)  # the first token's time counts
        return job

    def add_sharing(self, requests: list[Request], shared_len: int) -> list[Sequence]:
        """Queue requests whose prompts begin alike and which are nobody's job; `abort` them when they are done with."""
        self.check_caller()
        with self._lock:
            return self._engine.add_sharing(requests, shared_len)

    def add_beams(self, request: Request, width: int, num_candidates: int) -> list[Sequence]:
        """Queue a request that is nobody's job and whose tokens the caller chooses; `abort` it when done with it."""
        self.check_caller()
        with self._lock:
            return self._engine.add_beams(request, width, num_candidates)

    def candidates(self, beams: list[Sequence]) -> list[TokenLogprobs] | None:
        """The likeliest tokens after each of a request's beams; None until all are known."""
        known = [self._engine.scheduler.candidates(beam) for beam in beams]
        found = [candidates for candidates in known if candidates is not None]
        return found if len(found) == len(beams) else None

    def branch(self, request: Request, choices: list[tuple[Sequence, int]]) -> list[Sequence]:
        """Let beams go on with chosen tokens; returns those of the choices, in their order."""
        with self._lock:
            return self._engine.scheduler.branch(request.request_id, choices)

    def abort(self, requests: Iterable[Request]) -> None:
        """End those that have not ended; when nothing else runs, all pages return now."""
        with self._lock:
            for request in requests:
                self._engine.abort(request.request_id)
            self._settle()

    def reset_prefix_cache(self) -> None:
        """Forget the prefixes of requests that have ended."""
        self.check_caller()
        with self._lock:
            self._engine.scheduler.reset_prefix_cache()

    def step(self) -> StepUpdate:
        """One step of the engine, and what it brought."""
        self.check_caller()
        with self._lock:
            self._drop_closed()
            self._look(StepUpdate([], {}, self._engine.clock()))  # at what an interrupt has left
            deltas = self._engine.step()
            sequences, is_finished = deltas.sequences, deltas.is_finished
            moved = StepUpdate(sequences, self._by_sequence, self._engine.clock())
            rows = np.flatnonzero(is_finished).tolist()
            if watched := self._watched:
                rows = [i for i, s in enumerate(sequences) if s.sequence_id in watched or is_finished[i]]
            self._arrived.extend((i, sequences[i], int(deltas.tokens[i]), bool(is_finished[i])) for i in rows)
            self._look(moved)
            return moved

    def _look(self, moved: StepUpdate) -> None:
        """At tokens that end a sample, or may."""
        while self._arrived:
            row, sequence, token, is_finished = self._arrived.popleft()
            sample = self._by_sequence.get(sequence.sequence_id)
            has_ended = sample is not None and self._extend(sample, token, is_finished, moved.now_s)
            moved.note(row, sample, token, has_ended)

    def close(self, jobs: Iterable[RequestState]) -> None:
        """Forget jobs, and abort those that have not ended; when nothing else runs, all pages return now.

        May be called by a finalizer in the middle of a step, or from another thread during one: it then takes effect
        with the next step.
        """
        self._closed.extend(jobs)
        if self._lock.acquire(blocking=False):
            try:
                self._drop_closed()
                self._settle()
            finally:
                self._lock.release()

    def _drop_closed(self) -> None:
        while self._closed:
            job = self._closed[0]
            for sequence in job.sequences:
                self._by_sequence.pop(sequence.sequence_id, None)
                self._watched.discard(sequence.sequence_id)
            self._engine.abort(job.request.request_id)
            self._closed.popleft()

    def _settle(self) -> None:
        """Commit what was in flight when the last sequence ended."""
        while self._engine.has_work and not self._engine.scheduler.has_work:
            self._engine.step()

    def _extend(self, sample: SequenceOutput, token: int, is_finished: bool, now: float) -> bool:
        """Look at a token; a stop string that it completes ends the sample here. Returns whether it has ended."""
        sequence, metrics = sample.sequence, sample.job.metrics
        if metrics.first_token_s is None and token != NO_TOKEN:
            metrics.first_token_s = now
        # Without is_finished, a later token of the same step may have ended the sequence.
        if sample.has_stops and (stop := sample.look(token, sequence.finish_reason if is_finished else None)):
            stop_string, num_tokens = stop
            if sequence.is_finished:  # by a limit that this token, or a later one, reached
                sequence.finish("stop", stop_string, num_tokens)
            self._engine.finish(sequence.sequence_id, "stop", num_tokens, stop_string)
            is_finished = True
        if is_finished:
            metrics.finish_s = now
            del self._by_sequence[sequence.sequence_id]
        if is_finished or not sample.has_stops:
            self._watched.discard(sequence.sequence_id)
        return is_finished
