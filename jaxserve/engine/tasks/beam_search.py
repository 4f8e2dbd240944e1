"""Host: `beam_search`: the searches of several prompts, side by side in one engine."""

from collections import deque
from typing import Any

import numpy as np

from jaxserve.core.errors import RequestError
from jaxserve.core.options.beam_search_params import BeamSearchParams
from jaxserve.core.options.lora_request import AdapterFailure
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.core.outputs import BeamSearchOutput, BeamSearchSequence
from jaxserve.core.progress_bars import CountBar
from jaxserve.core.request import Request
from jaxserve.core.sequence import Sequence, TokenLogprobs
from jaxserve.engine.inputs.input_processor import InputProcessor
from jaxserve.engine.inputs.prompt import read_prompts
from jaxserve.engine.inputs.request_adapters import read_lora_requests
from jaxserve.engine.outputs.output_processor import OutputProcessor
from jaxserve.engine.outputs.output_stream import position_logprobs
from jaxserve.engine.tasks.admission import admit
from jaxserve.engine.tasks.beam_rules import BeamFrontier, BeamNode, BeamRules
from jaxserve.scheduler.scheduler import Scheduler
from jaxserve.text.detokenize import Detokenizer


class BeamSearch:
    """The running search of one prompt."""

    def __init__(self, outputs: OutputProcessor, request: Request, rules: BeamRules):
        self._outputs, self.request = outputs, request
        self._frontier = BeamFrontier(rules)
        with outputs.exclusive() as engine:
            beams = engine.live().add_beams(request, rules.beam_width, rules.num_candidates)
        self._sequences = beams[:1]  # those of the running texts, in their order
        self._failed: Sequence | None = None

    @property
    def is_done(self) -> bool:
        return self._frontier.is_done or self._failed is not None

    def advance(self) -> None:
        """Choose the next tokens, if all candidates are known. A search that is done gives its pages back."""
        self._failed = next((sequence for sequence in self._sequences if sequence.is_finished), None)
        if self._failed is None:
            with self._outputs.exclusive() as engine:
                self._branch(engine.scheduler)
        if self.is_done:
            self._outputs.abort([self.request])

    def _branch(self, scheduler: Scheduler) -> None:
        candidates = [known for each in self._sequences if (known := scheduler.candidates(each)) is not None]
        if len(candidates) < len(self._sequences):
            return
        chosen = self._frontier.advance(candidates)
        if not self.is_done:
            choices = [(self._sequences[parent], token) for parent, token in chosen]
            self._sequences = scheduler.branch(self.request.request_id, choices)

    def output(self, detokenizer: Detokenizer | None, *, keeps_eos: bool) -> BeamSearchOutput:
        """The ended texts, or the running ones if logits were not finite or the adapter could not be read."""
        beams, sequences = self._frontier, list[BeamSearchSequence]()
        failure = None if self._failed is None else self._failed.stop_reason
        if self._failed is not None:
            ends = [(node, None, "error") for node in beams.running]
        else:
            ends = [(end.node, float(end.score), "stop" if end.is_stop else "length") for end in beams.ended]
        for node, score, reason in ends:
            path = [] if node is None else node.path()
            tokens = self.request.prompt_token_ids.tolist() + [step.token for step in path]
            if reason == "stop" and not keeps_eos:
                del tokens[-1]
            sequences.append(
                BeamSearchSequence(
                    tokens=tokens,
                    logprobs=[position_logprobs(step.token, _entry(step), detokenizer) for step in path],
                    cum_logprob=0.0 if node is None else float(node.total),
                    score=score,
                    text=None if detokenizer is None else _text(detokenizer, tokens),
                    finish_reason=reason,
                    stop_reason=failure if isinstance(failure, AdapterFailure) else None,
                    lora_request=self.request.lora_request,
                )
            )
        return BeamSearchOutput(sequences)


def beam_search(
    outputs: OutputProcessor,
    inputs: InputProcessor,
    prompts: Any,
    params: BeamSearchParams,
    *,
    max_num_seqs: int,
    lora_request: Any = None,
    use_tqdm: bool = False,
) -> list[BeamSearchOutput]:
    """The likeliest texts after each prompt, in order of the prompts; as many prompts at once as there are slots for.

    max_num_seqs: the engine's slots. lora_request: as `LLM.generate` takes it. Raises `RequestError` naming prompt and
    parameter before anything runs. An exception meanwhile, an interrupt too, ends these searches and no other request.
    """
    given: Any = params
    if not isinstance(given, BeamSearchParams):
        raise RequestError("params must be a BeamSearchParams", "params")
    read = read_prompts(prompts)
    eos_ids = () if params.ignore_eos else inputs.eos_ids
    _check_width(params, 1 + len(eos_ids), inputs, max_num_seqs)
    # Beams share the KV of all their tokens.
    sampling = SamplingParams(
        temperature=0, max_tokens=params.max_tokens, ignore_eos=params.ignore_eos, kv_policy=False
    )
    lora_requests = read_lora_requests(lora_request, len(read))
    requests = admit(outputs, inputs, inputs.requests(read, [sampling] * len(read), lora_requests=lora_requests))
    rules = [
        BeamRules(params.beam_width, request.max_tokens, eos_ids, params.length_penalty, params.early_stopping)
        for request in requests
    ]
    searches: list[BeamSearch] = []
    waiting, running = deque(zip(requests, rules, strict=True)), list[BeamSearch]()
    try:
        with CountBar(use_tqdm, desc="Searching", unit="prompt", total=len(requests)) as bar:
            while waiting or running:
                while waiting and (len(running) + 1) * params.beam_width <= max_num_seqs:
                    running.append(BeamSearch(outputs, *waiting.popleft()))
                    searches.append(running[-1])
                outputs.step()
                for search in running:
                    search.advance()
                left = [search for search in running if not search.is_done]
                bar.update(len(running) - len(left))
                running = left
    finally:
        outputs.abort(requests)
    return [search.output(outputs.detokenizer, keeps_eos=params.include_stop_str_in_output) for search in searches]


def _check_width(params: BeamSearchParams, per_beam: int, inputs: InputProcessor, max_num_seqs: int) -> None:
    """Raise `RequestError` for a width that the engine cannot serve."""
    width = params.beam_width
    if width > max_num_seqs:
        raise RequestError(f"beam_width={width} is more than the engine's max_num_seqs={max_num_seqs}", "beam_width")
    needed = max(2, per_beam) * width
    if needed > inputs.max_logprobs:
        raise RequestError(
            f"beam_width={width} looks at the {needed} likeliest tokens of each step (one more per beam than there are "
            f"end-of-sequence tokens, at least two), but the engine's max_logprobs is {inputs.max_logprobs}",
            "beam_width",
        )


def _entry(node: BeamNode) -> TokenLogprobs:
    """The log-probabilities of the node's token and of the other candidates."""
    top_ids, top = node.candidates.top_ids, node.candidates.top
    rank = 1 + int(np.count_nonzero(top > top[node.index]))
    return TokenLogprobs(float(top[node.index]), rank, top_ids, top)


def _text(detokenizer: Detokenizer, tokens: list[int]) -> str:
    stream = detokenizer.stream()
    return stream.push(tokens) + stream.finish()
