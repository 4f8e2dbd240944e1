"""Wiring: `LLM`, the offline interface: prompts in, texts out, in the order of the prompts."""

import os
import sys
import time
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from typing import Any

from jaxserve.core.config import EngineConfig
from jaxserve.core.errors import RequestError
from jaxserve.core.outputs import RequestMetrics, RequestOutput
from jaxserve.core.request import Request
from jaxserve.core.sampling_params import SamplingParams
from jaxserve.core.sequence import Sequence
from jaxserve.engine.build import build
from jaxserve.engine.progress import CompileBar, GenerateBar, LoadBar
from jaxserve.engine.prompts import Prompt, read_prompts
from jaxserve.engine.results import request_output
from jaxserve.text.detokenize import Detokenizer
from jaxserve.text.output_text import OutputText
from jaxserve.text.stop import StopStrings
from jaxserve.text.tokenizer import Tokenizer


@dataclass(slots=True)
class _Job:
    """One request under way: its sequences, their texts so far, and when things happened."""

    request: Request
    prompt: str | None
    sequences: list[Sequence]
    outputs: list[OutputText | None]
    metrics: RequestMetrics
    texts: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Stats:
    """num_executables: compiled so far. num_reads: transfers from the device, one a step."""

    num_preemptions: int
    num_pages_free: int
    num_executables: int
    num_reads: int


class LLM:
    """A model ready to complete prompts.

    >>> llm = LLM("smollm2-135m-instruct")
    >>> llm.generate("The capital of France is", SamplingParams(temperature=0))[0].outputs[0].text

    Options are the fields of `EngineConfig`, vLLM's names included; what cannot be honoured raises `ConfigError`
    naming it. Shapes are compiled when they are first needed, until `warm_up` has compiled all of them. `parts` are the
    engine, the runner and what else it was built from, for inspection and for driving them by hand.
    """

    def __init__(self, model: str | os.PathLike[str], **options: Any):
        self._start(EngineConfig.create(model, **options), show_progress=sys.stderr.isatty())

    @classmethod
    def from_config(cls, config: EngineConfig, *, show_progress: bool = False) -> "LLM":
        llm = cls.__new__(cls)
        llm._start(config, show_progress=show_progress)
        return llm

    def _start(self, config: EngineConfig, *, show_progress: bool) -> None:
        self.config = config
        with LoadBar(show_progress) as bar:
            self.parts = build(config, bar.update)
        if show_progress:
            print(self._description(), file=sys.stderr)
        tokenizer = self.parts.tokenizer
        self._detokenizer = None if tokenizer is None else Detokenizer(tokenizer, self.parts.model.vocab_size)

    def _description(self) -> str:
        """One line: what was built, and the sizes that were left open."""
        built = self.parts
        mesh, limits = built.runner.settings.mesh, built.limits
        return (
            f"jaxserve: {built.model.family} on {mesh.size} {mesh.devices.flat[0].platform} device(s), "
            f"{built.runner.dtype}, context {limits.max_model_len}, {limits.max_num_seqs} sequences, "
            f"{limits.num_pages} pages of {limits.page_size} positions"
        )

    def get_tokenizer(self) -> Tokenizer | None:
        return self.parts.tokenizer

    @property
    def stats(self) -> Stats:
        """Counts since the engine was built."""
        engine, runner = self.parts.engine, self.parts.runner
        return Stats(
            num_preemptions=engine.scheduler.num_preemptions,
            num_pages_free=engine.scheduler.num_pages_free,
            num_executables=len(runner.executables),
            num_reads=runner.num_reads,
        )

    def warm_up(self, *, use_tqdm: bool = True) -> None:
        """Compile every bucket now and refuse all other shapes from then on."""
        buckets = self.parts.buckets.all()
        with CompileBar(use_tqdm, desc="Compiling", unit="bucket", total=len(buckets)) as bar:
            self.parts.runner.warm_up(bar.over(buckets))
        self.parts.runner.freeze()

    def generate(
        self,
        prompts: Any,
        sampling_params: SamplingParams | SequenceOf[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Complete each prompt; one result a prompt, in order.

        prompts: text, a list of token ids, a dict with `prompt` or `prompt_token_ids`, or a list of those.
        sampling_params: for all prompts, or one a prompt. Raises RequestError (a ValueError) naming the prompt and the
        parameter before anything runs. A sample whose logits are not finite ends with finish_reason "error"; if the
        device fails, EngineDeadError is raised and the engine must be built anew.
        """
        jobs: list[_Job] = []
        try:
            for prompt, request in self._requests(prompts, sampling_params):
                jobs.append(self._job(prompt, request))
            self._run(jobs, use_tqdm)
        except BaseException:
            for job in jobs:
                self.parts.engine.abort(job.request.request_id)
            raise
        return [self._result(job) for job in jobs]

    def _run(self, jobs: list[_Job], use_tqdm: bool) -> None:
        """Step until every sequence has ended, and once more for the step that was in flight then."""
        by_sequence = {s.sequence_id: (job, s.index) for job in jobs for s in job.sequences}
        num_left = len(by_sequence)
        with GenerateBar(use_tqdm, num_left) as bar:
            while num_left:
                num_finished, num_tokens = self._step(by_sequence)
                num_left -= num_finished
                bar.update(num_finished, num_tokens)
        for _ in self.parts.engine.drain():
            pass

    def _requests(self, prompts: Any, sampling_params: Any) -> list[tuple[Prompt, Request]]:
        """All requests, checked: a bad one stops the call before any has begun."""
        read = read_prompts(prompts)
        params = _params_for(sampling_params, len(read))
        requests = []
        for i, (prompt, ids, p) in enumerate(zip(read, self.parts.requests.token_ids(read), params, strict=True)):
            try:
                requests.append((prompt, self.parts.requests.make(ids, p, place=i)))
            except RequestError as error:
                where = f"prompt {i}: " if len(read) > 1 else ""
                raise RequestError(f"{where}{error}", error.param) from None
        self.parts.requests.count(len(requests))
        return requests

    def _job(self, prompt: Prompt, request: Request) -> _Job:
        sequences = self.parts.engine.add(request)
        params = request.params
        outputs: list[OutputText | None] = [None] * len(sequences)
        if self._detokenizer is not None and params.detokenize:
            stops = StopStrings(params.stop, params.include_stop_str_in_output) if params.stop else None
            prompt_ids = request.prompt_token_ids.tolist()
            streams = [self._detokenizer.stream(prompt_ids, params.skip_special_tokens) for _ in sequences]
            outputs = [OutputText(stream, params, stops) for stream in streams]
        metrics = RequestMetrics(arrival_s=request.arrival_s)
        return _Job(request, prompt.text, sequences, outputs, metrics, [""] * len(sequences))

    def _step(self, by_sequence: dict[int, tuple[_Job, int]]) -> tuple[int, int]:
        """One engine step; returns how many sequences ended and how many tokens came."""
        deltas = self.parts.engine.step()
        now, num_finished = time.monotonic(), 0
        rows = zip(deltas.sequences, deltas.tokens.tolist(), deltas.is_finished.tolist(), strict=True)
        for sequence, token, is_finished in rows:
            job, index = by_sequence[sequence.sequence_id]
            if job.metrics.first_token_s is None:
                job.metrics.first_token_s = now
            is_finished = self._extend(job, index, sequence, token, is_finished)
            if is_finished:
                num_finished += 1
                job.metrics.finish_s = now
        return num_finished, len(deltas.tokens)

    def _extend(self, job: _Job, index: int, sequence: Sequence, token: int, is_finished: bool) -> bool:
        """Add a token's text; a stop string in it ends the sequence here."""
        output = job.outputs[index]
        if output is None:
            return is_finished
        if sequence.finish_reason != "error":
            job.texts[index] += output.push([token], is_ended_by_token=sequence.finish_reason == "stop")
        if output.stop_string is not None:
            if is_finished:  # the limit was reached by the token that completed the stop string
                sequence.finish("stop", output.stop_string, output.num_tokens)
            self.parts.engine.finish(sequence.sequence_id, "stop", output.num_tokens, output.stop_string)
            return True
        if is_finished:
            job.texts[index] += output.finish()
        return is_finished

    def _result(self, job: _Job) -> RequestOutput:
        detokenizer = self._detokenizer if job.request.params.detokenize else None
        return request_output(job.request, job.prompt, job.sequences, job.texts, job.metrics, detokenizer)


def _params_for(params: Any, count: int) -> list[SamplingParams]:
    if params is None:
        params = SamplingParams()
    if isinstance(params, SamplingParams):
        return [params] * count
    if not isinstance(params, list | tuple) or not all(isinstance(p, SamplingParams) for p in params):
        raise RequestError("sampling_params must be a SamplingParams or a list of them", "sampling_params")
    if len(params) != count:
        raise RequestError(
            f"{count} prompts but {len(params)} sampling_params: give one, or one a prompt", "sampling_params"
        )
    return list(params)
