"""The cases whose time is compared, and the completions that are counted."""

import time
from dataclasses import dataclass

import numpy as np

from jaxserve.core.sampling_params import SamplingParams
from jaxserve.engine.llm import LLM
from scripts.compare.steps_jaxserve_side import SPREAD, times

CONTEXT, PROMPT_LEN = 128, 512
MAX_ROWS, MAX_BATCHED_TOKENS = 32, 512
COMPLETION_LEN = 32


@dataclass(frozen=True, slots=True)
class Case:
    """Decode steps of so many rows, or the prompts of so many requests."""

    num_rows: int
    is_decode: bool

    def __str__(self) -> str:
        rows = f"{self.num_rows} row{'s' if self.num_rows > 1 else ''}"
        return f"decode step, {rows} of {CONTEXT}" if self.is_decode else f"prompts, {rows} of {PROMPT_LEN}"


CASES = [Case(1, True), Case(8, True), Case(MAX_ROWS, True), Case(4, False)]


def longest(num_steps: int) -> int:
    """Tokens of a context."""
    return max(CONTEXT + num_steps + SPREAD, PROMPT_LEN + 1)


def seconds_of(llm: LLM, case: Case, num_steps: int, seed: int) -> float:
    """Of the median step, or of all prompts together."""
    llm.reset_prefix_cache()
    if case.is_decode:
        spec = {"context": CONTEXT, "num_steps": num_steps}
        return float(np.median(times(llm, spec, {"rows": case.num_rows, "sampling": {"temperature": 0.0}})))
    prompts = _random_prompts(llm, seed, [PROMPT_LEN] * case.num_rows)
    started_s = time.perf_counter()
    llm.generate(prompts, SamplingParams(temperature=0.0, max_tokens=1), use_tqdm=False)
    return time.perf_counter() - started_s


def distinct(llm: LLM, num_completions: int) -> dict[str, int]:
    """How many different texts, and different log-probabilities, greedy completions of one prompt have beside as many
    random requests."""
    rng = np.random.default_rng(0)
    prompts = _random_prompts(llm, 1, rng.integers(1, CONTEXT, num_completions).tolist())
    lengths = rng.integers(1, COMPLETION_LEN, num_completions).tolist()
    (same,) = _random_prompts(llm, 2, [CONTEXT])
    order = rng.permutation(2 * num_completions)
    requests = [*zip(prompts, lengths, strict=True), *[(same, COMPLETION_LEN)] * num_completions]
    params = [
        SamplingParams(
            temperature=0.0, max_tokens=requests[i][1], ignore_eos=True, logprobs=0, skip_reading_prefix_cache=True
        )
        for i in order
    ]
    outputs = llm.generate([requests[i][0] for i in order], params, use_tqdm=False)
    samples = [output.outputs[0] for output, i in zip(outputs, order, strict=True) if i >= num_completions]
    texts = [tuple(sample.token_ids) for sample in samples]
    bits = [tuple(entry[t].logprob for t, entry in zip(s.token_ids, s.logprobs or [], strict=True)) for s in samples]
    return {"texts": len(set(texts)), "log-probabilities": len(set(bits))}


def _random_prompts(llm: LLM, seed: int, lengths: list[int]) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(10, llm.parts.model.vocab_size, n).tolist() for n in lengths]
