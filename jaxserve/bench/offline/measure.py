"""Wiring: `measure`, what every benchmark of the offline engine does: warm up apart, then timed passes."""

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

WARM_UPS = ("pass", "all", "none")


class Workloads(Protocol):
    """The workload of each pass; warm-up is a pass too."""

    def of_pass(self, number: int) -> Workload: ...


@dataclass(frozen=True, slots=True)
class Pass:
    """One workload from its first request to its last token."""

    workload: Workload
    outputs: Sequence[RequestOutput]
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """Timed passes, their steps together, and what was apart from them.

    warm_up, timed: seconds, executables made, compilations by XLA and the seconds they took.
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
    say: Callable[[str], None] = lambda line: None,
) -> Measurement:
    """Run `repeats` timed passes.

    warm_up: "pass" runs one untimed pass, which compiles what passes of the same lengths need; "all" compiles every
    bucket and refuses other shapes from then on; "none" leaves compilation in the first timed pass. say: gets a line of
    progress before each part.
    """
    first = workloads.of_pass(0)
    first.check_fits(llm.parts.limits.max_model_len)
    passes, log = [], StepLog()
    with _Watch(llm) as warm_up_watch:
        if warm_up == "all":
            say("warm-up: compiling every bucket")
            llm.warm_up(use_tqdm=use_tqdm)
        elif warm_up == "pass":
            say(f"warm-up: {len(first.prompts)} requests, untimed")
            _run(llm, first, use_tqdm)
    with _Watch(llm) as timed_watch:
        llm.parts.engine.observer = log
        try:
            for number in range(1, repeats + 1):
                say(f"timed pass {number} of {repeats}")
                passes.append(_run(llm, workloads.of_pass(number), use_tqdm))
        finally:
            llm.parts.engine.observer = None
    report = log.report(sum(p.elapsed_s for p in passes))
    return Measurement(passes, report, warm_up_watch.seen, timed_watch.seen, peak_memory())


def _run(llm: "LLM", workload: Workload, use_tqdm: bool) -> Pass:
    llm.reset_prefix_cache()  # passes must not find what earlier ones have computed
    started_s = time.monotonic()
    outputs = llm.generate(workload.prompts, workload.params(), use_tqdm=use_tqdm)
    elapsed_s = time.monotonic() - started_s
    workload.check_complete(outputs)
    return Pass(workload, outputs, elapsed_s)


class _Watch:
    """What is compiled while it is entered."""

    def __init__(self, llm: "LLM"):
        self.seen: dict[str, Any] = {}
        self._runner, self._clock = llm.parts.runner, CompileClock()

    def __enter__(self) -> "_Watch":
        self._clock.__enter__()
        self._started_s, self._num_executables = time.monotonic(), len(self._runner.executables)
        return self

    def __exit__(self, *error: Any) -> None:
        self._clock.__exit__(*error)
        self.seen |= {
            "seconds": time.monotonic() - self._started_s,
            "num_executables": len(self._runner.executables) - self._num_executables,
            "num_compiled": self._clock.num_compiled,
            "compile_s": self._clock.seconds,
        }
