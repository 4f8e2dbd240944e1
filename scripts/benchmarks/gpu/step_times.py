"""Whole steps of an engine with random weights, decoding and computing prompts; with the host's part of the time."""

import gc
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import jax
import jax.numpy as jnp
import numpy as np

from jaxserve import LLM, SamplingParams
from jaxserve.analysis.step_costs import model_costs
from jaxserve.bench.profile.profiler_trace import Trace, read_profiler_trace
from jaxserve.bench.profile.scopes import read_scopes
from jaxserve.bench.profile.timeline import Span, share_time
from jaxserve.bench.profile.trace_times import best_match
from jaxserve.engine.inputs.prompt import Prompt
from jaxserve.engine.loop.step_stats import StepLog, StepRecord
from scripts.benchmarks.gpu.benchmark_sizes import EngineSizes, weights_named
from scripts.benchmarks.gpu.task_list import Record, Task

PROFILED_STEPS = 16


def tasks(sizes: EngineSizes) -> Iterator[Task]:
    """One task per engine and number of sequences, and the profiles. Only one engine exists at a time."""
    for backend, quantization in product(sizes.backends, sizes.quantizations):
        kind = {"backend": backend, "weights": weights_named(quantization, sizes.options)}
        engine = Lazy(partial(build, sizes, backend, quantization))
        for batch in sizes.batches:
            name = f"{backend}, {kind['weights']} weights, {batch} sequences"
            yield Task(name, "engine", partial(measure, engine, sizes, kind, batch))
        for batch in sizes.profiled if backend == sizes.backends[0] else ():
            yield Task(f"profile of {batch} sequences", "profile", partial(profile, engine, sizes, batch))


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
    with decoding(llm, batch, sizes.prompt_len) as (log, run_until):
        run_until(sizes.num_steps)
    figures = median_step(log.records, batch) | median_prefill(log.records)
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


def profile(engine: Lazy, sizes: EngineSizes, batch: int) -> Record:
    """Microseconds of a decode step by scope of the model and by operation, and without any operation, traced."""
    llm = engine.get()
    with decoding(llm, batch, sizes.prompt_len) as (log, run_until), TemporaryDirectory() as folder:
        run_until(2)
        begin = len(log.records)
        with jax.profiler.trace(folder):
            run_until(2 + PROFILED_STEPS)
        num_steps = len(log.records) - begin
        trace = read_profiler_trace(Path(folder), ())
    spans, scopes, containers = _by_program(llm, trace)
    shares, idle_ns = share_time(spans, containers)
    by_scope: dict[str, float] = defaultdict(float)
    for op, spent_ns in shares.items():
        by_scope[scopes.get(op, "another program")] += spent_ns
    return {
        "batch": batch,
        "num_steps": num_steps,
        "scopes_us": _largest(by_scope, num_steps),
        "ops_us": _largest(shares, num_steps),
        "idle_us": idle_ns / 1e3 / num_steps,
    }


def _by_program(llm: LLM, trace: Trace) -> tuple[list[Span], dict[str, str], set[str]]:
    """The spans of all runs, the scopes of their operations, and containers, by names that tell programs apart: each
    has a `fusion.12`."""
    known = {name: read_scopes(compiled.as_text()) for name, compiled in llm.parts.runner.executables.items()}
    runs: dict[tuple[str, int], list[Span]] = defaultdict(list)
    for key, spans in trace.runs.items():
        runs[key.module, key.program] += spans
    found, scopes, containers = list[Span](), dict[str, str](), set[str]()
    for (module, _), spans in runs.items():
        name, program = best_match(module, {span.name for span in spans}, known)
        found += [span._replace(name=f"{span.name} of {name}") for span in spans]
        scopes |= {f"{op} of {name}": scope for op, scope in program.scopes.items()}
        containers |= {f"{op} of {name}" for op in program.containers}
    return found, scopes, containers


def _largest(spent_ns: Mapping[str, float], num_steps: int) -> dict[str, float]:
    """Microseconds a step of the 40 largest."""
    largest = sorted(spent_ns.items(), key=lambda item: -item[1])[:40]
    return {name: round(ns / 1e3 / num_steps, 2) for name, ns in largest}


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


@contextmanager
def decoding(
    llm: LLM, batch: int, prompt_len: int, speculation: bool | None = None
) -> Generator[tuple[StepLog, Callable[[int], None]]]:
    """In this context sequences of random tokens run, from their prompts on; they are aborted at its end.

    Yields the log of all steps, and a function that runs them until it holds that many decode steps of all sequences.
    speculation: False: without drafts.
    """
    parts, log = llm.parts, StepLog()
    prompts = np.random.default_rng(batch).integers(0, parts.model.vocab_size, (batch, prompt_len)).tolist()
    params = SamplingParams(temperature=0, max_tokens=None, ignore_eos=True, detokenize=False, speculation=speculation)
    requests = llm.admit([Prompt(None, prompt) for prompt in prompts], params)
    parts.engine.observer = log

    def run_until(num_steps: int) -> None:
        while sum(is_whole(record, batch) for record in log.records) < num_steps:
            if not parts.engine.has_work:
                raise RuntimeError("sequences reached the end of their context too early: increase max_model_len")
            parts.engine.step()

    try:
        for request in requests:
            parts.engine.add(request)
        yield log, run_until
    finally:
        parts.engine.observer = None
        for request in requests:
            parts.engine.scheduler.abort(request.request_id)
        for _ in parts.engine.drain():
            pass
