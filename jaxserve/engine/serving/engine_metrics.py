"""Host: `EngineMetrics`: counters and histograms of a serving engine, and rates over the last seconds."""

from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jaxserve.core.histogram import Histogram, scale
from jaxserve.core.request import Request
from jaxserve.core.step_outcome import DraftCounts
from jaxserve.core.time_window import TimeWindow
from jaxserve.engine.loop.step_stats import StepRecord
from jaxserve.engine.outputs.request_state import RequestState, SequenceOutput, StepUpdate
from jaxserve.scheduler.queue_limits import QueueLoad

NUM_LAST_STEPS = 60
RECENT_S = 5.0
MILLISECONDS = scale(1, 5_000_000, -3)
COUNTS = scale(1, 2_000_000)


class StepSummary(NamedTuple):
    """What a step computed in each of its rounds: tokens of rows that decode, their drafts among them, tokens of longer
    chunks of prompts, and padding up to the compiled shape. ms: for how long the step occupied the device, as the host
    sees it."""

    decode_tokens: int
    prompt_tokens: int
    padding: int
    ms: float

    @classmethod
    def of(cls, record: StepRecord) -> "StepSummary":
        if not record.num_rounds:  # all rows had ended before
            return cls(0, 0, 0, record.moments.device_s * 1000)
        num_tokens = record.num_tokens // record.num_rounds
        decode_tokens = num_tokens if record.bucket.only_decodes else record.num_decodes
        prompt_tokens, padding = num_tokens - decode_tokens, record.bucket.num_tokens - num_tokens
        return cls(decode_tokens, prompt_tokens, padding, record.moments.device_s * 1000)


class DraftMetrics:
    """num_drafts: passes of a sample with draft tokens; of these tokens how many, and accepted ones, also by position
    (0 for the first)."""

    def __init__(self) -> None:
        self.num_drafts = self.num_tokens = self.num_accepted = 0
        self.accepted_by_position: Counter[int] = Counter()

    def observe(self, drafts: DraftCounts) -> None:
        self.num_drafts += int(np.count_nonzero(drafts.num_proposed))
        self.num_tokens += int(drafts.num_proposed.sum())
        self.num_accepted += int(drafts.num_accepted.sum())
        for count in drafts.num_accepted[drafts.num_accepted > 0].tolist():
            self.accepted_by_position.update(range(count))


class EngineMetrics:
    """Counted since the engine began to serve. The engine's thread writes; other threads may read at any moment.

    Counted by sample: tokens, times, `finished` (by finish reason) and preemptions; once per request: prompts,
    parameters and `refused` (by queue limit). Times are seconds: `queue_time` from the call to the first slot,
    `prefill_time` from there to the first token, `decode_time` from there to the last, `inference_time` from the first
    slot to the end, `latency` from the call to the end. A step that draws several tokens of a sample divides the time
    since its last one among them. Samples that never got a slot or a token are missing where one is needed.
    `step_tokens`, as vLLM counts them: a step's generated tokens, and the prompts of which it generated the first one.
    num_queried, num_hit: prompt tokens looked up in the prefix cache, and found. num_unseen: samples aborted before
    they reached the engine. load, num_coming: the last published load, and samples in the queue that have not reached
    the engine.
    """

    def __init__(self, load: QueueLoad, clock: Callable[[], float]):
        self._clock = clock
        self._live: set[SequenceOutput] = set()
        self.load, self.num_coming = load, 0
        self.num_unseen = self.num_queried = self.num_hit = 0
        self.num_prompt_tokens = self.num_generated_tokens = 0
        self.finished: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.drafts = DraftMetrics()
        self._last_steps: deque[StepRecord] = deque(maxlen=NUM_LAST_STEPS)

        self.step_tokens, self.prompt_tokens, self.generated_tokens = (Histogram(COUNTS) for _ in range(3))
        self.params_n, self.params_max_tokens, self.preemptions = (Histogram(c) for c in (COUNTS, COUNTS, [0, *COUNTS]))
        self.first_token, self.inter_token, self.time_per_token = (Histogram(MILLISECONDS) for _ in range(3))
        self.queue_time, self.prefill_time, self.decode_time = (Histogram(MILLISECONDS) for _ in range(3))
        self.inference_time, self.latency = Histogram(MILLISECONDS), Histogram(MILLISECONDS)
        self._tokens, self._first_token, self._inter_token = (
            TimeWindow(RECENT_S),
            TimeWindow(RECENT_S),
            TimeWindow(RECENT_S),
        )

    @property
    def num_running(self) -> int:
        return self.load.num_running

    @property
    def num_waiting(self) -> int:
        return self.load.num_waiting + self.load.num_held + self.num_coming

    @property
    def tokens_per_s(self) -> float:
        """Tokens generated per second, over the last seconds."""
        return self._tokens.rate(self._clock())

    @property
    def recent_first_token_s(self) -> float | None:
        """Mean time from call to first token over the last seconds; None without a token."""
        return self._first_token.mean(self._clock())

    @property
    def recent_inter_token_s(self) -> float | None:
        """Mean time from token to token, likewise."""
        return self._inter_token.mean(self._clock())

    @property
    def last_steps(self) -> list[StepSummary]:
        """The last `NUM_LAST_STEPS` steps, the oldest first."""
        return [StepSummary.of(record) for record in self._last_steps.copy()]

    def adapter_names(self) -> tuple[list[str], list[str]]:
        """The adapters of samples that have a slot now, and of those that have none; any thread may call it."""
        running, waiting = set[str](), set[str]()
        for sample in self._live.copy():
            adapter, sequence = sample.state.request.adapter, sample.sequence
            if adapter is not None and not sequence.is_finished:
                (running if sequence.slot >= 0 else waiting).add(adapter.name)
        return sorted(running), sorted(waiting)

    def begin(self, state: RequestState) -> None:
        """Record that a request has reached the engine."""
        self._live.update(state.samples)
        self.prompt_tokens.observe(len(state.prompt_ids))
        self.params_n.observe(len(state.samples))
        if state.request.max_tokens and state.request.params.max_tokens is not None:
            self.params_max_tokens.observe(state.request.params.max_tokens)

    def observe_step(self, record: StepRecord) -> None:
        """Record a committed step."""
        self._last_steps.append(record)
        if record.drafts is not None:
            self.drafts.observe(record.drafts)

    def observe(self, update: StepUpdate, samples: list[SequenceOutput]) -> None:
        """Record the tokens and ends of a step; `samples` are those of `update`."""
        num_before = self.num_prompt_tokens + self.num_generated_tokens
        if update.tokenless:
            counts = Counter(samples)
            counts.subtract(update.tokenless)
            samples = list(counts.elements())
        if samples:
            self._observe_tokens(samples, update.now_s)
        for sample in update.ended:
            self._end(sample, update.now_s)
        if num_tokens := self.num_prompt_tokens + self.num_generated_tokens - num_before:
            self.step_tokens.observe(num_tokens)

    def _observe_tokens(self, samples: list[SequenceOutput], now: float) -> None:
        """`samples` has one entry per token. Most samples had their last token in the step before, all at one moment:
        these are counted together."""
        distinct = set(samples)
        num_tokens = Counter([sample.last_token_s for sample in samples])
        num_samples = num_tokens
        if len(distinct) < len(samples):
            num_samples = Counter([sample.last_token_s for sample in distinct])
        for last_s, count in num_tokens.items():
            if last_s is not None:
                total_s = (now - last_s) * num_samples[last_s]
                self.inter_token.observe(total_s / count, count)
                self._inter_token.add(now, total_s, count)
        if None in num_tokens:
            for sample in distinct:
                if sample.last_token_s is None:
                    self._begin_output(sample, now)
        for sample in distinct:
            sample.last_token_s = now
        self.num_generated_tokens += len(samples)
        self._tokens.add(now, len(samples))

    def drop(self, state: RequestState) -> None:
        """Record that a request was aborted; no effect if all of it has ended."""
        now = self._clock()
        for sample in state.samples:
            self._end(sample, now)

    def refuse(self, limit: str) -> None:
        """Record a request refused by this queue limit. Any thread may call it, one at a time."""
        self.refused[limit] += 1

    def drop_unseen(self, request: Request) -> None:
        """Record a request that was aborted before it reached the engine."""
        self.finished["abort"] += request.params.num_sequences
        self.num_unseen += request.params.num_sequences

    def _begin_output(self, sample: SequenceOutput, now: float) -> None:
        """Record the first token of a sample."""
        sample.first_token_s = now
        waited_s = now - sample.state.request.arrival_s
        self.first_token.observe(waited_s)
        self._first_token.add(now, waited_s)
        self._end_prompt(sample)

    def _end_prompt(self, sample: SequenceOutput) -> None:
        num_tokens, num_cached = sample.sequence.prompt_len, sample.sequence.num_cached_tokens
        if sample.sequence.index == 0:
            self.num_prompt_tokens += num_tokens
        if num_cached is not None:
            self.num_queried += num_tokens
            self.num_hit += num_cached

    def _end(self, sample: SequenceOutput, now: float) -> None:
        if sample not in self._live:
            return
        self._live.remove(sample)
        sequence, arrival_s = sample.sequence, sample.state.request.arrival_s
        started_s, first_s, last_s = sequence.started_s, sample.first_token_s, sample.last_token_s
        num_tokens = sequence.num_tokens - sequence.prompt_len
        self.finished[sequence.finish_reason or "abort"] += 1
        self.latency.observe(now - arrival_s)
        self.preemptions.observe(sequence.num_preemptions)
        self.generated_tokens.observe(num_tokens)
        if started_s is not None:
            self.queue_time.observe(started_s - arrival_s)
            self.inference_time.observe(now - started_s)
        if started_s is not None and first_s is not None and last_s is not None:
            self.prefill_time.observe(first_s - started_s)
            self.decode_time.observe(last_s - first_s)
            if num_tokens > 1:
                self.time_per_token.observe((last_s - first_s) / (num_tokens - 1))
        elif sequence.finish_reason == "length":  # nothing is drawn for this request
            self._end_prompt(sample)
