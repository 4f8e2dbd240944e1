"""Laws of `batch_invariant`: a request's log-probabilities have the same bits in any batch and with any chunking."""

from typing import Any, NamedTuple

import numpy as np

from jaxserve import LLM, SamplingParams
from tests.support.golden_data import goldens
from tests.support.tiny_engines import driven, tiny_engine

# Less than one tile of 32, two tiles, three tiles; one program each.
SIZES = {"max_num_seqs": 40, "max_num_batched_tokens": 72, "buckets": "4 40 72x40"}
NUM_PAGES = {"llama3": 11, "gemma3": 26, "mistral": 11}  # too few for all requests
NUM_TOKENS = 20
OPTIONS = {"temperature": 0.9, "seed": 7, "max_tokens": NUM_TOKENS, "ignore_eos": True, "logprobs": 2}


class Kind(NamedTuple):
    """Of engine."""

    family: str
    dtype: str
    num_devices: int


def engine(kind: Kind, is_invariant: bool = True, **options: Any) -> LLM:
    fixed = {"dtype": kind.dtype, "tensor_parallel_size": kind.num_devices, "batch_invariant": is_invariant}
    return tiny_engine(kind.family, **SIZES | fixed | options)


def words(entries, tokens) -> list[int]:
    """Log-probabilities of tokens as their bit patterns."""
    chosen = [entry[token].logprob for entry, token in zip(entries, tokens, strict=True)]
    return np.array(chosen, np.float32).view(np.uint32).tolist()


def drawn(output) -> tuple:
    """Tokens and bits of a request's output."""
    sample = output.outputs[0]
    return tuple(sample.token_ids), tuple(words(sample.logprobs, sample.token_ids))


def of_prompt(output) -> tuple:
    return tuple(words(output.prompt_logprobs[1:], output.prompt_token_ids[1:]))


def others(count: int, seed: int = 0) -> tuple[list, list]:
    """Random prompts for the rest of the batch, and their options."""
    rng = np.random.default_rng(seed)
    prompts = [rng.integers(3, 300, rng.integers(1, 70)).tolist() for _ in range(count)]
    return prompts, [SamplingParams(seed=i, max_tokens=int(rng.integers(1, 30)), logprobs=i % 3) for i in range(count)]


def among(llm: LLM, prompt: list[int], params: SamplingParams, count: int):
    """The output of a request in the middle of `count` others."""
    prompts, all_params = others(count, seed=count)
    at = count // 2
    all_params = [*all_params[:at], params, *all_params[at:]]
    return llm.generate([*prompts[:at], prompt, *prompts[at:]], all_params, use_tqdm=False)[at]


def alone(llm: LLM, prompt: list[int], **changes):
    return llm.generate([prompt], SamplingParams(**OPTIONS | changes), use_tqdm=False)[0]


def different_bits(kind: Kind) -> list[str]:
    """Batches and chunkings in which a request's drawn tokens or its prompt have other bits than alone."""

    def variant(**options: Any) -> LLM:
        return engine(kind, **options)

    prompt, llm = goldens(kind.family)[2].prompt, variant()
    scored = SamplingParams(**OPTIONS, prompt_logprobs=0)
    outputs = {"alone": alone(llm, prompt, prompt_logprobs=0)}
    outputs |= {f"among {n} others": among(llm, prompt, scored, n) for n in (1, 3, 39, 60)}
    outputs["chunks of 1"] = alone(variant(max_chunk_tokens=1), prompt, prompt_logprobs=0)
    outputs["chunks of 7 among 9 others"] = among(variant(max_chunk_tokens=7), prompt, scored, 9)
    for num_rounds, is_overlapped in ((1, False), (5, True), (16, True)):
        with driven(llm, num_rounds, is_overlapped) as planned:
            outputs[f"{num_rounds} rounds, {is_overlapped}"] = alone(llm, prompt, prompt_logprobs=0)
            assert max(planned) == min(num_rounds, 16)
    found = {name: drawn(output) for name, output in outputs.items()}
    found_prompts = {name: of_prompt(output) for name, output in outputs.items()}

    cached = variant(prefix_eviction="hits")
    cached.reset_prefix_cache()
    for time in ("first", "second"):
        output = alone(cached, prompt)
        found[f"{time} time"] = drawn(output)
    assert output.num_cached_tokens == 48

    text = [*prompt, *found["alone"][0]]
    recomputed = of_prompt(alone(llm, text, max_tokens=1, prompt_logprobs=0))
    found["recomputed as a prompt"] = (found["alone"][0], recomputed[-NUM_TOKENS:])
    found_prompts["with its output"] = recomputed[: len(prompt) - 1]
    wrong = [name for name, bits in found.items() if bits != found["alone"]]
    return wrong + [f"prompt {name}" for name, bits in found_prompts.items() if bits != found_prompts["alone"]]


def num_changed_by_preemption(kind: Kind) -> int:
    """Requests that have other bits in a pool that is too small for all of them."""
    prompts = [goldens(kind.family)[i].prompt for i in (0, 0, 0, 0, 0, 2, 2, 1, 1, 1, 1)]
    params = [SamplingParams(**OPTIONS | {"seed": i, "max_tokens": 24}) for i in range(len(prompts))]
    tight, roomy = engine(kind, num_pages=NUM_PAGES[kind.family], max_chunk_tokens=8), engine(kind)
    outputs = tight.generate(prompts, params, use_tqdm=False)
    assert tight.stats.num_preemptions > 0
    expected = [roomy.generate([p], a, use_tqdm=False)[0] for p, a in zip(prompts, params, strict=True)]
    return sum(drawn(one) != drawn(other) for one, other in zip(outputs, expected, strict=True))


def num_completions(kind: Kind, count: int = 1000) -> int:
    """Different completions of one request that is asked `count` times among random others."""
    llm, prompt = engine(kind), goldens(kind.family)[1].prompt
    params = SamplingParams(**OPTIONS | {"max_tokens": 6, "logprobs": 0})
    prompts, all_params = others(100)
    for place in np.random.default_rng(1).integers(0, 100, count):
        prompts.insert(place, prompt)
        all_params.insert(place, params)
    outputs = llm.generate(prompts, all_params, use_tqdm=False)
    same = [drawn(output) for output, a in zip(outputs, all_params, strict=True) if a is params]
    assert len(same) == count
    return len(set(same))
