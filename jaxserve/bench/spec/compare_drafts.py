"""Wiring: `compare_drafts`: an engine with drafts against the same engine without, in turns."""

import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from jaxserve.bench.offline.measure import Workloads
from jaxserve.bench.offline.workload import Workload
from jaxserve.engine.loop.step_stats import StepLog, StepRecord

if TYPE_CHECKING:
    from jaxserve.engine.llm import LLM


@dataclass(frozen=True, slots=True)
class DraftResult:
    """name: of the drafts. tokens_per_s, plain_tokens_per_s: medians of the timed passes, with drafts and without.
    ratio: the median of the ratios of passes next to each other. tokens_a_pass: by which a row advances on average in a
    forward pass that has drafts of it. num_drafted, num_accepted: draft tokens. acceptance: of each position how often
    it was accepted, of the passes with drafts. drafting_share: of the tokens that were drawn in such passes.
    verify_share: of the device's time, in buckets with drafts. host_share: of the time in which the host did not wait.
    """

    name: str
    tokens_per_s: float
    plain_tokens_per_s: float
    ratio: float
    tokens_a_pass: float
    num_drafted: int
    num_accepted: int
    acceptance: list[float]
    drafting_share: float
    verify_share: float
    host_share: float

    def record(self) -> dict[str, object]:
        return asdict(self)


def compare_drafts(
    llm: "LLM", name: str, workloads: Workloads, repeats: int, on_progress: Callable[[str], None]
) -> DraftResult:
    """Time `repeats` passes with drafts and as many without, alternately, after one of each.

    The same engine does without drafts where requests say so; its weights and programs are the same then.
    """
    first = workloads.of_pass(0)
    first.check_fits(llm.parts.sizes.max_model_len)
    log, drafted_s, plain_s = StepLog(), list[float](), list[float]()
    for number in range(repeats + 1):
        on_progress(f"{name}: warm-up" if not number else f"{name}: timed pass {number} of {repeats}")
        workload = workloads.of_pass(number)
        for has_drafts in (True, False) if number % 2 else (False, True):
            llm.parts.engine.observer = log if has_drafts and number else None
            (drafted_s if has_drafts else plain_s).append(_seconds(llm, workload, has_drafts))
    llm.parts.engine.observer = None
    num_tokens = [workloads.of_pass(number).num_output_tokens for number in range(1, repeats + 1)]
    rates, plain = ([n / s for n, s in zip(num_tokens, times[1:], strict=True)] for times in (drafted_s, plain_s))
    report = log.report(sum(drafted_s[1:]))
    drafting = [record for record in log.records if record.drafts is not None]
    proposed, accepted, by_position = _counts(drafting)
    num_passes = int(np.count_nonzero(proposed))
    return DraftResult(
        name=name,
        tokens_per_s=statistics.median(rates),
        plain_tokens_per_s=statistics.median(plain),
        ratio=statistics.median(a / b for a, b in zip(rates, plain, strict=True)),
        tokens_a_pass=1 + int(accepted.sum()) / max(num_passes, 1),
        num_drafted=int(proposed.sum()),
        num_accepted=int(accepted.sum()),
        acceptance=[count / max(num_passes, 1) for count in by_position],
        drafting_share=(num_passes + int(accepted.sum())) / max(sum(num_tokens), 1),
        verify_share=sum(record.moments.device_s for record in drafting) / max(report.device_s, 1e-9),
        host_share=report.host_share,
    )


def _seconds(llm: "LLM", workload: Workload, has_drafts: bool) -> float:
    llm.reset_prefix_cache()
    params = [replace(param, speculation=has_drafts) for param in workload.params()]
    started_s = time.monotonic()
    outputs = llm.generate(workload.prompts, params, use_tqdm=False)
    elapsed_s = time.monotonic() - started_s
    workload.check_complete(outputs)
    return elapsed_s


def _counts(records: list[StepRecord]) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Drafts of each row and round, proposed and accepted, and how often each position was accepted."""
    none = np.zeros(0, np.int32)
    found = [record.drafts for record in records if record.drafts is not None]
    proposed = np.concatenate([none, *(drafts.num_proposed.ravel() for drafts in found)])
    accepted = np.concatenate([none, *(drafts.num_accepted.ravel() for drafts in found)])
    lengths: list[int] = accepted.tolist()
    numbers = Counter(lengths)
    most = max(numbers, default=0)
    return proposed, accepted, [sum(numbers[n] for n in range(place, most + 1)) for place in range(1, most + 1)]
