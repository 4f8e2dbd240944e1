"""Tokens per second of the offline engine with random weights, from the first prompt to the last token."""

import time
from collections.abc import Iterator
from functools import partial

import numpy as np

from jaxserve import LLM, SamplingParams
from scripts.benchmarks.gpu.benchmark_sizes import ThroughputSizes, weights_named
from scripts.benchmarks.gpu.task_list import Record, Task


def tasks(sizes: ThroughputSizes) -> Iterator[Task]:
    for quantization in sizes.quantizations:
        name = f"{sizes.num_prompts} prompts of {sizes.num_tokens} tokens, {sizes.num_tokens} each out, {quantization}"
        yield Task(name, "throughput", partial(measure, sizes, quantization))


def measure(sizes: ThroughputSizes, quantization: str) -> Record:
    """Every program is compiled before."""
    llm = LLM(sizes.model, load_format="dummy", quantization=quantization, **sizes.options)
    llm.warm_up(use_tqdm=False)
    shape = (sizes.num_prompts, sizes.num_tokens)
    prompts = np.random.default_rng(0).integers(0, llm.parts.model.vocab_size, shape).tolist()
    params = SamplingParams(temperature=0, max_tokens=sizes.num_tokens, ignore_eos=True, detokenize=False)
    started_s = time.monotonic()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    took_s = time.monotonic() - started_s
    num_out = sum(len(output.outputs[0].token_ids) for output in outputs)
    counts = {"prompts": sizes.num_prompts, "tokens_each": sizes.num_tokens, "tokens_out": num_out, "took_s": took_s}
    return counts | {"weights": weights_named(quantization, sizes.options)}
