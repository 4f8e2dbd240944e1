"""The timed cases, and the comparison of completions."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.core.outputs import Logprob
from jaxserve.engine.llm import LLM
from scripts.benchmarks.compare.steps_jaxserve_side import SPREAD, times

CONTEXT, PROMPT_LEN = 128, 512
MAX_ROWS, MAX_BATCHED_TOKENS = 32, 512
COMPLETION_LEN = 32


@dataclass(frozen=True, slots=True)
class Case:
    """Decode steps of `num_rows` rows, or the prompts of `num_rows` requests."""

    num_rows: int
    is_decode: bool

    def __str__(self) -> str:
        rows = f"{self.num_rows} row{'s' if self.num_rows > 1 else ''}"
        return f"decode step, {rows} of {CONTEXT}" if self.is_decode else f"prompts, {rows} of {PROMPT_LEN}"


CASES = [Case(1, True), Case(8, True), Case(MAX_ROWS, True), Case(4, False)]


def longest(num_steps: int) -> int:
    """The longest context in tokens."""
    return max(CONTEXT + num_steps + SPREAD, PROMPT_LEN + 1)


def seconds_of(llm: LLM, case: Case, num_steps: int, seed: int) -> float:
    """Seconds of the median decode step, or of all prompts together."""
    llm.reset_prefix_cache()
    if case.is_decode:
        spec = {"context": CONTEXT, "num_steps": num_steps}
        return float(np.median(times(llm, spec, {"rows": case.num_rows, "sampling": {"temperature": 0.0}})))
    prompts = _random_prompts(llm, seed, [PROMPT_LEN] * case.num_rows)
    started_s = time.perf_counter()
    llm.generate(prompts, SamplingParams(temperature=0.0, max_tokens=1), use_tqdm=False)
    return time.perf_counter() - started_s


def differences(llm: LLM, num_completions: int) -> dict[str, int]:
    """Counts among greedy completions of one prompt, batched with as many random requests: different texts, different
    log-probabilities, and log-probabilities of the random requests that change when their texts are recomputed as
    prompts."""
    rng = np.random.default_rng(0)
    prompts = _random_prompts(llm, 1, rng.integers(1, CONTEXT, num_completions).tolist())
    (same,) = _random_prompts(llm, 2, [CONTEXT])
    order = rng.permutation(2 * num_completions).tolist()
    requests = [*prompts, *[same] * num_completions]
    params = SamplingParams(temperature=0.0, max_tokens=COMPLETION_LEN, ignore_eos=True, logprobs=0)
    llm.reset_prefix_cache()
    outputs = llm.generate([requests[i] for i in order], params, use_tqdm=False)
    samples = {i: output.outputs[0] for i, output in zip(order, outputs, strict=True)}
    bits = {i: _chosen(sample.logprobs, sample.token_ids) for i, sample in samples.items()}
    completions = range(num_completions, 2 * num_completions)

    texts = [prompt + samples[i].token_ids for i, prompt in enumerate(prompts)]
    scored = llm.generate(texts, SamplingParams(max_tokens=1, prompt_logprobs=0), use_tqdm=False)
    again = [
        _chosen(output.prompt_logprobs, text)[-COMPLETION_LEN:] for output, text in zip(scored, texts, strict=True)
    ]
    return {
        "texts": len({tuple(samples[i].token_ids) for i in completions}),
        "log-probabilities": len({bits[i] for i in completions}),
        "recomputed": num_completions * COMPLETION_LEN,
        "recomputed otherwise": sum(a != b for i, of in enumerate(again) for a, b in zip(of, bits[i], strict=True)),
    }


def _chosen(entries: Sequence[dict[int, Logprob] | None] | None, tokens: list[int]) -> tuple[float | None, ...]:
    """Log-probabilities of the tokens; None for the first of a prompt."""
    return tuple(entry and entry[token].logprob for entry, token in zip(entries or [], tokens, strict=True))


def _random_prompts(llm: LLM, seed: int, lengths: list[int]) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(10, llm.parts.model.vocab_size, n).tolist() for n in lengths]
