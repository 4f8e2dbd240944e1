"""Wiring: `record`: traces the first steps of a batch and computes the times of device and host."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from jaxserve.bench.lengths import LengthRange
from jaxserve.bench.offline.workload import RandomWorkload, Workload
from jaxserve.bench.profile.host_parts import PARTS, instrumented_engine
from jaxserve.bench.profile.profiler_trace import read_profiler_trace
from jaxserve.bench.profile.trace_times import host_times
from jaxserve.bench.profile.traced_batch import batch_under_way, device_trace, times_of_programs
from jaxserve.core.errors import RequestError
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.engine.loop.multi_step_budget import MultiStepBudget
from jaxserve.engine.loop.step_stats import StepLog, StepReport

if TYPE_CHECKING:
    from jaxserve.engine.llm import LLM


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """The first `num_steps` steps of a batch of prompts of `input_len` random tokens, sampled with `params`."""

    num_steps: int
    batch_size: int
    input_len: int
    params: SamplingParams
    seed: int


def record(llm: "LLM", options: ProfileOptions, folder: Path, on_progress: Callable[[str], None]) -> dict[str, Any]:
    """Profiles the engine; the trace stays in `folder`.

    Three passes: the first compiles, the second measures untraced steps, the third is traced. Times are in
    milliseconds unless the key has another unit.
    """
    check(llm, options)
    input_len, output_len = (LengthRange(n, n) for n in (options.input_len, options.num_steps))
    vocab_size = llm.parts.model.vocab_size
    workloads = RandomWorkload(options.batch_size, input_len, output_len, vocab_size, options.seed)
    on_progress("warm-up: one pass, which compiles")
    _steps(llm, workloads.of_pass(0), options)
    on_progress("untraced pass")
    untraced = _steps(llm, workloads.of_pass(1), options)
    on_progress(f"traced pass: {options.num_steps} steps")
    with instrumented_engine(llm.parts.engine, _annotated_part):
        traced = _steps(llm, workloads.of_pass(2), options, device_trace(folder))
    on_progress("reading the trace")
    trace = read_profiler_trace(folder, PARTS)
    return {
        "programs": times_of_programs(llm, trace),
        "host_ms": host_times(trace),
        "steps": asdict(traced),
        "untraced_steps": asdict(untraced),
        "trace": str(folder),
    }


def check(llm: "LLM", options: ProfileOptions) -> None:
    """Raises `RequestError` where the batch does not fit the engine."""
    sizes = llm.parts.sizes
    if options.batch_size > sizes.max_num_seqs:
        raise RequestError(
            f"--batch-size {options.batch_size} is more than the {sizes.max_num_seqs} sequences that run at once: "
            "lower it, or raise --max-num-seqs",
            "batch_size",
        )
    if options.input_len + options.num_steps > sizes.max_model_len:
        raise RequestError(
            f"--input-len {options.input_len} and --steps {options.num_steps} do not fit a context of "
            f"{sizes.max_model_len}: lower one of them, or raise --max-model-len",
            "steps",
        )


def annotated(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose calls appear in traces."""
    from jax.profiler import TraceAnnotation

    def call(*args: Any, **options: Any) -> Any:
        with TraceAnnotation(name):
            return function(*args, **options)

    return call


def _annotated_part(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A part of a step with its annotation; the wait inside `collect` gets one of its own."""
    if name != "collect":
        return annotated(name, function)
    import jax

    wait = annotated("wait", cast(Callable[[Any], Any], jax.block_until_ready))

    def collect(ticket: Any) -> Any:
        wait(ticket.output)
        return function(ticket)

    return annotated(name, collect)


def _steps(
    llm: "LLM", workload: Workload, options: ProfileOptions, traced: AbstractContextManager[Any] | None = None
) -> StepReport:
    """Runs the first steps of a batch, each with one token per row, and aborts the rest of it."""
    params = replace(options.params, max_tokens=options.num_steps, ignore_eos=True)
    outputs, engine, log = llm.output_processor, llm.parts.engine, StepLog()
    step, budget = annotated("step", outputs.step), engine.multi_step
    engine.multi_step = MultiStepBudget(1)
    try:
        with batch_under_way(llm, workload.prompts, params, log), traced or nullcontext():
            started_s = time.monotonic()
            for _ in range(options.num_steps):
                if outputs.has_work:
                    step()
            ended_s = time.monotonic()
            llm.parts.runner.wait()  # a trace must hold the step that runs still
    finally:
        engine.multi_step = budget
    return log.report(ended_s - started_s)
