"""Wiring: `measure`: runs a benchmark of the offline engine: a warm-up, then timed passes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from jaxserve.bench.machine import peak_memory
from jaxserve.bench.offline.compile_clock import CompileClock
from jaxserve.bench.offline.workload import Workload
from jaxserve.core.outputs import RequestOutput
from jaxserve.engine.loop.step_stats import StepLog, StepReport

if TYPE_CHECKING:
    from jaxserve.engine.llm import LLM


class Workloads(Protocol):
    """The workload of each pass; pass 0 is the warm-up."""

    def of_pass(self, number: int) -> Workload: ...


@dataclass(frozen=True, slots=True)
class Pass:
    """One workload from its first request to its last token."""

    workload: Workload
    outputs: Sequence[RequestOutput]
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """The timed passes, the statistics of all their steps, and the cost of the warm-up.

    warm_up, timed: seconds, number of executables built, number of compilations by XLA and their seconds.
    """

    passes: list[Pass]
    steps: StepReport
    warm_up: dict[str, Any]
    timed: dict[str, Any]
    memory: dict[str, int | None]


def measure(
    llm: "LLM",
    workloads: Workloads,
    *,
    warm_up: str,
    repeats: int,
    use_tqdm: bool = False,
    on_progress: Callable[[str], None] = lambda line: None,
) -> Measurement:
    """Runs `repeats` timed passes.

    warm_up: "pass" runs one untimed pass, which compiles the programs of the same lengths; "all" compiles every bucket
    and refuses other shapes afterwards; "none" leaves compilation to the first timed pass. on_progress: is called with
    a line of text before each part.
    """
    first = workloads.of_pass(0)
    first.check_fits(llm.parts.sizes.max_model_len)
    passes: list[Pass] = []
    log = StepLog()
    with _CompileStats(llm) as warm_up_stats:
        if warm_up == "all":
            on_progress("warm-up: compiling every bucket")
            llm.warm_up(use_tqdm=use_tqdm)
        elif warm_up == "pass":
            on_progress(f"warm-up: {len(first.prompts)} requests, untimed")
            _run(llm, first, use_tqdm)
    with _CompileStats(llm) as timed_stats:
        llm.parts.engine.observer = log
        try:
            for number in range(1, repeats + 1):
                on_progress(f"timed pass {number} of {repeats}")
                passes.append(_run(llm, workloads.of_pass(number), use_tqdm))
        finally:
            llm.parts.engine.observer = None
    report = log.report(sum(p.elapsed_s for p in passes))
    return Measurement(passes, report, warm_up_stats.values, timed_stats.values, peak_memory())


def _run(llm: "LLM", workload: Workload, use_tqdm: bool) -> Pass:
    llm.reset_prefix_cache()  # a pass must not reuse the prefixes of an earlier one
    started_s = time.monotonic()
    outputs = llm.generate(workload.prompts, workload.params(), lora_request=workload.lora_requests, use_tqdm=use_tqdm)
    elapsed_s = time.monotonic() - started_s
    workload.check_complete(outputs)
    return Pass(workload, outputs, elapsed_s)


class _CompileStats:
    """Counts compilations while it is entered; `values` holds the figures afterwards."""

    def __init__(self, llm: "LLM"):
        self.values: dict[str, Any] = {}
        self._runner, self._clock = llm.parts.runner, CompileClock()

    def __enter__(self) -> "_CompileStats":
        self._clock.__enter__()
        self._started_s, self._num_executables = time.monotonic(), len(self._runner.executables)
        return self

    def __exit__(self, *error: Any) -> None:
        self._clock.__exit__(*error)
        self.values |= {
            "seconds": time.monotonic() - self._started_s,
            "num_executables": len(self._runner.executables) - self._num_executables,
            "num_compiled": self._clock.num_compiled,
            "compile_s": self._clock.compile_s,
        }
