"""Decode steps with drafts of a smaller model, accepted at a given rate: what they gain."""

import gc
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from jaxserve import LLM
from jaxserve.engine.loop.step_stats import StepRecord
from jaxserve.engine.serving.engine_metrics import DraftMetrics
from scripts.benchmarks.gpu.benchmark_sizes import DraftSizes
from scripts.benchmarks.gpu.step_times import Lazy, decoding, median_step
from scripts.benchmarks.gpu.task_list import Record, Task


def tasks(sizes: DraftSizes) -> Iterator[Task]:
    """Steps of each model alone, then passes with drafts by rate; every engine's programs are compiled at once."""
    yield from _alone("draft model", Lazy(partial(build, sizes, sizes.draft)), sizes)
    for rate in sizes.rates:
        yield from _pair(rate, sizes)


def _alone(model: str, engine: Lazy, sizes: DraftSizes) -> Iterator[Task]:
    for batch in sizes.batches:
        yield _task(f"{model} alone, {batch} sequences", measure_plain, engine, sizes, batch, model=model, rate=None)


def _pair(rate: float, sizes: DraftSizes) -> Iterator[Task]:
    options = {"method": "draft_model", "model": sizes.draft, "num_speculative_tokens": sizes.num_drafts}
    engine = Lazy(partial(build, sizes, sizes.model, speculative_config=options | {"synthetic_acceptance": rate}))
    if rate == sizes.rates[0]:
        yield from _alone("model", engine, sizes)
    for batch in sizes.batches:
        name = f"drafts accepted at {rate}, {batch} sequences"
        yield _task(name, measure_drafts, engine, sizes, batch, model="both", rate=rate)


def _task(name: str, measure: Any, engine: Lazy, sizes: DraftSizes, batch: int, **kind: Any) -> Task:
    return Task(name, "drafts", lambda: {**kind, "batch": batch} | measure(engine.get(), sizes, batch))


def build(sizes: DraftSizes, model: str, **options: Any) -> LLM:
    gc.collect()  # weights and pool of the previous engine
    llm = LLM(model, load_format="dummy", max_decode_rounds=1, **options, **sizes.options)
    llm.warm_up(use_tqdm=False)
    return llm


def measure_plain(llm: LLM, sizes: DraftSizes, batch: int) -> Record:
    with decoding(llm, batch, sizes.prompt_len, speculation=False) as (log, run_until):
        run_until(sizes.num_steps)
    return {"step_s": median_step(log.records, batch)["step_s"]}


def measure_drafts(llm: LLM, sizes: DraftSizes, batch: int) -> Record:
    with decoding(llm, batch, sizes.prompt_len) as (log, run_until):
        run_until(sizes.num_steps)
    return pass_figures(log.records, batch)


def pass_figures(records: Sequence[StepRecord], batch: int) -> Record:
    """Of passes with drafts of all sequences, in the bucket that most of them have: their median time, and by sequence
    how many drafts they have and by how many tokens they advance. Raises NotImplementedError if there are none."""
    passes = [r for r in records if r.drafts is not None and np.count_nonzero(r.drafts.num_proposed) == batch]
    if not passes:
        raise NotImplementedError("no pass had drafts of all sequences")
    bucket = Counter(r.bucket for r in passes).most_common(1)[0][0]
    counts, chosen = DraftMetrics(), [r for r in passes if r.bucket == bucket]
    for r in chosen:
        assert r.drafts is not None
        counts.observe(r.drafts)
    return {
        "step_s": float(np.median([r.moments.device_s for r in chosen])),
        "drafts_a_pass": counts.num_tokens / counts.num_drafts,
        "tokens_a_pass": 1 + counts.num_accepted / counts.num_drafts,
    }
