"""Texts of an engine, drawn in all ways, are the same with CUDA graphs and without."""

from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np

from jaxserve import LLM, SamplingParams
from jaxserve.runner.programs import compiler_options
from scripts.benchmarks.gpu.benchmark_sizes import TextSizes
from scripts.benchmarks.gpu.reference_checks import record_of
from scripts.benchmarks.gpu.task_list import Record, Task

NO_GRAPHS = {"xla_gpu_enable_command_buffer": "INVALID"}
"""Of no kind of operation."""
WAYS: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {"temperature": 1},
    {"temperature": 0.8, "top_p": 0.9},
    {"temperature": 1, "top_k": 5},
    {"temperature": 1, "min_p": 0.1, "frequency_penalty": 0.5},
    {"temperature": 0, "repetition_penalty": 1.3, "logprobs": 5},
    {"temperature": 1, "top_k": 3000, "top_p": 0.99, "logprobs": 3},
    {"temperature": 1.2, "presence_penalty": 1, "logit_bias": {5: 3.0}},
)


def tasks(sizes: TextSizes) -> Iterator[Task]:
    yield Task(f"{sizes.num_texts} texts with CUDA graphs and without", "checks", partial(check, sizes))


def check(sizes: TextSizes) -> Record:
    """error: the share of texts that differ."""

    def compare() -> tuple[float, bool]:
        with_graphs = texts(sizes)
        with patch.dict(compiler_options.GPU, NO_GRAPHS):
            without = texts(sizes)
        return sum(one != other for one, other in zip(with_graphs, without, strict=True)) / sizes.num_texts, True

    return record_of(f"{sizes.num_texts}_texts_with_graphs", "none", 0.0, compare)


def texts(sizes: TextSizes) -> list[list[int]]:
    """Token ids, of prompts of many lengths, more than run at once."""
    llm, random = LLM(sizes.model, load_format="dummy", **sizes.options), np.random.default_rng(0)
    lens = random.integers(1, sizes.longest_prompt, sizes.num_texts)
    prompts = [random.integers(0, llm.parts.model.vocab_size, int(length)).tolist() for length in lens]
    common = {"ignore_eos": True, "detokenize": False}
    params = [
        SamplingParams(max_tokens=20 + i, seed=i, **common, **WAYS[i % len(WAYS)]) for i in range(sizes.num_texts)
    ]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]
