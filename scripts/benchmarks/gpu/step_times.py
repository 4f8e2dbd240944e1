"""Whole steps of an engine with random weights, decoding and computing prompts; with the host's part of the time."""

import gc
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product

import jax.numpy as jnp
import numpy as np

from jaxserve import LLM, SamplingParams
from jaxserve.analysis.step_costs import model_costs
from jaxserve.engine.inputs.prompt import Prompt
from jaxserve.engine.loop.step_stats import StepLog, StepRecord
from scripts.benchmarks.gpu.benchmark_sizes import EngineSizes
from scripts.benchmarks.gpu.task_list import Record, Task


def tasks(sizes: EngineSizes) -> Iterator[Task]:
    """One task per engine and number of sequences. Only one engine exists at a time."""
    for backend, quantization in product(sizes.backends, sizes.quantizations):
        kind = {"backend": backend, "weights": quantization if quantization != "auto" else sizes.options["dtype"]}
        engine = Lazy(partial(build, sizes, backend, quantization))
        for batch in sizes.batches:
            name = f"{backend}, {kind['weights']} weights, {batch} sequences"
            yield Task(name, "engine", partial(measure, engine, sizes, kind, batch))


class Lazy:
    """An engine that is built when it is first needed; if that fails, each use raises the error again."""

    def __init__(self, make: Callable[[], LLM]):
        self._make = make
        self._made: LLM | Exception | None = None

    def get(self) -> LLM:
        if self._made is None:
            try:
                self._made = self._make()
            except Exception as error:
                self._made = error
        if isinstance(self._made, Exception):
            raise self._made
        return self._made


def build(sizes: EngineSizes, backend: str, quantization: str) -> LLM:
    gc.collect()  # weights and pool of the previous engine
    options = {"load_format": "dummy", "attention_backend": backend, "quantization": quantization}
    options["max_decode_rounds"] = 1  # single steps are timed
    return LLM(sizes.model, **options, **sizes.options)


def measure(engine: Lazy, sizes: EngineSizes, kind: Record, batch: int) -> Record:
    """Medians of the steps in which all sequences decode, and of those that compute as many prompt tokens as fit; the
    bytes that the former must read, and the products' operations of the latter."""
    llm = engine.get()
    records = decode(llm, batch, sizes).records
    figures = median_step(records, batch) | median_prefill(records)
    model, costs = llm.parts.model, model_costs(llm.parts.spec.programs)
    itemsize = jnp.dtype(llm.parts.runner.settings.model.dtype).itemsize
    position_bytes = 2 * model.num_layers * model.num_kv_heads * model.head_dim * itemsize
    return (
        figures
        | kind
        | {
            "batch": batch,
            "weight_bytes": costs.weight_bytes,
            "kv_bytes": figures["context"] * batch * position_bytes,
            "prefill_ops": figures["prefill_tokens"] * costs.token_operations,
        }
    )


def median_step(records: Sequence[StepRecord], batch: int) -> Record:
    """Seconds of the median step and its positions per sequence; records: all steps from the first prompt on.

    The first of these steps may include compilation; the median ignores it.
    """
    step_s = np.array([r.moments.device_s for r in records])
    positions = np.cumsum([r.num_tokens for r in records])  # no sequence has ended: the pool holds all of them
    chosen = [i for i, r in enumerate(records) if is_whole(r, batch)]
    return {
        "num_steps": len(chosen),
        "step_s": float(np.median(step_s[chosen])),
        "context": float(np.median(positions[chosen])) / batch,
    }


def median_prefill(records: Sequence[StepRecord]) -> Record:
    """Seconds of the median step of the most prompt tokens, and how many these are.

    Of steps that were submitted behind another one: a submission lasts into the step itself, so that a lone step of
    1,024 tokens seemed to take 9 ms on an H200, at over twice the rate of its products.
    """
    steps = [r for r in records if r.kind != "decode" and r.moments.previous_s > r.moments.submitted_s]
    num_tokens = max((r.num_tokens for r in steps), default=0)
    step_s = [r.moments.device_s for r in steps if r.num_tokens == num_tokens]
    return {"prefill_tokens": num_tokens, "prefill_s": float(np.median(step_s)) if step_s else None}


def is_whole(record: StepRecord, batch: int) -> bool:
    return record.kind == "decode" and record.num_rows == batch


def decode(llm: LLM, batch: int, sizes: EngineSizes) -> StepLog:
    """The log of all steps from the prompts to the last requested decode step; aborts the requests at the end."""
    parts, log = llm.parts, StepLog()
    prompts = np.random.default_rng(batch).integers(0, parts.model.vocab_size, (batch, sizes.prompt_len)).tolist()
    params = SamplingParams(temperature=0, max_tokens=None, ignore_eos=True, detokenize=False)
    requests = llm.admit([Prompt(None, prompt) for prompt in prompts], params)
    parts.engine.observer = log
    try:
        for request in requests:
            parts.engine.add(request)
        while sum(is_whole(record, batch) for record in log.records) < sizes.num_steps:
            if not parts.engine.has_work:
                raise RuntimeError("sequences reached the end of their context too early: increase max_model_len")
            parts.engine.step()
    finally:
        parts.engine.observer = None
        for request in requests:
            parts.engine.scheduler.abort(request.request_id)
        for _ in parts.engine.drain():
            pass
    return log
