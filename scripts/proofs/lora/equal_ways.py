"""Rows with adapters equal merged weights: in one large batch, and in every way of running an engine."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from jaxserve import LoRARequest
from scripts.proofs.helpers.draft_configs import SMOLLM
from scripts.proofs.helpers.laws import Law
from scripts.proofs.lora.adapter_set import RANKS, with_prompts, write_adapters
from scripts.proofs.lora.merged_equality import compare, control
from scripts.proofs.lora.merged_scores import MergedModel
from scripts.proofs.lora.proof_sizes import Sizes

NUM_CONTROLS = 8
COMMON: dict[str, Any] = {
    "dtype": "float32",
    "quantization": "dense",
    "enable_lora": True,
    "max_lora_rank": max(RANKS),
    "max_model_len": 288,
    "max_num_batched_tokens": 256,
}
NGRAM = {"method": "ngram", "num_speculative_tokens": 4}
SUFFIX = {"method": "suffix", "num_speculative_tokens": 4}
WAYS: dict[str, dict[str, Any]] = {
    "tensor-parallel 3": {"tensor_parallel_size": 3},
    "chunks of 7": {"max_chunk_tokens": 7},
    "preempted": {"is_small_pool": True},
    "fewer places than adapters": {"max_loras": 3},
    "n-gram drafts": {"speculative_config": NGRAM},
    "suffix drafts": {"speculative_config": SUFFIX},
    "int8": {"quantization": "int8"},
    "packed Q4_1": {"quantization": "packed"},
    "batch-invariant": {"batch_invariant": True},
}


def one_batch(sizes: Sizes) -> list[Law]:
    """Adapters of all ranks and rows without one, all in one batch."""
    with tempfile.TemporaryDirectory() as folder:
        adapters = write_adapters(Path(folder), sizes.num_adapters)
        prompts, given = with_prompts(adapters, sizes.num_prompts)
        rows = max(sizes.num_prompts, 8)
        options = {"max_loras": len(adapters), "max_num_seqs": rows, "buckets": f"{rows} {max(256, rows)}x{rows}"}
        llm = _engine(options | {"max_num_batched_tokens": max(256, rows)}, sizes, rows)
        outputs = _generate(llm, prompts, given, sizes.num_tokens)
        laws: list[Law] = [("adapters on the device at once", llm.stats.num_adapters, len(adapters), None)]
        del llm
        model = MergedModel(SMOLLM)
        laws += compare(model, prompts, given, outputs).laws("one batch")
        return laws + control(model, prompts, given, outputs, min(NUM_CONTROLS, len(prompts)))


def one_way(way: str, sizes: Sizes) -> list[Law]:
    """Eight rows at once, of eight adapters and of none."""
    with tempfile.TemporaryDirectory() as folder:
        adapters = write_adapters(Path(folder), sizes.num_way_adapters)
        prompts, given = with_prompts(adapters, sizes.num_way_prompts)
        options = WAYS[way]
        llm = _engine({"max_loras": len(adapters), "max_num_seqs": 8, "buckets": "8 256x8"} | options, sizes, 8)
        laws = list[Law]()
        if "speculative_config" in options:
            outputs, num_accepted = _drafted(llm, prompts, given, sizes)
            laws.append((f"{way}: drafts that were accepted", num_accepted, 1, None))
        else:
            outputs = _generate(llm, prompts, given, sizes.num_way_tokens)
        if "is_small_pool" in options:
            laws.append((f"{way}: preemptions", llm.stats.num_preemptions, 1, None))
        if way == "fewer places than adapters":
            laws.append((f"{way}: adapters evicted", llm.stats.num_adapters_evicted, 1, None))
        if "batch_invariant" in options:
            laws += _bits(llm, prompts, given, outputs, sizes)
        del llm
        model = MergedModel(SMOLLM, "int8" if way == "int8" else "dense")
        return compare(model, prompts, given, outputs).laws(way) + laws


def _engine(options: dict[str, Any], sizes: Sizes, num_rows: int) -> Any:
    """is_small_pool: pages for one adapter of the highest rank and few rows more."""
    from jaxserve import LLM
    from jaxserve.engine.build.adapter_reading import max_adapter_pages

    options = COMMON | options
    is_small = options.pop("is_small_pool", False)
    llm = LLM(SMOLLM, **options, num_pages=num_rows * 18 + options["max_loras"] * 40 + 200)
    if not is_small:
        return llm
    # An engine takes no less: one adapter of the highest rank, and one sequence.
    least = max_adapter_pages(llm.parts.spec.programs) + 18
    del llm
    return LLM(SMOLLM, **options, num_pages=least + sizes.num_small_pages)


def _generate(llm: Any, prompts: list[list[int]], adapters: list[LoRARequest | None], num_tokens: int) -> list[Any]:
    from jaxserve import SamplingParams

    params = SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True, logprobs=0)
    return llm.generate(prompts, params, lora_request=adapters, use_tqdm=False)


def _drafted(
    llm: Any, prompts: list[list[int]], adapters: list[LoRARequest | None], sizes: Sizes
) -> tuple[list[Any], int]:
    """Texts of rows that all draft, and the number of drafts that were accepted. Suffixes are those of a first run."""
    from tests.support.drafting import always, counted

    _generate(llm, prompts, adapters, sizes.num_way_tokens)
    with counted(always(llm)) as seen:
        outputs = _generate(llm, prompts, adapters, sizes.num_way_tokens)
    return outputs, int(np.sum(seen, axis=0)[1])


def _bits(
    llm: Any, prompts: list[list[int]], adapters: list[LoRARequest | None], outputs: list[Any], sizes: Sizes
) -> list[Law]:
    """Rows alone and in company, by their bits; and the same of an engine without the option."""
    numbers = range(0, len(prompts), max(1, len(prompts) // 8))
    plain = _engine({"max_loras": 8, "max_num_seqs": 8, "buckets": "1 8 256x8"}, sizes, 8)
    company = {"batch-invariant": outputs, "without the option": _generate(plain, prompts, adapters, 16)}
    counts = {}
    for name, (engine, num_tokens) in {
        "batch-invariant": (llm, sizes.num_way_tokens), "without the option": (plain, 16)
    }.items():  # fmt: skip
        alone = [_generate(engine, [prompts[i]], [adapters[i]], num_tokens)[0] for i in numbers]
        counts[name] = sum(_words(a) != _words(company[name][i]) for i, a in zip(numbers, alone, strict=True))
    return [
        (f"batch-invariant: rows with other bits alone, of {len(numbers)}", counts["batch-invariant"], None, 0),
        (f"control, without the option: rows with other bits alone, of {len(numbers)}",
         counts["without the option"], 1, None),
    ]  # fmt: skip


def _words(output: Any) -> list[int]:
    from tests.support.invariance_laws import words

    sample = output.outputs[0]
    return words(sample.logprobs, sample.token_ids)
