"""Host: `Jobs`, the requests under way: a step serves all of them, whoever asks for it, so consumers may interleave."""

import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from jaxserve.core.outputs import RequestMetrics
from jaxserve.core.request import Request
from jaxserve.core.sequence import Sequence
from jaxserve.engine.engine import Engine
from jaxserve.text.detokenize import Detokenizer
from jaxserve.text.output_text import OutputText
from jaxserve.text.stop import StopStrings


@dataclass(slots=True, eq=False)
class Job:
    """One request under way. By sample: its sequence, what makes its text (None: no text is wanted), its text so far.

    prompt: the text that was asked, where it was text. detokenizer: None where no text is wanted.
    """

    request: Request
    prompt: str | None
    prompt_ids: list[int]
    sequences: list[Sequence]
    outputs: list[OutputText | None]
    texts: list[str]
    detokenizer: Detokenizer | None
    metrics: RequestMetrics

    @property
    def is_finished(self) -> bool:
        return all(sequence.is_finished for sequence in self.sequences)


class Jobs:
    """Starts jobs, steps the engine, turns tokens into text and ends samples whose text holds a stop string.

    Sequences that are nobody's job may run in the same engine: what they bring is left to whoever added them. One
    thread at a time steps; after `claim` only the claiming one may.
    """

    def __init__(self, engine: Engine, detokenizer: Detokenizer | None):
        self._engine, self._detokenizer = engine, detokenizer
        self._by_sequence: dict[int, tuple[Job, int]] = {}  # samples that have not ended: their job and index
        self._arrived: deque[tuple[Sequence, int, bool]] = deque()  # survives an interrupt between step and text
        self._closed: deque[Job] = deque()
        self._lock = threading.Lock()
        self._owner: threading.Thread | None = None

    def claim(self, owner: threading.Thread) -> None:
        """From now on only this thread starts and steps."""
        if self._owner is not None or self._by_sequence:
            busy = "an AsyncLLM drives it" if self._owner is not None else "a stream has not ended"
            raise RuntimeError(f"the engine is in use: {busy}; close that first")
        self._owner = owner

    def release(self) -> None:
        self._owner = None

    def check_caller(self) -> None:
        if self._owner is not None and self._owner is not threading.current_thread():
            raise RuntimeError("an AsyncLLM drives this engine: await its methods instead, or close it first")

    @property
    def has_work(self) -> bool:
        """Whether `step` would do anything."""
        return self._engine.has_work or bool(self._arrived)

    def start(self, prompt: str | None, request: Request) -> Job:
        """Queue a request; `prompt` is its text where that is known."""
        self.check_caller()
        params, prompt_ids = request.params, request.prompt_token_ids.tolist()
        detokenizer = self._detokenizer if params.detokenize else None
        outputs: list[OutputText | None] = [None] * params.n
        if detokenizer is not None:
            stops = StopStrings(params.stop, params.include_stop_str_in_output) if params.stop else None
            streams = [detokenizer.stream(prompt_ids, params.skip_special_tokens) for _ in outputs]
            outputs = [OutputText(stream, params, stops) for stream in streams]
        texts, metrics = [""] * params.n, RequestMetrics(arrival_s=request.arrival_s)
        with self._lock:
            sequences = self._engine.add(request)
            job = Job(request, prompt, prompt_ids, sequences, outputs, texts, detokenizer, metrics)
            self._by_sequence.update((s.sequence_id, (job, s.index)) for s in sequences)
        return job

    def add_sharing(self, requests: list[Request], shared_len: int) -> list[Sequence]:
        """Queue requests whose prompts begin alike and which are nobody's job; `abort` them when they are done with."""
        self.check_caller()
        with self._lock:
            return self._engine.add_sharing(requests, shared_len)

    def abort(self, requests: Iterable[Request]) -> None:
        """End those that have not ended; when nothing else runs, all pages return now."""
        with self._lock:
            for request in requests:
                self._engine.abort(request.request_id)
            self._settle()

    def step(self) -> list[tuple[Job, bool]]:
        """One step of the engine; for each token that it brought, the job and whether a sample ended with it."""
        self.check_caller()
        with self._lock:
            self._drop_closed()
            deltas = self._engine.step()
            rows = zip(deltas.sequences, deltas.tokens.tolist(), deltas.is_finished.tolist(), strict=True)
            self._arrived.extend(rows)
            moved, now = [], time.monotonic()
            while self._arrived:
                sequence, token, is_finished = self._arrived.popleft()
                if (place := self._by_sequence.get(sequence.sequence_id)) is not None:
                    moved.append((place[0], self._extend(*place, token, is_finished, now)))
            return moved

    def close(self, jobs: Iterable[Job]) -> None:
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
            self._engine.abort(job.request.request_id)
            self._closed.popleft()

    def _settle(self) -> None:
        """Commit what was in flight when the last sequence ended."""
        while self._engine.has_work and not self._engine.scheduler.has_work:
            self._engine.step()

    def _extend(self, job: Job, index: int, token: int, is_finished: bool, now: float) -> bool:
        """Add a token's text; a stop string in it ends the sample here. Returns whether the sample has ended."""
        sequence, output, metrics = job.sequences[index], job.outputs[index], job.metrics
        if metrics.first_token_s is None:
            metrics.first_token_s = now
        if output is not None:
            if sequence.finish_reason != "error":
                job.texts[index] += output.push([token], is_ended_by_token=sequence.finish_reason == "stop")
            if output.stop_string is not None:
                if is_finished:  # the limit was reached by the token that completed the stop string
                    sequence.finish("stop", output.stop_string, output.num_tokens)
                self._engine.finish(sequence.sequence_id, "stop", output.num_tokens, output.stop_string)
                is_finished = True
            elif is_finished:
                job.texts[index] += output.finish()
        if is_finished:
            metrics.finish_s = now
            del self._by_sequence[sequence.sequence_id]
        return is_finished
